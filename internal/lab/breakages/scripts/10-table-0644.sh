# story: an editor wrote the slot table anew with the usual mode: everybody reads who holds which slot
# rows: slot-table-mode
# level: basic
broken() {
	keep_modes $table
	chmod 0644 $table
}
