package slotcheck

// confinementChecks are the rows of each slot that level full adds.
func confinementChecks() []check {
	checks := []check{{"identity", checkIdentity}, {"capabilities", checkCapabilities}}
	checks = append(checks, denialChecks()...)
	return append(checks,
		check{"deny-process-environment", checkProcessEnvironment},
		check{"env-scrubbed", checkEnvScrubbed},
		check{"tmux-socket-unreachable", checkTmuxSocket},
	)
}

// hostRows are the rows of the host that level full adds.
func hostRows() []check {
	return []check{
		{"identity", checkAccounts},
		{"slot-folders", checkSlotFolders},
		{"sudo-rule", checkSudoRule},
		{"services", checkServices},
		{"service-groups", checkServiceGroups},
		{"trees-closed", checkTreesClosed},
		{"slot-hygiene", checkSlotHygiene},
		{"slot-managers", checkSlotManagers},
		{"accounts-without-slot", checkAccountsWithoutSlot},
		{"env-required", checkEnvRequired},
		{"host-exec", checkHostExec},
		{"sandbox", checkSandbox},
		{"live-release", checkLiveRelease},
	}
}
