package onhost

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"agentworks-deploy/internal/remote"
)

// A verb with Stream passes the output of a program through while it runs: ahead
// of the answer come frames, each a zero byte, a byte that names the stream, a
// 4-byte big-endian length and the payload. Neither an answer nor what a login
// shell prints begins with a zero byte, so whatever is no frame is the answer's.
const (
	frameMark   = 0
	streamOut   = 'o'
	streamErr   = 'e'
	frameHeader = 6
)

// frames writes streams until it is ended; what comes later is dropped, since
// the answer must be the last.
type frames struct {
	mu    sync.Mutex
	w     io.Writer
	ended bool
}

func (f *frames) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

func (f *frames) stream(name byte) io.Writer { return &stream{f, name} }

type stream struct {
	*frames
	name byte
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for done := 0; done < len(p) && !s.ended; {
		n := min(len(p)-done, maxFrame)
		frame := append(make([]byte, 0, frameHeader+n), frameMark, s.name)
		frame = binary.BigEndian.AppendUint32(frame, uint32(n))
		if _, err := s.w.Write(append(frame, p[done:done+n]...)); err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

// maxSpool bounds what a program may print where that travels with the answer.
const maxSpool = 4 << 20

// spool keeps frames for the answer, with as much of their payload as maxSpool;
// neighbours of one stream become one frame. A program that prints more finds its
// pipe closed, and full says why.
type spool struct {
	bytes.Buffer
	last int // where the last frame begins
	held int // bytes of payload
	full error
}

// Write takes one frame.
func (s *spool) Write(p []byte) (int, error) {
	payload := p[frameHeader:]
	payload = payload[:min(len(payload), maxSpool-s.held)]
	if len(payload) > 0 {
		s.add(p[1], payload)
	}
	if frameHeader+len(payload) < len(p) {
		s.full = fmt.Errorf("the command printed more than %d MiB, which is all that comes back over a channel without a stream; it was stopped", maxSpool>>20)
		return frameHeader + len(payload), s.full
	}
	return len(p), nil
}

func (s *spool) add(name byte, payload []byte) {
	s.held += len(payload)
	if s.Len() == 0 || s.Bytes()[s.last+1] != name {
		s.last = s.Len()
		s.Buffer.Write([]byte{frameMark, name, 0, 0, 0, 0})
	}
	s.Buffer.Write(payload)
	binary.BigEndian.PutUint32(s.Bytes()[s.last+2:], uint32(s.Len()-s.last-frameHeader))
}

// passing is a channel that takes the frames out of a half's standard output.
type passing struct {
	remote.Channel
	stdout, stderr io.Writer
}

func (p passing) Run(ctx context.Context, cmd remote.Cmd) (int, error) {
	cmd.Stdout = &demux{stdout: p.stdout, stderr: p.stderr, answer: cmd.Stdout}
	return p.Channel.Run(ctx, cmd)
}

// demux takes the half's standard output apart: frames go to the streams they
// name, everything else to answer.
type demux struct {
	stdout, stderr io.Writer
	answer         io.Writer
	head           []byte // of a frame that is not complete yet
	left           int    // of the current frame's payload
	to             io.Writer
}

func (d *demux) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n, err := d.step(p)
		if err != nil {
			return total - len(p), err
		}
		p = p[n:]
	}
	return total, nil
}

// step takes the next piece of p, at least one byte.
func (d *demux) step(p []byte) (int, error) {
	switch {
	case d.left > 0:
		n := min(d.left, len(p))
		d.left -= n
		return d.to.Write(p[:n])
	case len(d.head) == 0 && p[0] != frameMark:
		n := 1
		for n < len(p) && p[n] != frameMark {
			n++
		}
		return d.answer.Write(p[:n])
	}
	d.head = append(d.head, p[0])
	if len(d.head) == frameHeader {
		d.to = d.answer // an unknown stream spoils the answer rather than being lost
		switch d.head[1] {
		case streamOut:
			d.to = d.stdout
		case streamErr:
			d.to = d.stderr
		}
		d.left = int(binary.BigEndian.Uint32(d.head[2:]))
		d.head = d.head[:0]
	}
	return 1, nil
}
