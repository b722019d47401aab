package launcher

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// ownMountNamespace gives this thread a mount namespace of its own, from which
// nothing reaches the machine's and into which nothing comes from there.
func ownMountNamespace() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return namespaceError("mount namespace", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return namespaceError("mount namespace: make it private", err)
	}
	return nil
}

// namespaceError says what a refused namespace most likely means, since the
// error number alone tells nobody what to do (S13, S16).
func namespaceError(what string, err error) error {
	const nested = "this process may be inside a sandbox already, and a sandbox cannot be started inside another"
	const off = "user namespaces may be off (sysctl user.max_user_namespaces) or kept from this launcher " +
		"(sysctl kernel.apparmor_restrict_unprivileged_userns, without an AppArmor profile that allows them)"
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w: %s; or %s", what, err, nested, off)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%s: %w: %s", what, err, off)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// newFilesystem makes a detached, empty file system and returns a descriptor of
// its root.
func newFilesystem(fstype string, options []string) (int, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open a new %s: %w", fstype, err)
	}
	defer unix.Close(fs)
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return -1, fmt.Errorf("set %s of a new %s: %w", option, fstype, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("create a new %s: %w", fstype, err)
	}
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if fstype == "devpts" {
		attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return -1, fmt.Errorf("mount a new %s: %w", fstype, err)
	}
	return tree, nil
}

// cloneTree makes a detached bind of an open file or folder, with every mount
// below it: without them, what they cover would come to light, and the kernel
// forbids that.
func cloneTree(fd int) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("bind: %w", err)
	}
	return tree, nil
}

func makeReadOnly(tree int, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(tree, "", flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make read-only: %w", err)
	}
	return nil
}

// moveTree attaches a detached mount on an open file or folder.
func moveTree(tree, target int) error {
	return unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// placeholder makes the detached, read-only nothing that lies over a hidden
// path: a folder or a file of mode 000.
func placeholder(dir bool) (int, error) {
	mode := "mode=000"
	if !dir {
		mode = "mode=0700" // or its owner could not make a file in it
	}
	tree, err := newFilesystem("tmpfs", []string{mode})
	if err != nil {
		return -1, err
	}
	if !dir {
		if tree, err = emptyFile(tree); err != nil {
			return -1, err
		}
	}
	return tree, makeReadOnly(tree, false)
}

// emptyFile makes a file in an empty tmpfs and a detached bind of that file.
// Kernels before 6.15 bind nothing out of a detached mount, so the tmpfs lies
// on the root folder for a moment, where no path leads into it.
func emptyFile(tree int) (int, error) {
	const name = "hidden"
	defer unix.Close(tree)
	top, err := root()
	if err != nil {
		return -1, err
	}
	defer unix.Close(top.fd)
	if err := moveTree(tree, top.fd); err != nil {
		return -1, fmt.Errorf("attach: %w", err)
	}
	if err := unix.Mknodat(tree, name, unix.S_IFREG, 0); err != nil {
		return -1, fmt.Errorf("make an empty file: %w", err)
	}
	fd, err := openat2(tree, name, unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, fmt.Errorf("open the empty file: %w", err)
	}
	defer unix.Close(fd)
	file, err := cloneTree(fd)
	if err != nil {
		return -1, err
	}
	if err := unix.Unmount(fdPath(tree), unix.MNT_DETACH); err != nil {
		return -1, fmt.Errorf("detach: %w", err)
	}
	return file, nil
}

// makeMountPoint makes an empty file or folder, with the folders above it, in a
// tmpfs of ours.
func makeMountPoint(tree int, name string, dir bool) error {
	folder, err := makeFolders(tree, path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	if dir {
		err = unix.Mkdirat(folder, path.Base(name), 0o755)
	} else {
		err = unix.Mknodat(folder, path.Base(name), unix.S_IFREG|0o644, 0)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func makeLink(tree int, name, target string) error {
	folder, err := makeFolders(tree, path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	err = unix.Symlinkat(target, folder, path.Base(name))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// makeFolders makes a way of folders in a tmpfs of ours and opens its end.
func makeFolders(tree int, way string) (int, error) {
	at, err := openat2(tree, ".", unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	if way == "." {
		return at, nil
	}
	for _, name := range strings.Split(way, "/") {
		if err := unix.Mkdirat(at, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			unix.Close(at)
			return -1, err
		}
		next, err := openat2(at, name, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// openBelow opens a folder below a granted one, without links.
func openBelow(folder object, name string) (object, error) {
	fd, err := openat2(folder.fd, relative(name, folder.path), unix.O_DIRECTORY|unix.O_NOFOLLOW,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return object{}, err
	}
	return inspect(fd, name)
}

// openEntries opens the plain files and folders of a folder. Anything else
// cannot be written by way of its name, or ignores a read-only mount.
func openEntries(folder object) ([]object, error) {
	dir, err := unix.Openat(folder.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var entries []object
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.Getdents(dir, buf)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return entries, nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			fd, err := openat2(folder.fd, name, unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
			if errors.Is(err, unix.ENOENT) {
				continue // gone again
			}
			if err != nil {
				return nil, err
			}
			entry, err := inspect(fd, path.Join(folder.path, name))
			if err != nil {
				return nil, err
			}
			if kind := entry.mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
				unix.Close(fd)
				continue
			}
			if entries = append(entries, entry); len(entries) > maxFrozen {
				return entries, nil
			}
		}
	}
}
