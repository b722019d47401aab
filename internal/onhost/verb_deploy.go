package onhost

import (
	"context"
	"runtime"
	"time"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/release"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/slotcheck"
	"agentworks-deploy/internal/units"
)

// DeployArgs are the arguments of deploy and deploy-plan. Manifest is the hex
// sha256 of the manifest that the body begins with. Ask stops a deploy where it
// knows what has to be sent.
type DeployArgs struct {
	Manifest string `json:"manifest"`
	Ask      bool   `json:"ask,omitempty"`
}

// DeployData is what deploy and deploy-plan answer besides rows: of those, the
// ones from SelfTest on are the self-test's.
type DeployData struct {
	release.Answer
	SelfTest int `json:"self_test"`
}

// heartbeat is how often a long step says that it is still at it.
const heartbeat = 5 * time.Second

func verbDeploy() Verb { return Verb{Role: remote.Service, Upload: true, Run: runDeploy} }

// verbDeployPlan uploads nothing, since a plan changes nothing: it runs with
// what is installed.
func verbDeployPlan() Verb { return Verb{Role: remote.Service, Run: runDeploy} }

func runDeploy(ctx context.Context, s *Session) ([]report.Row, error) {
	var args DeployArgs
	if err := s.Args(&args); err != nil {
		return nil, err
	}
	want := release.Doing
	switch {
	case s.Request.Plan || s.Request.Verb == "deploy-plan":
		want = release.Planning
	case args.Ask:
		want = release.Asking
	}
	d := newDeploy(s)
	d.Steps.Quiet = want == release.Asking // the same steps come again
	rows, answer, err := d.Run(ctx, want, args.Manifest, release.ReadPayload(s.Body))
	s.Data = DeployData{Answer: answer, SelfTest: len(rows)}
	return append(rows, d.SelfTestRows()...), err
}

// newDeploy is a deploy on the machine this process runs on.
func newDeploy(s *Session) *release.Deploy {
	h := &s.Request.Host
	store := release.NewStore(h)
	manager := units.NewManager(h.Release.Manager, store.UID)
	return &release.Deploy{
		Store:   store,
		Manager: manager,
		Preflight: &release.Preflight{
			Host: h, Store: store, Manager: manager,
			Getent: accounts.HostGetent, Sudo: "/usr/bin/sudo", Linger: "/var/lib/systemd/linger",
			Admit: site(h).Check,
		},
		Health: &release.Health{
			Manager: manager, Units: release.Units(h), URLs: h.Release.Health,
			Deadline: time.Minute, Every: time.Second, Samples: 3, Log: s.Log,
		},
		Steps: &release.Steps{Log: s.Log, Every: heartbeat},
		Log:   s.Log,
		Arch:  runtime.GOARCH,
		Glibc: func() (string, error) { return release.HostGlibc("/") },
		SelfTest: func(ctx context.Context) ([]report.Row, error) {
			answer, err := slotcheck.Run(ctx, slotcheck.ThisHost(h.Release.Manager), slotcheck.Ask{Host: *h, Level: slotcheck.Full})
			return answer.Rows, err
		},
	}
}
