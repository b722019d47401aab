package provision

import (
	"fmt"
	"strconv"
	"strings"
)

// The ids that new accounts come from. useradd never chooses there by itself,
// and the range lies below the subordinate ids of a usual host.
const (
	firstBlock = 70000
	lastBlock  = 79000
	blockSize  = 1000
	// maxSlots is how many slots a block holds: x000 is the shared group's,
	// x999 stays free for ending processes.
	maxSlots = blockSize - 2
)

// idRange is a range of ids that something else on the host may use.
type idRange struct {
	from, to uint64 // both included
	what     string // "UID_MIN-UID_MAX of /etc/login.defs"
}

func (r idRange) overlaps(from, to uint64) bool { return r.from <= to && from <= r.to }

// standing are ranges that systemd uses on every host (systemd.io/UIDS-GIDS).
func standing() []idRange {
	return []idRange{
		{60001, 60513, "systemd's home folders"},
		{60578, 60705, "systemd's reserved ids"},
		{61184, 65519, "systemd's dynamic users"},
		{65534, 65535, "nobody and the invalid id"},
		{524288, 1879048191, "systemd's containers"},
		{1<<31 - 1, 1<<32 - 1, "ids that programs take for negative"},
	}
}

// loginDefs are the ranges of login.defs(5) that useradd and groupadd choose
// from by themselves. Values that are not set have shadow's own defaults, none
// of which reaches our range, so only what is set counts; a range with one end
// set takes the default of the other.
func loginDefs(data []byte) []idRange {
	set := map[string]uint64{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if n, err := strconv.ParseUint(f[1], 0, 64); err == nil {
			set[f[0]] = n
		}
	}
	var ranges []idRange
	for _, r := range []struct {
		key      string
		min, max uint64
	}{
		{"UID", 1000, 60000}, {"GID", 1000, 60000},
		{"SYS_UID", 101, 999}, {"SYS_GID", 101, 999},
		{"SUB_UID", 100000, 600100000}, {"SUB_GID", 100000, 600100000},
	} {
		from, hasMin := set[r.key+"_MIN"]
		to, hasMax := set[r.key+"_MAX"]
		if !hasMin && !hasMax {
			continue
		}
		if !hasMin {
			from = r.min
		}
		if !hasMax {
			to = r.max
		}
		ranges = append(ranges, idRange{from, to, fmt.Sprintf("%s_MIN-%s_MAX %d-%d of /etc/login.defs", r.key, r.key, from, to)})
	}
	return ranges
}

// subordinate are the ranges of subuid(5) or subgid(5): "name:first:count".
// Lines that newuidmap would not understand delegate nothing.
func subordinate(file string, data []byte) []idRange {
	var ranges []idRange
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		f := strings.Split(line, ":")
		if len(f) != 3 {
			continue
		}
		from, err1 := strconv.ParseUint(f[1], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 != nil || err2 != nil || count == 0 {
			continue
		}
		ranges = append(ranges, idRange{from, from + count - 1, fmt.Sprintf("the line %q of %s", line, file)})
	}
	return ranges
}
