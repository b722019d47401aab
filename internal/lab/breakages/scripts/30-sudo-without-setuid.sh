# story: a hardening script took setuid from all programs, sudo among them
# rows: runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep_modes /usr/bin/sudo
	chmod u-s /usr/bin/sudo
}
