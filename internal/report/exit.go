package report

import (
	"errors"
	"fmt"
)

// Exit codes of every command; the table of docs/architecture.md.
const (
	ExitOK          = 0
	ExitState       = 1   // right words, wrong state
	ExitUsage       = 2   // wrong words: id, slot, flag, host file, unknown host, not root
	ExitUnfinished  = 3   // could not look or finish
	ExitLocked      = 4   // another run holds the lock
	ExitInterrupted = 130 // stopped by the person
)

// Worst is the one exit code of several hosts: 130, 2, 4, 3, 1, 0. A code that is
// none of these is graver than 1 and 0, since nobody knows what it means.
func Worst(codes ...int) int {
	rank := func(code int) int {
		switch code {
		case ExitOK:
			return 0
		case ExitState:
			return 1
		case ExitUnfinished:
			return 3
		case ExitLocked:
			return 4
		case ExitUsage:
			return 5
		case ExitInterrupted:
			return 6
		}
		return 2
	}
	worst := ExitOK
	for _, code := range codes {
		if rank(code) > rank(worst) {
			worst = code
		}
	}
	return worst
}

// CodedError carries the exit code a failure ends with.
type CodedError struct {
	Code int
	Err  error
}

func (e *CodedError) Error() string { return e.Err.Error() }
func (e *CodedError) Unwrap() error { return e.Err }

// Coded wraps a formatted error (with %w) so that it ends in code.
func Coded(code int, format string, args ...any) error {
	return &CodedError{Code: code, Err: fmt.Errorf(format, args...)}
}

// CodeOf is the exit code of err: 0 for nil, the code it carries, else 3,
// because an unexplained failure is work that could not be finished.
func CodeOf(err error) int {
	if err == nil {
		return ExitOK
	}
	var c *CodedError
	if errors.As(err, &c) {
		return c.Code
	}
	return ExitUnfinished
}
