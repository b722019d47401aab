# story: October 2026: the docs moved out of the app, and a config generator still wrote <app>/data/docs as the allowed folder
# rows: slotctl-allowed-cwd pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep $libexec/slotctl.json
	sed -i '/"allowed_cwd"/,/]/{/docs/d}' $libexec/slotctl.json
}
