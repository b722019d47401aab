# story: a clean-up of /etc/sudoers.d took the slots' rule along
# rows: runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep $rule
	rm $rule
}
