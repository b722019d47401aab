package slots

// The variables that tell a service about slots.
const (
	EnvMode   = "AGENTWORKS_SLOTS" // see ParseMode
	EnvPrefix = "AGENTWORKS_SLOT_PREFIX"
	EnvTable  = "AGENTWORKS_SLOTS_FILE"
)
