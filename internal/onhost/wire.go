package onhost

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"agentworks-deploy/internal/report"
)

// Bounds of what is read from the other side.
const (
	maxRequest = 1 << 20
	maxFrame   = 1 << 20
	maxAnswer  = 64 << 20
)

// trailerMark begins the last line of an answer.
const trailerMark = "agentworks-deploy-answer"

// readRequest reads the request line and nothing after it.
func readRequest(r *bufio.Reader) (Request, error) {
	var req Request
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxRequest:
			return req, fmt.Errorf("the request is longer than %d bytes", maxRequest)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return req, fmt.Errorf("the request ended before its line did: %w", err)
		}
		break
	}
	if err := json.Unmarshal(line, &req); err != nil {
		return req, fmt.Errorf("the request is not readable: %w", err)
	}
	if req.V != Protocol {
		return req, fmt.Errorf("the request speaks protocol %d, this half speaks %d", req.V, Protocol)
	}
	return req, nil
}

// requestLine is req as readRequest reads it.
func requestLine(req Request) ([]byte, error) {
	line, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	if len(line) >= maxRequest {
		return nil, fmt.Errorf("the request has %d bytes, more than %d", len(line), maxRequest)
	}
	return append(line, '\n'), nil
}

// framer turns a stream into frames: 4-byte big-endian length and payload, a
// zero length at the end.
type framer struct {
	body  io.Reader
	frame []byte // what of the current frame is not yet read
	done  bool
	err   error // of the body; the stream then stops without the end frame
	// failed, which has room for one, gets err as well: the reader of the frames
	// may be another goroutine.
	failed chan error
}

func (f *framer) Read(p []byte) (int, error) {
	for len(f.frame) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		if f.done {
			return 0, io.EOF
		}
		f.next()
	}
	n := copy(p, f.frame)
	f.frame = f.frame[n:]
	return n, nil
}

func (f *framer) next() {
	buf := make([]byte, 4+64<<10)
	n, err := io.ReadAtLeast(f.body, buf[4:], 1)
	switch {
	case err == io.EOF:
		f.done = true
	case err != nil:
		f.err = err
		f.failed <- err
		return
	}
	binary.BigEndian.PutUint32(buf, uint32(n))
	f.frame = buf[:4+n]
}

// copyFrames writes the payload of the frames in r to w, up to the end frame.
// When w takes no more (the verb has ended) it reads on and drops them.
func copyFrames(w io.Writer, r io.Reader) error {
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return fmt.Errorf("the body ended before its end frame: %w", noEOF(err))
		}
		n := binary.BigEndian.Uint32(head[:])
		if n == 0 {
			return nil
		}
		if n > maxFrame {
			return fmt.Errorf("a frame of %d bytes is longer than %d", n, maxFrame)
		}
		frame := io.LimitReader(r, int64(n))
		copied, err := io.Copy(w, frame)
		if err != nil {
			rest, _ := io.Copy(io.Discard, frame)
			copied, w = copied+rest, io.Discard
		}
		if copied < int64(n) && w != io.Discard {
			return fmt.Errorf("the body ended within a frame: %w", io.ErrUnexpectedEOF)
		}
	}
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeAnswer writes e and its trailer, or where both together have more than
// limit bytes (and limit is not 0) what keep, which stores the line, is called.
func writeAnswer(w io.Writer, e Envelope, encoding string, limit int, keep func(line []byte) (name string, err error)) error {
	if e.Rows == nil {
		e.Rows = []report.Row{}
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if encoding == Packed {
		if line, err = pack(line); err != nil {
			return err
		}
	}
	trailer := fmt.Sprintf("%s %d %x\n", trailerMark, len(line), sha256.Sum256(line))
	if limit > 0 && len(line)+1+len(trailer) > limit {
		name, err := keep(line)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, keptMark+" "+name+"\n"+trailer)
		return err
	}
	_, err = w.Write(append(line, "\n"+trailer...))
	return err
}

var errNoTrailer = errors.New("the answer has no trailer line: it was cut")

// found is an answer as the end of an output describes it.
type found struct {
	length int
	sum    string
	line   []byte // nil where the answer was kept
	kept   string // name of the kept answer, or ""
}

// findAnswer looks for the answer at the end of output: a trailer as its last
// line, and before it as many bytes as the trailer says, or the line that names
// a kept answer. What a login shell printed ahead of it does not matter.
func findAnswer(output []byte) (found, error) {
	var f found
	if len(output) > maxAnswer {
		return f, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	if !bytes.HasSuffix(output, []byte("\n")) {
		return f, errNoTrailer
	}
	output = output[:len(output)-1]
	at := bytes.LastIndexByte(output, '\n')
	if at < 0 {
		return f, errNoTrailer
	}
	trailer, output := string(output[at+1:]), output[:at]
	if n, _ := fmt.Sscanf(trailer, trailerMark+" %d %64s", &f.length, &f.sum); n != 2 || trailer != fmt.Sprintf("%s %d %s", trailerMark, f.length, f.sum) {
		return f, errNoTrailer
	}
	last := output[bytes.LastIndexByte(output, '\n')+1:]
	if name, ok := strings.CutPrefix(string(last), keptMark+" "); ok {
		if !keptName(name) || f.length < 1 || f.length > maxAnswer {
			return f, errors.New("the line that names a kept answer arrived changed")
		}
		f.kept = name
		return f, nil
	}
	if f.length < 0 || f.length > len(output) {
		return f, fmt.Errorf("the answer was cut: %d bytes of %d came", len(output), f.length)
	}
	f.line = output[len(output)-f.length:]
	return f, nil
}

// read proves the answer's line and takes it apart.
func (f found) read(encoding string) (Envelope, error) {
	var e Envelope
	line := f.line
	if len(line) != f.length {
		return e, fmt.Errorf("the answer was cut: %d bytes of %d came", len(line), f.length)
	}
	if fmt.Sprintf("%x", sha256.Sum256(line)) != f.sum {
		return e, errors.New("the answer arrived changed: its sha256 is not the trailer's")
	}
	if encoding == Packed {
		var err error
		if line, err = unpack(line); err != nil {
			return e, fmt.Errorf("unpack the answer: %w", err)
		}
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("read the answer: %w", err)
	}
	if e.V != Protocol {
		return e, fmt.Errorf("the answer speaks protocol %d, this program speaks %d", e.V, Protocol)
	}
	return e, nil
}

func pack(line []byte) ([]byte, error) {
	var b bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &b)
	z := gzip.NewWriter(text)
	_, err := z.Write(line)
	if err = errors.Join(err, z.Close(), text.Close()); err != nil {
		return nil, fmt.Errorf("pack the answer: %w", err)
	}
	return b.Bytes(), nil
}

func unpack(line []byte) ([]byte, error) {
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(string(line))))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxAnswer+1))
	if err == nil && len(plain) > maxAnswer {
		err = fmt.Errorf("it is longer than %d bytes", maxAnswer)
	}
	return plain, err
}
