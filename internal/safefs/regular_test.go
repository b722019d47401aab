package safefs

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadFileNeverWaits(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("text"), 0o600), os.Symlink("file", at("link")), os.Symlink("/dev/zero", at("device")),
		unix.Mkfifo(at("fifo"), 0o600), unix.Mkfifo(at("written"), 0o600), os.Mkdir(at("folder"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	writer, err := os.OpenFile(at("written"), os.O_RDWR, 0) // one who never writes
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for _, name := range []string{"file", "link"} {
		if data, err := ReadFile(at(name), 4); err != nil || string(data) != "text" {
			t.Errorf("%s: %q %v", name, data, err)
		}
		if data, err := ReadFile(at(name), 3); err == nil {
			t.Errorf("%s beyond its limit: %q", name, data)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"fifo", "written", "device", "folder"} {
		if _, err := ReadFile(at(name), 1<<20); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
		if f, err := OpenIn(root, name); err == nil {
			t.Errorf("%s is opened", f.Name())
		}
	}
	if _, err := ReadFile(at("socket"), 1); err == nil {
		t.Error("a socket is read")
	}
	if _, err := ReadFile(at("none"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

func TestOpenFolderFollowsLinksToFoldersOnly(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{os.Mkdir(at("folder"), 0o700), os.WriteFile(at("folder/file"), nil, 0o600), os.Symlink("folder", at("link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	folder, err := OpenFolder(at("link"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if names, err := folder.Names(); err != nil || len(names) != 1 || names[0] != "file" {
		t.Errorf("%q %v", names, err)
	}
	if d, err := OpenFolder(at("folder/file")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file is opened as the folder %v: %v", d, err)
	}
	if _, err := OpenFolder(at("none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}
