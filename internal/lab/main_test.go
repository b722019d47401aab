package lab_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/lab"
	"agentworks-deploy/internal/lab/labtest"
)

// The test binary is also the programs under test that have to be killed, or to
// run in a mount namespace of their own: up CACHE LABS NAME, and on-overlay DIR
// CACHE NAME.
func TestMain(m *testing.M) {
	var err error
	switch verb := os.Args[min(1, len(os.Args)-1)]; verb {
	case "up":
		err = up(lab.Store{Cache: os.Args[2], Labs: os.Args[3]}, os.Args[4])
	case "on-overlay":
		err = onOverlay(os.Args[2], os.Args[3], os.Args[4])
	default:
		os.Exit(labtest.Main(m))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func up(s lab.Store, name string) error {
	l, err := s.Lab(name)
	if err != nil {
		return err
	}
	_, err = l.Up(context.Background(), options())
	return err
}

func options() lab.UpOptions {
	return lab.UpOptions{Init: []string{"/proc/self/exe", "lab-init"}, Reference: true, Progress: func(text string) { fmt.Fprintln(os.Stderr, text) }}
}

// onOverlay makes a lab where the machine's root would be an overlay, as it is
// in a container, and looks at it.
func onOverlay(dir, cache, name string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	layers := ""
	for _, layer := range []string{"lower", "upper", "work", "merged"} {
		path := filepath.Join(dir, layer)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		if layer != "merged" {
			layers += "," + layer + "dir=" + path
		}
	}
	labs := filepath.Join(dir, "merged")
	if err := unix.Mount("overlay", labs, "overlay", 0, layers[1:]); err != nil {
		return err
	}
	s := lab.Store{Cache: cache, Labs: labs}
	if err := up(s, name); err != nil {
		return err
	}
	l, err := s.Lab(name)
	if err != nil {
		return err
	}
	var root unix.Statfs_t
	err = l.In(func() error {
		if _, err := os.Stat("/srv/vs/.env"); err != nil {
			return err
		}
		return unix.Statfs("/etc", &root)
	})
	if err != nil {
		return err
	}
	fmt.Printf("machine overlay: %t, layers in the lab's folder: %t\n", root.Type == unix.OVERLAYFS_SUPER_MAGIC, exists(filepath.Join(l.Dir(), "root/etc/passwd")))
	_, err = l.Reset(context.Background())
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
