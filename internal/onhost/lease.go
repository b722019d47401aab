package onhost

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// follow reads what comes after the request: the body's frames, which it hands
// on as a stream, and then the lease. It calls gone once, when the stream ends
// or, where beats were promised, stays silent: the caller never ends it before
// it has the answer. Without a lease the end of the stream means nothing.
func follow(ctx context.Context, r *bufio.Reader, in io.Reader, req Request, gone func(error)) io.Reader {
	payload, sink := io.Pipe()
	go func() {
		if req.Body {
			err := copyFrames(sink, r)
			if err != nil {
				sink.CloseWithError(err)
				gone(err)
				return
			}
		}
		sink.Close()
		if req.NoLease {
			return
		}
		lease := io.Reader(r)
		if req.Beat > 0 {
			alive := newPulse(time.Duration(req.Beat)*time.Second, func() { gone(errors.New("nothing came from it any more")) })
			defer alive.Stop()
			lease = io.TeeReader(r, alive)
		}
		if _, err := io.Copy(io.Discard, lease); err != nil {
			gone(err)
			return
		}
		gone(io.EOF)
	}()
	if file, ok := in.(*os.File); ok && !req.NoLease {
		go watchHangup(ctx, file, func() { gone(errors.New("its end of the stream is closed")) })
	}
	return payload
}

// pulse calls lost when it is not written to for a while.
type pulse struct {
	*time.Timer
	wait time.Duration
}

func newPulse(wait time.Duration, lost func()) *pulse {
	return &pulse{time.AfterFunc(wait, lost), wait}
}

func (p *pulse) Write(b []byte) (int, error) {
	p.Reset(p.wait)
	return len(b), nil
}

// watchHangup sees that the caller is gone while unread frames are still in the
// pipe, which the reader would only notice behind them.
func watchHangup(ctx context.Context, file *os.File, gone func()) {
	conn, err := file.SyscallConn()
	if err != nil {
		return
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var events int16
		err := conn.Control(func(fd uintptr) {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			if n, err := unix.Poll(poll, 0); err == nil && n > 0 {
				events = poll[0].Revents
			}
		})
		if err != nil {
			return
		}
		if events&(unix.POLLHUP|unix.POLLRDHUP|unix.POLLERR) != 0 {
			gone()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
