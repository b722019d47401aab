package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/release"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Deploy is one deploy as a person asks for it.
type Deploy struct {
	Release   string // a folder, or a tar of one, plain or gzip; or the id of a release on the host
	Programs  string // the folder with the runtime programs
	Plan      bool
	Provision bool // provision the host first, over its admin channel
	Strict    bool // a WARN of the self-test or of the secrets' admission fails as well
}

// Deployed is what came of it. The rows are true also beside an error.
type Deployed struct {
	Release   string
	Provision []report.Row
	Steps     []report.Row
	SelfTest  []report.Row // with the secrets' admission; empty where the deploy did not come so far
	Back      string       // what was live before, and the command that goes back to it
	Exit      int
}

// sayEvery is how often something long says that it goes on.
const sayEvery = 5 * time.Second

// loadTimeout bounds what happens on this side before the host is asked.
const loadTimeout = 30 * time.Minute

// Deploy loads the release, completes it with the runtime's programs, refuses it
// where it or the host may not go live, asks the host what of it is missing there,
// and has it made live. Of a release that lies on the host already nothing is
// loaded or sent.
func (f *Fleet) Deploy(ctx context.Context, host *hosts.Host, d Deploy) (done Deployed, err error) {
	p := &pushed{f: f, host: host, ask: d}
	defer p.close()
	begun := false
	defer func() {
		if err != nil && ctx.Err() != nil && !begun {
			err = fmt.Errorf("%w; nothing was switched", err)
		}
	}()
	steps := &release.Steps{Log: f.Log, Every: sayEvery}
	if stored(d.Release) {
		p.done.Release = d.Release
	} else if err := steps.Do(ctx, "load", loadTimeout, p.load); err != nil {
		return p.done, err
	}
	if ok, err := p.admit(ctx); err != nil || !ok {
		return p.done, err
	}
	if d.Provision {
		if err := p.provision(ctx); err != nil || p.done.Exit != report.ExitOK {
			return p.done, err
		}
	}
	if d.Plan {
		err := p.plan(ctx)
		return p.done, err
	}
	var wanted []string
	if p.m != nil {
		answer, err := p.call(ctx, call{verb: "deploy", args: onhost.DeployArgs{Ask: true}}, nil)
		if err != nil || p.done.Exit != report.ExitOK {
			return p.done, err
		}
		wanted = answer.Missing
	}
	begun = true
	_, err = p.call(ctx, call{verb: "deploy"}, wanted)
	err = p.known(err)
	if err == nil && len(p.done.SelfTest) > 0 {
		p.done.SelfTest = append(p.done.SelfTest, f.admissionSection(ctx, host)...)
		if v := report.Verdict(p.done.SelfTest, d.Strict); v == report.ExitState || p.done.Exit == report.ExitOK {
			p.done.Exit = v
		}
	}
	return p.done, err
}

// stored tells whether word means a release that lies on the host: an id, and
// nothing here has that name.
func stored(word string) bool {
	_, err := os.Lstat(word)
	return release.IsID(word) && errors.Is(err, fs.ErrNotExist)
}

// known says of an error that tells nothing of what the host was left with that it
// does not, and how to see.
func (p *pushed) known(err error) error {
	if _, lost := errors.AsType[*remote.LostError](err); !lost {
		return err
	}
	again := release.Command(p.host.Name, p.ask.Release)
	return report.Coded(report.CodeOf(err), "%w; whether release %s is live on %s now is not known from here; to see: %s --plan; to go on: %s", err, p.done.Release, p.host.Name, again, again)
}

// pushed is one release on its way to one host, or one that lies there.
type pushed struct {
	f    *Fleet
	host *hosts.Host
	ask  Deploy
	done Deployed

	dir      string // the release's folder
	unpacked string // a folder of ours to be removed
	tree     *release.Tree
	m        *release.Manifest // nil where the release lies on the host
	manifest []byte
}

func (p *pushed) close() {
	if p.unpacked == "" {
		return
	}
	if err := os.RemoveAll(p.unpacked); err != nil {
		fmt.Fprintf(p.f.Log, "remove the unpacked release: %v\n", err)
	}
}

// load reads the release; everything wrong with it is the caller's word (2).
func (p *pushed) load(ctx context.Context) error {
	var err error
	if p.dir, err = p.folder(ctx); err == nil {
		p.tree, err = release.ReadTree(ctx, p.dir, p.ask.Release)
	}
	if err != nil {
		return wrongRelease(ctx, err)
	}
	if err := p.tree.Complete(p.ask.Programs); err != nil {
		return report.Coded(report.ExitUnfinished, "%w", err)
	}
	if len(p.tree.Replaced) > 0 {
		fmt.Fprintf(p.f.Log, "load: the release's own %s: replaced by this program's\n", strings.Join(p.tree.Replaced, ", "))
	}
	if p.m, err = p.tree.Manifest(p.host.Product); err != nil {
		return wrongRelease(ctx, err)
	}
	p.done.Release = p.m.ID
	p.manifest, err = p.m.Encode()
	return err
}

