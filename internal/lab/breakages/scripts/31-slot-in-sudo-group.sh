# story: an administrator put a slot into the group sudo to try something out, and it stayed there
# rows: identity
# level: full
broken() {
	keep_accounts
	usermod -aG sudo slot01
}
