# story: a chown -R went through /etc/agentworks: the service can give slots away
# rows: slot-table-owner
# level: basic
broken() {
	keep_modes $table
	chown vs:vs $table
}
