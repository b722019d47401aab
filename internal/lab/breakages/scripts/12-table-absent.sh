# story: somebody removed the slot table
# rows: slot-table-read
# level: basic
broken() {
	keep $table
	rm $table
}
