# story: a provisioning run that stopped half-way left slotctl without its configuration
# rows: slotctl-config
# level: basic
broken() {
	keep $libexec/slotctl.json
	rm $libexec/slotctl.json
}
