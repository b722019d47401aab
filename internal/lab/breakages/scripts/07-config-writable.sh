# story: somebody opened slotctl.json to edit it without root
# rows: slotctl-config runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep_modes $libexec/slotctl.json
	chmod 0666 $libexec/slotctl.json
}
