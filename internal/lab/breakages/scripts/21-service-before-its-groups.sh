# story: the service was started before its account got the slots' groups, and a process keeps those it had
# rows: service-groups
# level: full
broken() {
	keep_accounts
	gpasswd -d vs slot49 >/dev/null
	user_manager restart
	gpasswd -a vs slot49 >/dev/null
}
undone() { user_manager restart; }
