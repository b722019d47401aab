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
// on as a stream, and then the lease. It calls gone once, when the stream ends:
// the caller never ends it before it has the answer.
func follow(ctx context.Context, r *bufio.Reader, in io.Reader, body bool, gone func(error)) io.Reader {
	payload, sink := io.Pipe()
	go func() {
		if body {
			err := copyFrames(sink, r)
			if err != nil {
				sink.CloseWithError(err)
				gone(err)
				return
			}
		}
		sink.Close()
		if _, err := io.Copy(io.Discard, r); err != nil {
			gone(err)
			return
		}
		gone(io.EOF)
	}()
	if file, ok := in.(*os.File); ok {
		go watchHangup(ctx, file, func() { gone(errors.New("its end of the stream is closed")) })
	}
	return payload
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
