package onhost

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/admission"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/release"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/slotcheck"
	"agentworks-deploy/internal/units"
)

// DeployArgs are the arguments of deploy and deploy-plan. Manifest is the hex
// sha256 of the manifest that the body begins with, Unnamed that its build gave it
// no id; ID, without a body, is a release that lies on the host. Ask stops a deploy
// where it knows what has to be sent.
type DeployArgs struct {
	ID       string `json:"id,omitempty"`
	Manifest string `json:"manifest,omitempty"`
	Unnamed  bool   `json:"unnamed,omitempty"`
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

func verbDeploy() Verb {
	return Verb{Role: remote.Service, Upload: true, Parting: true, Run: runDeploy}
}

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
	asked := release.Asked{ID: args.ID, Manifest: args.Manifest, Unnamed: args.Unnamed}
	if asked.ID != "" {
		d.Preflight.Admit = admitStored(&s.Request.Host, filepath.Join(d.Store.Layout.Releases(), asked.ID))
	}
	rows, answer, err := d.Run(ctx, want, asked, release.ReadPayload(s.Body))
	s.Data = DeployData{Answer: answer, SelfTest: len(rows)}
	return append(rows, d.SelfTestRows()...), err
}

// admitStored is the admission of a release that lies on the host, in dir: what the
// operator's half looks for in one that it sends is looked for here.
func admitStored(h *hosts.Host, dir string) func(ctx context.Context) []report.Row {
	return func(ctx context.Context) []report.Row {
		retired, err := admission.Retired(ctx, h, dir)
		if err != nil {
			retired = []report.Row{{State: report.Fail, Check: "go-live", Detail: fmt.Sprintf("search the release for retired tools: %v", err)}}
		}
		return append(site(h).Check(ctx), retired...)
	}
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