func wrongRelease(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return report.Coded(report.ExitUsage, "%w", err)
}

// folder is the release's folder; a tar is unpacked into one of ours.
func (p *pushed) folder(ctx context.Context) (string, error) {
	info, err := os.Stat(p.ask.Release)
	if err != nil {
		return "", fmt.Errorf("find the release: %w", err)
	}
	if info.IsDir() {
		return p.ask.Release, nil
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("the release %s is neither a folder nor a tar file", p.ask.Release)
	}
	file, err := os.Open(p.ask.Release)
	if err != nil {
		return "", fmt.Errorf("read the release: %w", err)
	}
	defer file.Close()
	if p.unpacked, err = os.MkdirTemp("", "agentworks-deploy-release-"); err != nil {
		return "", fmt.Errorf("make a folder for the release: %w", err)
	}
	if err := release.Unpack(ctx, file, p.unpacked, release.DefaultLimits()); err != nil {
		return "", fmt.Errorf("release %s: %w", p.ask.Release, err)
	}
	return p.unpacked, nil
}

// provision makes the host a slot host first, or plans to.
func (p *pushed) provision(ctx context.Context) error {
	e, err := p.f.Provision(ctx, p.host, p.ask.Plan)
	p.done.Provision, p.done.Exit = e.Rows, e.Exit
	return err
}

// plan asks what a deploy would do. A host that is still to be provisioned may
// not be able to say; then the plan says that.
func (p *pushed) plan(ctx context.Context) error {
	_, err := p.call(ctx, call{verb: "deploy-plan", plan: true}, nil)
	pending := slices.ContainsFunc(p.done.Provision, func(r report.Row) bool { return r.State == report.Planned })
	if !pending || ctx.Err() != nil || err == nil && p.done.Exit == report.ExitOK {
		return err
	}
	if err != nil {
		fmt.Fprintf(p.f.Log, "plan: %v\n", err)
	}
	p.done.Exit = report.ExitOK
	p.done.Steps = []report.Row{{State: report.Planned, Check: "release", Detail: p.done.Release + ": deploy it once the host is provisioned"}}
	return nil
}

// call sends the manifest and the wanted contents, or of a release that lies on
// the host its id, and takes the answer over.
func (p *pushed) call(ctx context.Context, c call, wanted []string) (release.Answer, error) {
	args, _ := c.args.(onhost.DeployArgs)
	send := p.f.call
	if p.m == nil {
		args.ID = p.ask.Release
	} else {
		args.Manifest, args.Unnamed = release.Digest(p.manifest), !p.tree.Named()
		send = p.send(wanted)
	}
	c.args = args
	e, err := send(ctx, p.host, c)
	var data onhost.DeployData
	if len(e.Data) > 0 {
		if jsonErr := json.Unmarshal(e.Data, &data); jsonErr != nil {
			return data.Answer, errors.Join(err, report.Coded(report.ExitUnfinished, "read the answer to %s: %w", c.verb, jsonErr))
		}
	}
	if args.Ask && err == nil && e.Exit == report.ExitOK {
		return data.Answer, nil // what it planned is about to be done
	}
	if data.Release != "" { // one with the same content may be there under another id
		p.done.Release = data.Release
	}
	p.done.Back = data.Back
	from := min(max(data.SelfTest, 0), len(e.Rows))
	p.done.Steps, p.done.SelfTest, p.done.Exit = e.Rows[:from], e.Rows[from:], e.Exit
	return data.Answer, err
}

// send is a call with the manifest and the wanted contents as its body.
func (p *pushed) send(wanted []string) func(context.Context, *hosts.Host, call) (onhost.Envelope, error) {
	return func(ctx context.Context, host *hosts.Host, c call) (onhost.Envelope, error) {
		body, sink := io.Pipe()
		c.body, c.what = body, "release"
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			sink.CloseWithError(release.WritePayload(ctx, sink, p.manifest, p.m, p.tree, wanted, p.progress(wanted)))
		}()
		e, err := p.f.call(ctx, host, c)
		body.CloseWithError(errAnswered)
		<-sent
		return e, err
	}
}

var errAnswered = errors.New("the host has answered")

// progress says every few seconds how much has been sent.
func (p *pushed) progress(wanted []string) func(int64) {
	var total int64
	sizes := map[string]int64{}
	for _, file := range p.m.Files {
		sizes[file.SHA256] = file.Size
	}
	for _, sha := range wanted {
		total += sizes[sha]
	}
	said := time.Now()
	return func(sent int64) {
		if time.Since(said) < sayEvery {
			return
		}
		said = time.Now()
		fmt.Fprintf(p.f.Log, "transfer: %d of %d MB sent\n", sent>>20, total>>20)
	}
}
