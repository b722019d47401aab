# story: current was switched by hand and the services were not restarted: they run the release before
# rows: live-release
# level: full
broken() {
	old=$app/releases/vs-aaaaaaaa-20200101000000
	keep $app/current
	adds $old $app/current.new
	cp -a "$release" $old
	point_to $old
	restart_services
	for unit in vs-workspace vs-agent; do
		wait_for_exe "$(user_services show -P MainPID $unit)" $old/bin/$unit
	done
	point_to "$release"
}
# restart returns before the service's program has begun, which then would be the new release's.
wait_for_exe() {
	for _ in $(seq 200); do
		[ "$(readlink "/proc/$1/exe")" != "$2" ] || return 0
		sleep 0.05
	done
	echo "$2 does not run" >&2
	return 1
}
undone() { restart_services; }
point_to() {
	ln -sfn "releases/${1##*/}" $app/current.new
	chown -h vs:vs $app/current.new
	mv -T $app/current.new $app/current
}
