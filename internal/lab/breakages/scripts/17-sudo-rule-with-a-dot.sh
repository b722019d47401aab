# story: the rule was renamed to end in .conf, and sudo reads no file with a dot
# rows: runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep $rule
	adds $rule.conf
	mv $rule $rule.conf
}
