// Package remote reaches hosts: one Channel a way (local, lab, ssh, ssm). A
// channel runs one program on the host, without a shell, and carries its
// streams and exit code; it knows nothing of verbs or rows. It may import hosts,
// lab and report; slot programs must never import it.
package remote

import (
	"context"
	"io"
	"time"
)

// Role is the account a channel works as.
type Role string

// The two roles of a host's channels.
const (
	Admin   Role = "admin"   // root
	Service Role = "service" // the product's service account
)

// Cmd is one program to run on the host. Argv[0] is an absolute path. Nil
// streams are empty or discarded. Stdin stays open to the program until its
// reader ends, so that the program can notice a lost caller; Run does not wait
// for that reader.
type Cmd struct {
	Argv           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// LostError says that a program was started, or may have been, and that nobody
// here knows how far it came.
type LostError struct{ Err error }

func (e *LostError) Error() string { return e.Err.Error() }
func (e *LostError) Unwrap() error { return e.Err }

// Channel runs programs on one host as one account. Run returns the program's
// exit code; err is set only when the program could not be started or its end
// could not be seen (a LostError), and carries exit code 3 (or 2 where it is configuration).
// When ctx ends, Run closes the program's standard input, waits for it a little
// longer than the half's 5 s, and returns ctx's error.
type Channel interface {
	Run(ctx context.Context, cmd Cmd) (exit int, err error)
	// String names host, way and account for messages: "lab demo as vs".
	String() string
	Close() error
}

// Narrow is what a channel also implements that has no streams: standard input
// goes ahead as a whole and ends, and standard output is cut after a number of
// bytes. Answers come packed, and in pages where they do not fit. InputLimit is
// how many bytes of standard input fit beside the words argv.
type Narrow interface {
	OutputLimit() int
	InputLimit(argv []string) int
}

// Depot is what a channel also implements that can lay a file down where the
// host can fetch it. Put returns an address that reads it for a while, and what
// takes it away again; that may be set beside an error, where nobody knows whether
// the file lies there. Where the host file names no place for files, its error
// says which key would.
type Depot interface {
	Put(ctx context.Context, name string, file io.Reader, size int64) (url string, remove func(context.Context) error, err error)
}

// Lookup is what a channel also implements that looks its machine up by a name.
// Found says what that led to, once it has; "" where nothing was looked up.
type Lookup interface{ Found() string }

// Distant is what a channel also implements whose far end may not notice that
// the connection was cut: after Patience without a byte it counts as cut.
type Distant interface{ Patience() time.Duration }
