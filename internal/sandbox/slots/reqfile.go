package slots

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// readRequestFile reads and removes the old form's request: a regular file in
// the slot's own run folder, reached without following a link (case C-06).
// Nothing is removed that was not read.
func readRequestFile(file, runDir string) (*Request, error) {
	rel, ok := strings.CutPrefix(file, runDir+"/")
	if !ok || !cleanAbs(file) {
		return nil, refusal(fmt.Errorf("request file %s is outside %s", file, runDir))
	}
	dir, err := unix.Open(runDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refusal(fmt.Errorf("open %s: %w", runDir, err))
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, rel, &unix.OpenHow{
		// Without O_NONBLOCK a FIFO would hold slotctl until somebody writes.
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, refusal(fmt.Errorf("open request file %s: %w", file, err))
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, refusal(fmt.Errorf("stat request file %s: %w", file, err))
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, refusal(fmt.Errorf("request file %s is not a regular file", file))
	}
	if st.Size > MaxRequest {
		return nil, refusal(fmt.Errorf("request file %s is longer than %d bytes", file, MaxRequest))
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxRequest+1))
	if err != nil {
		return nil, malformed(fmt.Errorf("read request file %s: %w", file, err))
	}
	if err := unix.Unlinkat(dir, rel, 0); err != nil {
		return nil, refusal(fmt.Errorf("remove request file %s: %w", file, err))
	}
	req, err := ReadRequest(bytes.NewReader(data))
	if err != nil {
		return nil, malformed(err)
	}
	if req.Channel {
		return nil, refusal(errors.New("a request file cannot open a channel"))
	}
	return req, nil
}
