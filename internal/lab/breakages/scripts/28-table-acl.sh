# story: somebody let a slot read the slot table with setfacl: chmod would leave the entry
# rows: slot-table-acl
# level: basic
broken() {
	keep_modes $table
	setfacl -m u:slot01:rw $table
}
