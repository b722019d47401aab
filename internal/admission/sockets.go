package admission

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// sockets judges what the running services really listen on, whatever the host
// file says: beyond loopback a listener needs a login and known host names.
func (s *Site) sockets(ctx context.Context) {
	if s.Host.Listen.Guarded() {
		return
	}
	for _, service := range s.Host.Release.Services {
		unit := units.ServiceUnit(service)
		open, err := s.beyondLoopback(ctx, unit)
		if err != nil {
			s.fail(report.OnHost, "look at the service", "what %s listens on is not known: %v", unit, err)
			continue
		}
		for _, at := range open {
			s.fail(report.Operator, "bind it to 127.0.0.1, or set listen.auth and listen.allowed_hosts in the host file once it has both",
				"%s listens on %s, which is not loopback, without auth and allowed_hosts", unit, at)
		}
	}
}

// beyondLoopback are the addresses that unit's processes listen on and that
// others can reach, sorted.
func (s *Site) beyondLoopback(ctx context.Context, unit string) ([]string, error) {
	u, err := s.Unit(ctx, unit)
	if err != nil || u.PID == 0 {
		return nil, err
	}
	all, err := accounts.Processes(s.Proc, s.UID)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, p := range all {
		if p.Zombie || p.PID != u.PID && !p.InUnit(unit) {
			continue
		}
		held, err := socketsOf(s.Proc, p.PID)
		if accounts.Gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("pid %d: %w", p.PID, reason(err))
		}
		listening, err := listeners(s.Proc, p.PID)
		if accounts.Gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("pid %d: %w", p.PID, reason(err))
		}
		for inode, at := range listening {
			if held[inode] && !at.Addr().Unmap().IsLoopback() {
				found[at.String()] = true
			}
		}
	}
	return sortedKeys(found), nil
}

// socketsOf are the inodes of the sockets that a process holds.
func socketsOf(proc string, pid int) (map[string]bool, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid), "fd")
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	held := map[string]bool{}
	for _, n := range names {
		target, err := os.Readlink(filepath.Join(dir, n.Name()))
		if err != nil {
			continue // it was closed just now
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			held[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return held, nil
}

// listeners are the listening TCP sockets of a process's network, by inode.
func listeners(proc string, pid int) (map[string]netip.AddrPort, error) {
	found := map[string]netip.AddrPort{}
	for _, file := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "net", file))
		if os.IsNotExist(err) && file == "tcp6" {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		if err := parseListeners(data, found); err != nil {
			return nil, fmt.Errorf("net/%s: %w", file, err)
		}
	}
	return found, nil
}

// stateListen is TCP_LISTEN as /proc/net/tcp writes it.
const stateListen = "0A"

// parseListeners reads the lines of /proc/net/tcp or tcp6; see proc_net_tcp in
// the kernel's documentation.
func parseListeners(data []byte, found map[string]netip.AddrPort) error {
	first := true
	for line := range strings.Lines(string(data)) {
		if first {
			first = false
			continue
		}
		f := strings.Fields(line)
		if len(f) < 10 {
			return fmt.Errorf("a line of %d words", len(f))
		}
		if f[3] != stateListen {
			continue
		}
		at, err := parseSocketAddress(f[1])
		if err != nil {
			return err
		}
		found[f[9]] = at
	}
	return nil
}

// parseSocketAddress reads "0100007F:1F40": the address in 32-bit words of the
// machine's own byte order, which is little-endian on all we run on.
func parseSocketAddress(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, fmt.Errorf("%q is no socket address", s)
	}
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no socket address", s)
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip, uint16(n)), nil
}
