package fleet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// Many says how a verb is run on several hosts.
type Many struct {
	Parallel int  // hosts at once; at least 1
	Canary   bool // the first host goes alone, and its failure ends the run
}

// Result is what came of a verb on one host. Skipped means that the host was
// never asked.
type Result[T any] struct {
	Host    *hosts.Host
	Value   T
	Exit    int
	Err     error
	Skipped bool
}

// Each runs a verb on all hosts and hands the results on in their order, each as
// soon as all before it are there. A host that was refused for its words (2), a
// failed canary, and the end of ctx keep the rest from being asked. It returns
// the one exit code; see report.Worst.
func Each[T any](ctx context.Context, m Many, list []*hosts.Host, run func(context.Context, *hosts.Host) (T, int, error), done func(Result[T])) int {
	results := make([]Result[T], len(list))
	ready := make([]chan struct{}, len(list))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	stopped := make(chan struct{})
	var once sync.Once
	stop := func() { once.Do(func() { close(stopped) }) }
	one := func(i int) {
		defer close(ready[i])
		r := Result[T]{Host: list[i]}
		select {
		case <-stopped:
			r.Skipped = true
		case <-ctx.Done():
			r.Skipped = true
		default:
			r.Value, r.Exit, r.Err = run(ctx, list[i])
		}
		if r.Exit == report.ExitUsage || m.Canary && i == 0 && r.Exit != report.ExitOK {
			stop()
		}
		results[i] = r
	}
	go func() {
		from := 0
		if m.Canary && len(list) > 0 {
			one(0)
			from = 1
		}
		slots := make(chan struct{}, max(m.Parallel, 1))
		for i := from; i < len(list); i++ {
			slots <- struct{}{}
			go func() {
				defer func() { <-slots }()
				one(i)
			}()
		}
	}()
	var codes []int
	for i := range list {
		<-ready[i]
		if !results[i].Skipped {
			codes = append(codes, results[i].Exit)
		}
		done(results[i])
	}
	if ctx.Err() != nil {
		codes = append(codes, report.ExitInterrupted)
	}
	return report.Worst(codes...)
}

// On is f for one of several hosts: its progress lines begin with the host's
// name. Close it as well.
func (f *Fleet) On(host *hosts.Host) *Fleet {
	return &Fleet{Program: f.Program, Log: &prefixed{w: f.Log, prefix: host.Name + ": "}, Getenv: f.Getenv}
}

// prefixed puts a word before each line and passes whole lines on.
type prefixed struct {
	mu     sync.Mutex
	w      io.Writer
	prefix string
	line   []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = append(p.line, b...)
	for {
		i := bytes.IndexByte(p.line, '\n')
		if i < 0 {
			return len(b), nil
		}
		if _, err := fmt.Fprintf(p.w, "%s%s\n", p.prefix, p.line[:i]); err != nil {
			return len(b), err
		}
		p.line = p.line[i+1:]
	}
}
