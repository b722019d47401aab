# story: a backup was restored with umask 077: no slot gets to its user's tree
# rows: pwd-crew-project pwd-code-project
# level: basic
broken() {
	keep_modes $docs/_users
	chmod 0700 $docs/_users
}
