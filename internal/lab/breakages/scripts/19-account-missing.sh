# story: userdel removed the account of a slot that a user holds
# rows: slot-account
# level: basic
broken() {
	keep_accounts
	userdel slot02 2>/dev/null || ! getent passwd slot02 # it leaves the group, in which the service is
}
