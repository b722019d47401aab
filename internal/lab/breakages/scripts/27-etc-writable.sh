# story: a chmod go+w went through /etc/agentworks: any slot can give itself another user's slot
# rows: path-writable slot-table-mode
# level: basic
broken() {
	keep_modes ${table%/*} $table $table.lock
	chmod go+w ${table%/*} $table $table.lock
}
