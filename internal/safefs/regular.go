package safefs

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OpenFile opens the regular file at p for reading, through whatever links lead
// there: for files that a service or a person owns, read as that account. It
// never waits, as an open of a FIFO would; what is no regular file is refused
// with ErrNotRegular. Root uses Dir.OpenRegular.
func OpenFile(p string) (*os.File, error) {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// OpenFolder opens the folder at p through whatever links lead there, as
// OpenFile opens a file. Root uses OpenDir.
func OpenFolder(p string) (*Dir, error) {
	fd, err := openat2(unix.AT_FDCWD, p, unix.O_RDONLY|unix.O_DIRECTORY, 0, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	return newDir(fd, p), nil
}

// OpenIn is OpenFile for rel below root.
func OpenIn(root *os.Root, rel string) (*os.File, error) {
	f, err := root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// regular gives f back, or closes it where it is no regular file.
func regular(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: ErrNotRegular}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile is the content of OpenFile(p); more than limit bytes are an error.
func ReadFile(p string, limit int64) ([]byte, error) {
	f, err := OpenFile(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &fs.PathError{Op: "read", Path: p, Err: fmt.Errorf("longer than %d bytes", limit)}
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}
