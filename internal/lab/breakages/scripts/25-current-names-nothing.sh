# story: a clean-up by hand removed the release that current names
# rows: slotctl-allowed-exec runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep $app/current
	ln -sfn releases/vs-aaaaaaaa-20200101000000 $app/current
	chown -h vs:vs $app/current
}
