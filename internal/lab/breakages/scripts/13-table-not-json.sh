# story: the slot table was edited by hand and lost its last brace
# rows: slot-table-read
# level: basic
broken() {
	keep $table
	sed -i '$ s/}[^}]*$//' $table
}
