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
