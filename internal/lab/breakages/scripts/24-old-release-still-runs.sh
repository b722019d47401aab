# story: current was switched by hand and the services were not restarted: they run the release before
# rows: live-release
# level: full
broken() {
	old=$app/releases/vs-aaaaaaaa-20200101000000
	adds $old
	cp -a "$release" $old
	point_to $old
	user_services restart vs-workspace vs-agent
	point_to "$release"
}
undone() { user_services restart vs-workspace vs-agent; }
point_to() {
	ln -sfn "releases/${1##*/}" $app/current.new
	chown -h vs:vs $app/current.new
	mv -T $app/current.new $app/current
}
