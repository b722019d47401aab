# story: a copy with umask 077 left the launcher closed to the slots
# rows: runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep_modes $launcher
	chmod 0700 $launcher
}
