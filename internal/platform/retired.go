package platform

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Retired gives those of tools whose name stands in a file of the release, in
// its path or its bytes.
func Retired(ctx context.Context, release string, tools []string) ([]string, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	missing := map[string]bool{}
	for _, t := range tools {
		missing[t] = true
	}
	err := filepath.WalkDir(release, func(file string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		for t := range missing {
			if strings.Contains(d.Name(), t) {
				delete(missing, t)
			}
		}
		if len(missing) == 0 {
			return fs.SkipAll
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return mentions(file, missing)
	})
	var found []string
	for _, t := range tools {
		if !missing[t] {
			found = append(found, t)
		}
	}
	return found, err
}

// mentions takes out of missing what file's bytes hold. It reads in pieces that
// overlap by the longest name.
func mentions(file string, missing map[string]bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	overlap := 0
	for t := range missing {
		overlap = max(overlap, len(t)-1)
	}
	buf := make([]byte, overlap+1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(f, buf[kept:])
		piece := buf[:kept+n]
		for t := range missing {
			if bytes.Contains(piece, []byte(t)) {
				delete(missing, t)
			}
		}
		if err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil
			}
			return err
		}
		kept = copy(buf, piece[len(piece)-overlap:])
	}
}
