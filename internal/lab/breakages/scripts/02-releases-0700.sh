# story: October 2026: a deploy with umask 077 made the folder of releases, so no slot could walk to the launcher
# rows: runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep_modes $app/releases
	chmod 0700 $app/releases
}
