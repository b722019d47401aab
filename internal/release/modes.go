package release

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
)

// traverse opens the way to the launcher of the release in the folder dir for
// the slots (case R-01): releases exactly 0711 whatever it was, the release and
// its bin/ o+x and never o+r, the launcher 0755. It touches only what the
// account uid owns, and nothing else of any mode. Changed names what it changed;
// foreign what it left because somebody else owns it.
func traverse(releases, dir string, uid int) (changed, foreign []string, err error) {
	search := func(m uint32) uint32 { return m&^0o004 | 0o001 }
	for _, step := range []struct {
		path string
		mode func(uint32) uint32
	}{
		{releases, exactly(0o711)},
		{dir, search},
		{filepath.Join(dir, "bin"), search},
		{filepath.Join(dir, "bin", hosts.LauncherName), exactly(0o755)},
	} {
		did, own, err := chmod(step.path, uid, step.mode)
		if err != nil {
			return changed, foreign, fmt.Errorf("open the way to the launcher: %w", err)
		}
		if did != "" {
			changed = append(changed, did)
		}
		if !own {
			foreign = append(foreign, step.path)
		}
	}
	return changed, foreign, nil
}

func exactly(want uint32) func(uint32) uint32 {
	return func(uint32) uint32 { return want }
}

// chmod gives the file or folder at p the mode that rule makes of its present
// one, through a descriptor of it, which a link at p is not followed for. Did
// says what changed; own is false, and nothing done, where another account owns
// it.
func chmod(p string, uid int, rule func(uint32) uint32) (did string, own bool, err error) {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, &fs.PathError{Op: "stat", Path: p, Err: err}
	}
	if int(st.Uid) != uid {
		return "", false, nil
	}
	was := st.Mode & 0o7777
	want := rule(was)
	if was == want {
		return "", true, nil
	}
	// An O_PATH descriptor opens even what its owner may not read, and takes no
	// fchmod; this name leads the kernel to that very file.
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), want); err != nil {
		return "", true, &fs.PathError{Op: "chmod", Path: p, Err: err}
	}
	return fmt.Sprintf("%s %04o → %04o", p, was, want), true, nil
}

// fileModes gives each listed file of the release in dir exactly the mode of
// the manifest; nothing but its exec bit is part of the content, so a drifted
// mode needs no new copy.
func fileModes(dir string, m *Manifest, uid int) (changed []string, err error) {
	for _, p := range slices.Sorted(maps.Keys(m.Files)) {
		want, err := strconv.ParseUint(m.Files[p].Mode, 8, 32)
		if err != nil {
			return changed, fmt.Errorf("mode of %s: %w", p, err)
		}
		did, _, err := chmod(filepath.Join(dir, p), uid, exactly(uint32(want)))
		if err != nil {
			return changed, fmt.Errorf("mode of %s: %w", p, err)
		}
		if did != "" {
			changed = append(changed, did)
		}
	}
	return changed, nil
}
