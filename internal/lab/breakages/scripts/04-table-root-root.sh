# story: October 2026: an administrator's release rewrote the slot table through a new file of root's own group
# rows: slot-table-group slot-table-read
# level: basic
broken() {
	keep_modes $table
	chown root:root $table
}
