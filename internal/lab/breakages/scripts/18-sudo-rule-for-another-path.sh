# story: the rule of another product, or of an old layout, allows a slotctl that nobody calls
# rows: runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep $rule
	sed -i 's#libexec/agentworks#libexec/elsewhere#' $rule
}
