package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// The service's limits, see "SSM facts" in docs/formats.md.
const (
	ssmStdout    = 24000 // characters of standard output that an invocation shows
	ssmCutSuffix = "---Output truncated---"
	ssmScript    = 8 << 10 // bytes of a request's parameters that are known to be taken
)

// ssmChannel reaches one instance through AWS Systems Manager, as root, or from
// root as the service account, and without a stream: standard input goes with
// the script, output comes back when the program has ended, and is cut by the
// service.
type ssmChannel struct {
	way     hosts.SSMChannel
	key     string // of way in the host file, for messages
	account string // "root", or the account to become
	connect func(ctx context.Context) (*ssmService, error)

	once     sync.Once
	service  *ssmService
	instance string
	failed   error
}

func newSSM(way hosts.SSMChannel, key, account string) *ssmChannel {
	return &ssmChannel{way: way, key: key, account: account, connect: func(ctx context.Context) (*ssmService, error) { return connectSSM(ctx, way, key) }}
}

// OutputLimit makes the channel Narrow.
func (c *ssmChannel) OutputLimit() int { return ssmStdout - len(ssmCutSuffix) }

// InputLimit is what fits into a request beside argv; the input goes as base64.
func (c *ssmChannel) InputLimit(argv []string) int {
	script, err := ssmCommand(Cmd{Argv: c.words(argv)})
	if err != nil {
		return 0
	}
	return (ssmScript - len(script)) / 4 * 3
}

// words are argv, as the account that the channel is for (case B55).
func (c *ssmChannel) words(argv []string) []string {
	if c.account == "root" {
		return argv
	}
	return append(asAccount(c.account), argv...)
}

func (c *ssmChannel) String() string {
	if c.instance != "" {
		return "ssm " + c.instance + " as " + c.account
	}
	return hosts.Channel{SSM: &c.way}.String() + " as " + c.account
}

// Found makes the channel a Lookup.
func (c *ssmChannel) Found() string {
	i := c.way.Instance
	switch {
	case c.instance == "" || i.ID != "":
		return ""
	case i.Stack != "":
		return fmt.Sprintf("%s: output %s of stack %s in %s", c.instance, i.Output, i.Stack, c.way.Region)
	}
	return fmt.Sprintf("%s: tag %s in %s", c.instance, i.Tag, c.way.Region)
}

func (c *ssmChannel) Close() error { return nil }

// find looks the instance up once and proves that its agent is online, before
// anything is sent (case X-01).
func (c *ssmChannel) find(ctx context.Context) error {
	c.once.Do(func() {
		if c.service, c.failed = c.connect(ctx); c.failed != nil {
			return
		}
		if c.instance, c.failed = c.service.instance(ctx, c.way.Instance); c.failed == nil {
			c.failed = c.service.online(ctx, c.instance)
		}
	})
	return c.failed
}

// Run runs c on the instance. Its standard input is read to its end first.
func (c *ssmChannel) Run(ctx context.Context, cmd Cmd) (int, error) {
	if c.Many() && c.way.Instance.ID == "" {
		return 0, report.Coded(report.ExitUsage, "the channel leads to many instances (targets), and this is for one: name one in a host file of its own")
	}
	cmd.Argv = c.words(cmd.Argv)
	script, err := ssmCommand(cmd)
	if err != nil {
		return 0, err
	}
	if err := c.find(ctx); err != nil {
		return 0, err
	}
	id, err := c.service.send(ctx, script, &ssm.SendCommandInput{InstanceIds: []string{c.instance}})
	if err != nil {
		return 0, err
	}
	done, err := c.service.wait(ctx, id, c.instance, orDiscard(cmd.Stderr))
	if err != nil {
		return 0, err
	}
	if strings.HasSuffix(done.stdout, ssmCutSuffix) {
		return 0, &LostError{report.Coded(report.ExitUnfinished, "%s: the output of command %s was cut by the service at %d characters: it is no answer", c, id, ssmStdout)}
	}
	_, err = io.WriteString(orDiscard(cmd.Stdout), done.stdout)
	_, err2 := io.WriteString(orDiscard(cmd.Stderr), done.stderr)
	if err := errors.Join(err, err2); err != nil {
		return 0, report.Coded(report.ExitUnfinished, "%s: %w", c, err)
	}
	return done.exit, nil
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// ssmCommand is cmd as one POSIX sh script: every word literal, the input as
// base64, an environment of our own (cases B52, X-04).
func ssmCommand(cmd Cmd) (string, error) {
	var input []byte
	if cmd.Stdin != nil {
		var err error
		if input, err = io.ReadAll(io.LimitReader(cmd.Stdin, ssmScript+1)); err != nil {
			return "", report.Coded(report.ExitUnfinished, "read what is to be sent: %w", err)
		}
	}
	var b bytes.Buffer
	b.WriteString("PATH=/usr/sbin:/usr/bin:/sbin:/bin; export PATH; umask 077; cd /\n")
	fmt.Fprintf(&b, "printf %%s %s | base64 -d | env -i PATH=\"$PATH\" HOME=/root LC_ALL=C.UTF-8", quoteWord(encodeBase64(input)))
	for _, word := range cmd.Argv {
		if strings.ContainsRune(word, 0) {
			return "", report.Coded(report.ExitUsage, "a word with a NUL byte cannot be sent")
		}
		b.WriteString(" " + quoteWord(word))
	}
	b.WriteByte('\n')
	if b.Len() > ssmScript {
		return "", report.Coded(report.ExitUnfinished, "a request of %d bytes is more than SSM takes (%d): use an ssh channel", b.Len(), ssmScript)
	}
	return b.String(), nil
}

// quoteWord makes one literal word of POSIX sh.
func quoteWord(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
