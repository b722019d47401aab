# story: the slot table is gone; provisioning makes an empty one, and a backup brings the assignments back
# rows: slot-table-read
# level: basic
broken() {
	keep $table
	rm $table
}
