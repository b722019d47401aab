package hosts

import (
	"fmt"
	"path"
	"strings"
)

// Layout derives every path of a host from its effective values; see the table
// "Files, owners, modes" of docs/formats.md. It is the one place where such a
// path is spelled.
type Layout struct {
	Product, Prefix string
	App, Docs, Home string
	Count           int
}

// DefaultPrefix is the slot prefix whose product owns the unsuffixed paths.
const DefaultPrefix = "slot"

// LauncherName is the literal name of the launcher in every product's releases.
const LauncherName = "video-studio-landlock-runner"

// Layout returns the layout of h. Empty paths take their defaults.
func (h *Host) Layout() Layout {
	l := Layout{Product: h.Product, Prefix: h.Slots.Prefix, App: h.Paths.App, Docs: h.Paths.Docs, Home: h.Paths.Home, Count: h.Slots.Count}
	if l.Prefix == "" {
		l.Prefix = DefaultPrefix
	}
	if l.App == "" {
		l.App = "/srv/" + l.Product
	}
	if l.Docs == "" {
		l.Docs = path.Join(l.App, "data/docs")
	}
	if l.Home == "" {
		l.Home = path.Join(l.App, "home")
	}
	if l.Count == 0 {
		l.Count = 50
	}
	return l
}

func (l Layout) own() string {
	if l.Prefix == DefaultPrefix {
		return ""
	}
	return l.Product
}

// Slot is the n-th slot's name, from 1: slot01 … slot99, slot100.
func (l Layout) Slot(n int) string { return fmt.Sprintf("%s%02d", l.Prefix, n) }

// SharedGroup holds every slot and the service account.
func (l Layout) SharedGroup() string { return l.Prefix + "shared" }

// Libexec is LIBEXEC, root:root 0755.
func (l Layout) Libexec() string { return path.Join("/usr/local/libexec/agentworks", l.own()) }

// Slotctl is the one program sudo offers.
func (l Layout) Slotctl() string { return path.Join(l.Libexec(), "slotctl") }

// SlotctlConfig is slotctl's allow-list.
func (l Layout) SlotctlConfig() string { return path.Join(l.Libexec(), "slotctl.json") }

// AdminHalf is the on-host half that root verbs run.
func (l Layout) AdminHalf() string { return path.Join(l.Libexec(), "agentworks-deploy") }

// Etc is ETC, which holds the slot table.
func (l Layout) Etc() string { return path.Join("/etc/agentworks", l.own()) }

// SlotTable is slots.json, root:<product> 0640.
func (l Layout) SlotTable() string { return path.Join(l.Etc(), "slots.json") }

// SlotTableLock is the stable sibling lock, root:root 0600.
func (l Layout) SlotTableLock() string { return path.Join(l.Etc(), "slots.json.lock") }

// SlotHistory is the root-only note of who held which slot last.
func (l Layout) SlotHistory() string { return path.Join(l.Etc(), "slots.history.json") }

// Sudoers is the product's sudo rule.
func (l Layout) Sudoers() string {
	if l.own() == "" {
		return "/etc/sudoers.d/agentworks-slots"
	}
	return "/etc/sudoers.d/agentworks-slots-" + l.Product
}

// RunasAlias is the sudoers alias that lists the slots.
func (l Layout) RunasAlias() string {
	if l.own() == "" {
		return "AGENTWORKS_SLOTS"
	}
	return "AGENTWORKS_SLOTS_" + strings.ToUpper(strings.ReplaceAll(l.Product, "-", "_"))
}

// AppArmorProfile is the user-namespace exception (case P-13).
func (l Layout) AppArmorProfile() string { return "/etc/apparmor.d/" + l.Product + "-slot-userns" }

// RootLock is held by one root verb at a time; /run/agentworks-deploy/<product>.lock.
func (l Layout) RootLock() string { return "/run/agentworks-deploy/" + l.Product + ".lock" }

// Releases holds the immutable releases.
func (l Layout) Releases() string { return path.Join(l.App, "releases") }

// Current is the symlink to the live release.
func (l Layout) Current() string { return path.Join(l.App, "current") }

// DeployLock is the service's own lock.
func (l Layout) DeployLock() string { return path.Join(l.App, "deploy.lock") }

// ServiceHalves holds uploaded on-host halves, one per sha256.
func (l Layout) ServiceHalves() string { return path.Join(l.App, ".deploy") }

// EnvFile is the services' EnvironmentFile.
func (l Layout) EnvFile() string { return path.Join(l.App, ".env") }

// Logs is the persistent log folder that each release links to.
func (l Layout) Logs() string { return path.Join(l.App, "logs") }

// State is the app's private state root.
func (l Layout) State() string { return path.Join(l.App, "state") }

// SlotsRoot holds home, state and run.
func (l Layout) SlotsRoot() string { return path.Join(l.App, "slots") }

// SlotHomes is the parent of the slots' homes.
func (l Layout) SlotHomes() string { return path.Join(l.SlotsRoot(), "home") }

// SlotHome is one slot's home.
func (l Layout) SlotHome(slot string) string { return path.Join(l.SlotHomes(), slot) }

// SlotStates is slot_state_root.
func (l Layout) SlotStates() string { return path.Join(l.SlotsRoot(), "state") }

// SlotState is one slot's state folder.
func (l Layout) SlotState(slot string) string { return path.Join(l.SlotStates(), slot) }

// SlotRuns is slot_run_root.
func (l Layout) SlotRuns() string { return path.Join(l.SlotsRoot(), "run") }

// SlotRun is one slot's run folder.
func (l Layout) SlotRun(slot string) string { return path.Join(l.SlotRuns(), slot) }

// Users is the parent of the users' trees.
func (l Layout) Users() string { return path.Join(l.Docs, "_users") }

// UserTree is one user's tree.
func (l Layout) UserTree(id string) string { return path.Join(l.Users(), id) }

// DocsConfig holds users.json, closed to everybody but the service.
func (l Layout) DocsConfig() string { return path.Join(l.Docs, "config") }

// UsersFile is users.json.
func (l Layout) UsersFile() string { return path.Join(l.DocsConfig(), "users.json") }

// SharedFolders are the names below Docs that all slots share.
func SharedFolders() []string {
	return []string{"Workflow", "Downloads", "skills", "subagents", "tmp"}
}

// LauncherGlob is the allow-list entry for the launcher of any release.
func (l Layout) LauncherGlob() string {
	return path.Join(l.Releases(), "*", "bin", LauncherName)
}
