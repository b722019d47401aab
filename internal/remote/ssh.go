package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

const (
	sshConnect = 10 * time.Second // to reach and log in
	sshAlive   = 5                // seconds between probes of a silent connection
	sshProbes  = 3                // probes without an answer after which it is given up
	sshPersist = 60               // seconds that the shared connection outlives a killed run
	sshFailed  = 255              // OpenSSH's own failures
)

// sshChannel reaches a host through the system's OpenSSH, with everything that
// ~/.ssh/config says (aliases, jumps, agents, hardware keys). All runs share one
// connection, made by the first.
type sshChannel struct {
	way     hosts.SSHChannel
	account string // the account to become where the login is root; "" to stay
	program string

	once   sync.Once
	socket string // folder of the shared connection's socket
	failed error
}

func newSSH(way hosts.SSHChannel, account string) *sshChannel {
	return &sshChannel{way: way, account: account, program: "ssh"}
}

func (c *sshChannel) String() string { return hosts.Channel{SSH: &c.way}.String() }

// Patience makes the channel Distant: both ends give a silent connection up after
// the same time.
func (c *sshChannel) Patience() time.Duration { return sshAlive * sshProbes * time.Second }

// options of every call. BatchMode: nothing here can answer a question. The
// socket's name is short because its whole path must be: some systems' folder for
// temporary files alone takes half of the 104 bytes.
func (c *sshChannel) options() []string {
	o := []string{
		"-T", "-o", "BatchMode=yes", "-o", "ControlPath=" + filepath.Join(c.socket, "s"),
		"-o", "ConnectTimeout=" + strconv.Itoa(int(sshConnect/time.Second)), "-o", "ServerAliveInterval=" + strconv.Itoa(sshAlive), "-o", "ServerAliveCountMax=" + strconv.Itoa(sshProbes),
		"-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "RequestTTY=no", "-o", "SendEnv=-*",
	}
	if c.way.User != "" {
		o = append(o, "-l", c.way.User)
	}
	if c.way.Port != 0 {
		o = append(o, "-p", strconv.Itoa(c.way.Port))
	}
	// With many keys in an agent a server gives up before the right one comes;
	// but a named key that is not here must not shut the others out (case X-03).
	if key := expandHome(c.way.Key); key != "" {
		if _, err := os.Stat(key); err == nil {
			o = append(o, "-i", key, "-o", "IdentitiesOnly=yes")
		}
	}
	return o
}

func expandHome(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return p
}

// dial makes the shared connection. The program goes to the background once it
// is logged in, so its end says whether that worked.
func (c *sshChannel) dial(ctx context.Context) error {
	c.once.Do(func() {
		if c.socket, c.failed = os.MkdirTemp("", "awd-"); c.failed != nil {
			c.failed = report.Coded(report.ExitUnfinished, "make a folder for the ssh socket: %w", c.failed)
			return
		}
		// The background program keeps its standard error, so that is a file.
		said, err := os.Create(filepath.Join(c.socket, "log"))
		if err != nil {
			c.failed = report.Coded(report.ExitUnfinished, "%s: %w", c, err)
			return
		}
		defer said.Close()
		ctx, cancel := context.WithTimeout(ctx, 3*sshConnect)
		defer cancel()
		args := append(c.options(), "-M", "-N", "-f", "-o", "ControlPersist="+strconv.Itoa(sshPersist), "--", c.way.Host)
		cmd := exec.CommandContext(ctx, c.program, args...)
		cmd.Stdout, cmd.Stderr = said, said
		if err := cmd.Run(); err != nil {
			text, _ := os.ReadFile(said.Name())
			c.failed = c.explain(ctx, err, string(text))
		}
	})
	return c.failed
}

// Run runs cmd through the shared connection.
func (c *sshChannel) Run(ctx context.Context, cmd Cmd) (int, error) {
	words := cmd.Argv
	if c.account != "" {
		words = append(asAccount(c.account), words...)
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		if strings.ContainsRune(w, 0) {
			return 0, report.Coded(report.ExitUsage, "a word with a NUL byte cannot be sent")
		}
		quoted[i] = quoteWord(w)
	}
	if err := c.dial(ctx); err != nil {
		return 0, err
	}
	stderr := &lastBytes{w: orDiscard(cmd.Stderr)}
	argv := append([]string{c.program}, append(c.options(), "-o", "ControlMaster=no", "--", c.way.Host, strings.Join(quoted, " "))...)
	exit, err := process(ctx, argv, Cmd{Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: stderr}, (*exec.Cmd).Start)
	if err == nil && exit == sshFailed {
		return 0, &LostError{c.explain(ctx, errors.New("the connection was lost"), stderr.String())}
	}
	return exit, err
}

// Close ends the shared connection.
func (c *sshChannel) Close() error {
	if c.socket == "" {
		return nil
	}
	defer os.RemoveAll(c.socket)
	if c.failed != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), sshConnect)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, append(c.options(), "-O", "exit", "--", c.way.Host)...)
	_ = cmd.Run() // it ends by itself otherwise
	return nil
}

// explain turns OpenSSH's words into one line with the next step.
func (c *sshChannel) explain(ctx context.Context, err error, said string) error {
	var missing *exec.Error
	has := func(s string) bool { return strings.Contains(said, s) }
	why := ""
	switch {
	case errors.As(err, &missing), errors.Is(err, fs.ErrNotExist):
		return report.Coded(report.ExitUsage, "%s: there is no ssh program: install OpenSSH's client", c)
	case ctx.Err() == context.DeadlineExceeded, has("Connection timed out"), has("Operation timed out"):
		why = "it does not answer: is the host up, and reachable from here?"
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case has("Host key verification failed"), has("REMOTE HOST IDENTIFICATION HAS CHANGED"):
		why = "its host key is unknown or has changed: compare it with the administrator's, then log in once by hand: ssh " + c.way.Host
	case has("Too many authentication failures"):
		why = "the server gave up after too many keys: name the right one as the channel's key"
	case has("Permission denied"):
		why = "the login is refused: is the right key in the agent, and allowed for this account?"
	case has("Could not resolve hostname"):
		why = "the name is not known: is there an alias in ~/.ssh/config?"
	case has("Connection refused"):
		why = "nothing listens there: is sshd running, and is the port right?"
	default:
		why = lastLineOf(said)
		if why == "" {
			why = err.Error()
		}
	}
	return report.Coded(report.ExitUnfinished, "%s cannot be reached: %s", c, why)
}

func lastLineOf(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

// lastBytes passes on what it gets and remembers its end.
type lastBytes struct {
	w   io.Writer
	end bytes.Buffer
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.end.Write(p)
	if over := l.end.Len() - 4096; over > 0 {
		l.end.Next(over)
	}
	return l.w.Write(p)
}

func (l *lastBytes) String() string { return l.end.String() }
