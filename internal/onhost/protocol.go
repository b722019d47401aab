// Package onhost holds the verbs that run on the host and the protocol that
// both halves speak. The operator's side sends one request line and reads one
// envelope; the host's side does the work through provision, slottable,
// release and slotcheck. See "The on-host protocol" in docs/architecture.md.
package onhost

import (
	"encoding/json"
	"errors"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// Protocol is the version of requests, frames and answers. Halves of different
// protocols do not talk to each other.
const Protocol = 1

// Request is the first line on the half's standard input. Body says that frames
// follow it (4-byte big-endian length and payload, a zero length ends them);
// after that the stream stays open as the caller's lease: its end means that
// the caller is gone and the half stops within 5 s. NoLease says that there is
// none, since the channel has no stream, and Beat that bytes keep coming on it.
type Request struct {
	V       int             `json:"v"`
	Version string          `json:"version"` // of the operator's half
	Verb    string          `json:"verb"`
	Host    hosts.Host      `json:"host"`
	Args    json.RawMessage `json:"args,omitempty"`
	Plan    bool            `json:"plan,omitempty"`
	Body    bool            `json:"body,omitempty"`
	// Encoding of the answer line: "" for plain JSON, Packed for channels that
	// cut long output.
	Encoding string `json:"encoding,omitempty"`
	// AnswerLimit, where it is set, is how many bytes of an answer come through;
	// a longer one is kept on the host and fetched in pages.
	AnswerLimit int  `json:"answer_limit,omitempty"`
	NoLease     bool `json:"no_lease,omitempty"`
	// Beat, where it is set, is after how many seconds without a byte the caller
	// counts as lost: a connection that was cut does not end the stream.
	Beat int `json:"beat,omitempty"`
}

// Packed is the answer line as base64 of its gzip form.
const Packed = "gzip+base64"

// Envelope is the half's answer on standard output: one JSON line and one
// trailer line with its length and sha256. Without a right trailer there is no
// answer (exit 3). Error is set where the verb could not finish; Exit is then
// the code it carries.
type Envelope struct {
	V       int             `json:"v"`
	Version string          `json:"version"` // of the on-host half
	Verb    string          `json:"verb"`
	Rows    []report.Row    `json:"rows"`
	Data    json.RawMessage `json:"data,omitempty"`
	// Output are the frames of a verb with Stream whose caller has no stream.
	Output []byte `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
	Exit   int    `json:"exit"`
}

// failure is why the verb could not finish, with its code; nil where it did.
func (e Envelope) failure() error {
	if e.Error == "" {
		return nil
	}
	return &report.CodedError{Code: e.Exit, Err: errors.New(e.Error)}
}
