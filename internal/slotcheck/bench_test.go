package slotcheck_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"agentworks-deploy/internal/lab/labtest"
)

// BenchmarkFiftySlots audits 50 assigned slots at level basic, and the same
// chains one after another on one CPU, whose time is what the chains cost. The
// promise: the audit takes at most 1.3 times that cost divided by the CPUs.
func BenchmarkFiftySlots(b *testing.B) {
	l := labtest.New(b, labtest.Reference())
	o := operator{Lab: l, bin: labtest.Binaries(b), hosts: "../../hosts", host: "lab"}
	o.must(b, "--set", "slots.count=51", "provision", "lab")
	for n := 1; n <= 50; n++ {
		o.must(b, "slots", "assign", "lab", fmt.Sprintf("u%d", n))
	}
	o.must(b, "--set", "slots.count=51", "deploy", "lab")
	o.sh(b, `cd /srv/vs/data/docs/_users; for u in u*; do
	mkdir -p $u/Chats/Work/projects/p $u/Chats/Code/projects/p; chown -R vs:$(stat -c %G $u) $u; chmod -R 2770 $u; done`)
	audit := []string{"/srv/vs/current/bin/agentworks-deploy", "slotcheck", "--local", "--quiet", "--product", "vs", "--app", "/srv/vs"}
	run := func(before ...string) time.Duration {
		began := time.Now()
		if stdout, stderr, code := l.Run(b, labtest.Cmd{User: "vs", Argv: append(before, audit...), Env: []string{"PATH=/usr/bin:/bin"}}); code != 0 {
			b.Fatalf("exit %d\n%s%s", code, stdout, stderr)
		}
		return time.Since(began)
	}
	var together, oneByOne time.Duration
	for b.Loop() {
		oneByOne += run("/usr/bin/taskset", "-c", "0")
		together += run()
	}
	b.ReportMetric(together.Seconds()/float64(b.N), "s/audit")
	b.ReportMetric(oneByOne.Seconds()/float64(b.N), "s/one-by-one")
	b.ReportMetric(together.Seconds()*float64(runtime.NumCPU())/oneByOne.Seconds(), "of-cost")
}
