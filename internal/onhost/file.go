package onhost

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"agentworks-deploy/internal/report"
)

// File is a file on the operator's side as it was when it was measured. What
// arrives on a host is compared with that.
type File struct {
	Path string
	name string // what a person knows it by
	sum  string // sha256 in hex
	size int64
}

// NewFile measures the file at path, which is known by the last word of that.
func NewFile(path string) (File, error) { return NamedFile(path, filepath.Base(path)) }

// NamedFile is NewFile of a file that a person knows by another name.
func NamedFile(path, name string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, report.Coded(report.ExitUnfinished, "read what is to be sent: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return File{}, report.Coded(report.ExitUnfinished, "read what is to be sent: %w", err)
	}
	return File{Path: path, name: name, sum: fmt.Sprintf("%x", h.Sum(nil)), size: n}, nil
}

// Name is what a person knows the file by.
func (f File) Name() string { return f.name }

// SHA256 is the file's digest in hex.
func (f File) SHA256() string { return f.sum }

// Size is its length in bytes.
func (f File) Size() int64 { return f.size }

// Program is the operator's own program, which is sent where it is missing: a
// build for the host's system.
type Program struct {
	File
	Version string
}

// NewProgram measures the program at path.
func NewProgram(path, version string) (*Program, error) {
	f, err := NewFile(path)
	if err != nil {
		return nil, err
	}
	return &Program{f, version}, nil
}
