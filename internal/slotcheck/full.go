package slotcheck

// confinementChecks are the rows of each slot that level full adds.
func confinementChecks() []check {
	return denialChecks()
}

// hostRows are the rows of the host that level full adds.
func hostRows() []check {
	return []check{
		{"sudo-rule", checkSudoRule},
		{"service-groups", checkServiceGroups},
		{"trees-closed", checkTreesClosed},
		{"slot-hygiene", checkSlotHygiene},
		{"accounts-without-slot", checkAccountsWithoutSlot},
		{"host-exec", checkHostExec},
		{"live-release", checkLiveRelease},
	}
}
