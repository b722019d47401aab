# story: the app moved, and slotctl.json still allows the launcher of the old place
# rows: slotctl-allowed-exec runner-reachable pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep $libexec/slotctl.json
	sed -i 's#/srv/vs/releases/#/srv/vs/release/#' $libexec/slotctl.json
}
