// Package ssmtest is a stand-in for AWS Systems Manager in the tests: it speaks
// the service's JSON protocol (and CloudFormation's query protocol, for the
// lookup of a stack's output), has its limits, runs the scripts that it is sent
// through a function of the test, and plays its faults when told to. Only tests
// import it. An independent client and the service's published model judge it in
// this package's own tests.
package ssmtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The service's limits.
const (
	StdoutLimit = 24000
	StderrLimit = 8000
	ListLimit   = 2500
	maxIDs      = 50
	cutSuffix   = "---Output truncated---"
)

// Run executes one script on one instance: as root, under sh -c, with almost no
// environment. It stops when ctx ends, as a cancelled command does.
type Run func(ctx context.Context, instance, script string) (stdout, stderr string, code int)

// Server is the stand-in; see New.
type Server struct {
	Region    string
	AccessKey string

	mu        sync.Mutex
	run       Run
	stacks    map[string]map[string]string // stack → output → value
	faults    Faults
	instances map[string]map[string]string // id → tags
	order     []string
	commands  map[string]*command
	calls     map[string]int // by operation
	refused   map[string]int // of those, the ones a fault refused
	sent      []string       // scripts, in order
	running   sync.WaitGroup
}

// Faults are what the service does wrong or does not do. The zero value plays
// none.
type Faults struct {
	ThrottleEvery int             // each n-th call: ThrottlingException
	NotYet        int             // InvocationDoesNotExist, so many times for each invocation
	EmptyLists    int             // empty ListCommandInvocations, so many times for each command
	Expired       bool            // ExpiredTokenException
	Offline       map[string]bool // PingStatus ConnectionLost
	// Details forces a status detail ("DeliveryTimedOut", "ExecutionTimedOut",
	// "Terminated", "Undeliverable", "InvalidPlatform", "AccessDenied",
	// "Cancelled") on the next command of an instance; nothing is run but for
	// ExecutionTimedOut and Terminated, which run the script first.
	Details map[string]string
	// Stdout, where set, changes what a finished invocation shows.
	Stdout func(instance, out string) string
	// Script, where set, changes a script on its way to the instance.
	Script func(string) string
	// Stay keeps an instance's commands InProgress.
	Stay map[string]bool
	// LosePolls drops the connection of each status call, LoseSends that of each
	// send once the command was taken.
	LosePolls, LoseSends bool
}

type command struct {
	id, comment string
	ctx         context.Context
	cancel      context.CancelFunc
	begun       time.Time
	order       []string
	invocations map[string]*invocation
	emptyLists  int
}

type invocation struct {
	status, details string
	stdout, stderr  string
	code            int
	notYet          int
}

// New makes a server for region that runs scripts through run.
func New(region string, run Run) *Server {
	return &Server{
		Region: region, AccessKey: "AKIATEST" + rand.Text()[:8], run: run,
		instances: map[string]map[string]string{}, commands: map[string]*command{}, calls: map[string]int{}, refused: map[string]int{},
		stacks: map[string]map[string]string{},
	}
}

// Register adds an instance whose agent is online.
func (s *Server) Register(id string, tags map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances[id] = tags
	s.order = append(s.order, id)
}

// AddStack makes CloudFormation know a stack with these outputs.
func (s *Server) AddStack(name string, outputs map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stacks[name] = outputs
}

// Execute replaces what runs the scripts.
func (s *Server) Execute(run Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = run
}

// Play replaces the faults.
func (s *Server) Play(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Calls counts the calls of an operation, refused ones included; "" counts all.
func (s *Server) Calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op != "" {
		return s.calls[op]
	}
	n := 0
	for _, c := range s.calls {
		n += c
	}
	return n
}

// Refused counts the calls that a fault refused.
func (s *Server) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.refused {
		n += c
	}
	return n
}

// Scripts are the scripts sent so far.
func (s *Server) Scripts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.sent...)
}

// Wait waits until no script is running.
func (s *Server) Wait() { s.running.Wait() }

// ServeHTTP answers one API call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Target"), "AmazonSSM.") {
		s.cloudFormation(w, r)
		return
	}
	op := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSSM.")
	if code, message := s.admit(op, r); code != "" {
		refuse(w, code, message)
		return
	}
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(w, "SerializationException", err.Error())
		return
	}
	handlers := map[string]func(*http.Request, input) (any, *fault){
		"SendCommand": s.send, "GetCommandInvocation": s.get, "ListCommandInvocations": s.list,
		"CancelCommand": s.cancelCommand, "DescribeInstanceInformation": s.describe,
	}
	h, ok := handlers[op]
	if !ok {
		refuse(w, "UnknownOperationException", op)
		return
	}
	if s.losesPoll(op) {
		panic(http.ErrAbortHandler)
	}
	out, f := h(r, in)
	if s.losesSend(op) {
		panic(http.ErrAbortHandler)
	}
	if f != nil {
		refuse(w, f.code, f.message)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("X-Amzn-Requestid", rand.Text())
	_ = json.NewEncoder(w).Encode(out)
}

func (s *Server) losesPoll(op string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.LosePolls && (op == "GetCommandInvocation" || op == "ListCommandInvocations")
}

func (s *Server) losesSend(op string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.LoseSends && op == "SendCommand"
}

// admit counts the call, plays throttling and judges the signature's scope.
func (s *Server) admit(op string, r *http.Request) (code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	total := 0
	for _, n := range s.calls {
		total += n
	}
	if every := s.faults.ThrottleEvery; every > 0 && total%every == 0 {
		s.refused[op]++
		return "ThrottlingException", "Rate exceeded"
	}
	key, _ := scope(r)
	switch {
	case key == "":
		return "MissingAuthenticationTokenException", "Missing Authentication Token"
	case s.faults.Expired:
		return "ExpiredTokenException", "The security token included in the request is expired"
	case key != s.AccessKey:
		return "UnrecognizedClientException", "The security token included in the request is invalid."
	}
	return "", ""
}

// scope is the access key and region that a request is signed for (SigV4).
func scope(r *http.Request) (key, region string) {
	_, rest, ok := strings.Cut(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=")
	if !ok {
		return "", ""
	}
	credential, _, _ := strings.Cut(rest, ",")
	parts := strings.Split(credential, "/")
	if len(parts) != 5 {
		return "", ""
	}
	return parts[0], parts[2]
}

type fault struct{ code, message string }

func bad(code, format string, args ...any) (any, *fault) {
	return nil, &fault{code, fmt.Sprintf(format, args...)}
}

func refuse(w http.ResponseWriter, code, message string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("X-Amzn-Errortype", code)
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": message})
}

// input reads the fields of a request.
type input map[string]any

func (in input) text(key string) string { v, _ := in[key].(string); return v }

func (in input) number(key string, otherwise int) int {
	if v, ok := in[key].(float64); ok {
		return int(v)
	}
	return otherwise
}

func (in input) list(key string) []string { return textList(in[key]) }

func textList(v any) []string {
	items, _ := v.([]any)
	var out []string
	for _, i := range items {
		if t, ok := i.(string); ok {
			out = append(out, t)
		}
	}
	return out
}

func (in input) objects(key string) []input {
	items, _ := in[key].([]any)
	var out []input
	for _, i := range items {
		if o, ok := i.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

func (in input) object(key string) input { o, _ := in[key].(map[string]any); return o }
