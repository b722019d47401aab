# story: a restored backup gave a user's tree the group of another slot
# rows: pwd-crew-project pwd-code-project trees-closed
# level: full
broken() {
	keep_modes $docs/_users/u1
	chgrp slot02 $docs/_users/u1
}
