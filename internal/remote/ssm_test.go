package remote

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/remote/ssmtest"
	"agentworks-deploy/internal/report"
)

const testInstance = "i-0123456789abcdef0"

// shell runs a script as the agent does: sh -c, almost no environment.
func shell(ctx context.Context, _, script string) (string, string, int) {
	cmd := exec.CommandContext(ctx, "/bin/dash", "-c", script)
	cmd.Env = []string{}
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	_ = cmd.Run()
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// quick is a channel to the stand-in whose patience is short.
func quick(t *testing.T, run ssmtest.Run, change func(*ssmService)) (*ssmChannel, *ssmtest.Server) {
	t.Helper()
	s := ssmtest.New("us-west-2", run)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.Register(testInstance, map[string]string{"Name": "one"})
	t.Setenv("AWS_ENDPOINT_URL_SSM", srv.URL)
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", srv.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	noAmazon(t)
	c := newSSM(hosts.SSMChannel{Region: "us-west-2", Instance: hosts.SSMInstance{ID: testInstance}}, "channels.admin.ssm", "root")
	connect := c.connect
	c.connect = func(ctx context.Context) (*ssmService, error) {
		service, err := connect(ctx)
		if err == nil {
			service.firstPoll, service.lastPoll, service.appears = time.Millisecond, 10*time.Millisecond, 20*time.Second
			if change != nil {
				change(service)
			}
		}
		return service, err
	}
	return c, s
}

// noAmazon keeps the client from looking for credentials outside this machine.
func noAmazon(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/config")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/credentials")
}

func TestX04SSMWordsAreLiteral(t *testing.T) {
	c, s := quick(t, shell, nil)
	word := "a'b \"$(touch /tmp/awd-injected)\" `id` \\ \n; exit 3 #ü*"
	var out, stderr bytes.Buffer
	exit, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/sh", "-c", `printf '%s|' "$@"; cat; echo told >&2; exit 7`, "sh", word, ""}, Stdin: strings.NewReader("in\x00put\n"), Stdout: &out, Stderr: &stderr})
	if err != nil || exit != 7 {
		t.Fatalf("exit %d, %v", exit, err)
	}
	if want := word + "||in\x00put\n"; out.String() != want || stderr.String() != "told\n" {
		t.Errorf("stdout %q, want %q; stderr %q", out.String(), want, stderr.String())
	}
	if n := len(s.Scripts()); n != 1 {
		t.Errorf("%d scripts sent", n)
	}
}

func TestB52SSMEnvironment(t *testing.T) {
	c, _ := quick(t, shell, nil)
	var out bytes.Buffer
	if _, err := c.Run(context.Background(), Cmd{Argv: []string{"/usr/bin/env"}, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if want := "PATH=/usr/sbin:/usr/bin:/sbin:/bin\nHOME=/root\nLC_ALL=C.UTF-8\n"; out.String() != want {
		t.Errorf("environment %q, want %q", out.String(), want)
	}
}

// Each state and fault is told apart, in one line, with the next step; none is
// ever an exit code of the program.
func TestX01SSMFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults ssmtest.Faults
		want   []string
		sends  int
	}{
		{"offline", ssmtest.Faults{Offline: map[string]bool{testInstance: true}}, []string{"is not online", "nothing was sent"}, 0},
		{"expired", ssmtest.Faults{Expired: true}, []string{"are expired", "aws sso login"}, 0},
		{"not delivered", details("DeliveryTimedOut"), []string{"nothing ran", "send it again"}, 1},
		{"undeliverable", details("Undeliverable"), []string{"undeliverable", "nothing ran"}, 1},
		{"platform", details("InvalidPlatform"), []string{"platform"}, 1},
		{"denied", details("AccessDenied"), []string{"ssm:SendCommand"}, 1},
		{"cancelled", details("Cancelled"), []string{"is unknown", "cancelled it", "aws ssm get-command-invocation --command-id"}, 1},
		{"ran out of time", details("ExecutionTimedOut"), []string{"is unknown", "ran out of its time", "aws ssm get-command-invocation"}, 1},
		{"terminated", details("Terminated"), []string{"is unknown", "terminated"}, 1},
		{"poll lost", ssmtest.Faults{LosePolls: true}, []string{"is unknown", "aws ssm get-command-invocation"}, 1},
		{"send lost", ssmtest.Faults{LoseSends: true}, []string{"whether a command was sent is unknown", "aws ssm list-commands"}, 1},
		{"never known", ssmtest.Faults{NotYet: 1 << 30}, []string{"is unknown", "does not know it"}, 1},
		{"cut", ssmtest.Faults{Stdout: func(string, string) string { return strings.Repeat("x", 30000) }}, []string{"was cut", "no answer"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, s := quick(t, shell, func(s *ssmService) { s.appears = 50 * time.Millisecond })
			s.Play(tt.faults)
			var out bytes.Buffer
			_, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/echo", "hello"}, Stdout: &out})
			if report.CodeOf(err) != report.ExitUnfinished || err == nil {
				t.Fatalf("err %v, want exit 3", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") || out.Len() > 0 {
				t.Errorf("not one line, or output without a verdict: %q, %q", err, out.String())
			}
			if n := s.Calls("SendCommand"); n != tt.sends {
				t.Errorf("%d sends, want %d", n, tt.sends)
			}
		})
	}
}

func details(d string) ssmtest.Faults {
	return ssmtest.Faults{Details: map[string]string{testInstance: d}}
}

// What passes by itself is waited out (cases B47, B51).
func TestB47SSMIsAskedAgain(t *testing.T) {
	c, s := quick(t, shell, nil)
	s.Play(ssmtest.Faults{NotYet: 3, ThrottleEvery: 3})
	var out bytes.Buffer
	exit, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/echo", "hello"}, Stdout: &out})
	if err != nil || exit != 0 || out.String() != "hello\n" {
		t.Errorf("exit %d, %v, %q", exit, err, out.String())
	}
}

func TestB53SSMExitCode(t *testing.T) {
	c, _ := quick(t, shell, nil)
	if exit, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/sh", "-c", "exit 7"}}); err != nil || exit != 7 {
		t.Errorf("exit %d, %v", exit, err)
	}
}

func TestSSMInterrupted(t *testing.T) {
	c, s := quick(t, shell, func(s *ssmService) { s.heartbeat = 0 })
	s.Play(ssmtest.Faults{Stay: map[string]bool{testInstance: true}})
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped by hand")
	var log bytes.Buffer
	_, err := c.Run(ctx, Cmd{Argv: []string{"/bin/true"}, Stderr: writer(func(p []byte) (int, error) {
		cancel(stopped) // at the first sign of life
		return log.Write(p)
	})})
	if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "was cancelled") || s.Calls("CancelCommand") != 1 {
		t.Errorf("err %v, %d cancels", err, s.Calls("CancelCommand"))
	}
	if !strings.Contains(log.String(), "is InProgress") {
		t.Errorf("heartbeat %q", log.String())
	}
	s.Wait()
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestSSMLookups(t *testing.T) {
	for _, tt := range []struct {
		name string
		way  hosts.SSMChannel
		want string // "" for found
		code int
	}{
		{"stack", hosts.SSMChannel{Region: "us-west-2", Instance: hosts.SSMInstance{Stack: "prod", Output: "InstanceId"}}, "", 0},
		{"no such output", hosts.SSMChannel{Region: "us-west-2", Instance: hosts.SSMInstance{Stack: "prod", Output: "Other"}}, "has no output Other", 3},
		{"no such stack", hosts.SSMChannel{Region: "us-west-2", Instance: hosts.SSMInstance{Stack: "other", Output: "InstanceId"}}, "does not exist", 3},
		{"tag", hosts.SSMChannel{Region: "us-west-2", Instance: hosts.SSMInstance{Tag: "Name=one"}}, "", 0},
		{"no such tag", hosts.SSMChannel{Region: "us-west-2", Instance: hosts.SSMInstance{Tag: "Name=two"}}, "no managed instance", 3},
		{"wrong region", hosts.SSMChannel{Region: "eu-north-1", Instance: hosts.SSMInstance{ID: testInstance}}, "is not known to Systems Manager in eu-north-1: check the region", 3},
		{"no such profile", hosts.SSMChannel{Region: "us-west-2", Profile: "NOPE", Instance: hosts.SSMInstance{ID: testInstance}}, `profile "NOPE" does not exist`, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, s := quick(t, shell, nil)
			s.AddStack("prod", map[string]string{"InstanceId": testInstance})
			c.way = tt.way
			c.connect = func(ctx context.Context) (*ssmService, error) { return connectSSM(ctx, tt.way, "channels.admin.ssm") }
			err := c.find(context.Background())
			if tt.want == "" && err == nil && c.instance == testInstance {
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.want == "" || report.CodeOf(err) != tt.code {
				t.Errorf("instance %q, %v (exit %d), want %q (exit %d)", c.instance, err, report.CodeOf(err), tt.want, tt.code)
			}
		})
	}
	t.Run("no credentials", func(t *testing.T) {
		c, _ := quick(t, shell, nil)
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		err := c.find(context.Background())
		if err == nil || !strings.Contains(err.Error(), "no AWS credentials for profile default") || report.CodeOf(err) != 3 {
			t.Errorf("%v", err)
		}
	})
	t.Run("wrong credentials", func(t *testing.T) {
		c, _ := quick(t, shell, nil)
		t.Setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
		err := c.find(context.Background())
		if err == nil || !strings.Contains(err.Error(), "does not accept the credentials") {
			t.Errorf("%v", err)
		}
	})
}

func TestSSMRequestTooLarge(t *testing.T) {
	c, s := quick(t, shell, nil)
	_, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/cat"}, Stdin: strings.NewReader(strings.Repeat("x", ssmScript))})
	if report.CodeOf(err) != report.ExitUnfinished || s.Calls("") != 0 {
		t.Errorf("%v after %d calls", err, s.Calls(""))
	}
	_, err = c.Run(context.Background(), Cmd{Argv: []string{"/bin/echo", "a\x00b"}})
	if report.CodeOf(err) != report.ExitUsage || s.Calls("") != 0 {
		t.Errorf("%v after %d calls", err, s.Calls(""))
	}
}

// The SDK writes nothing to standard error, whatever it falls back to on its way
// to credentials: that is for this program's one line.
func TestSDKSaysNothingOfItsOwn(t *testing.T) {
	imds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusNotFound
		if r.Method == http.MethodPut {
			code = http.StatusForbidden // no token: the SDK falls back to IMDSv1, and warns
		}
		w.WriteHeader(code)
	}))
	defer imds.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.URL)
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_EC2_METADATA_DISABLED"} {
		t.Setenv(name, "")
	}
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	stderr := os.Stderr
	os.Stderr = said
	s, err := connectSSM(t.Context(), hosts.SSMChannel{Region: "us-west-2"}, "channels.admin.ssm")
	if err == nil {
		_, err = s.config.Credentials.Retrieve(t.Context())
	}
	os.Stderr = stderr
	text, bad := os.ReadFile(said.Name())
	if err == nil || bad != nil || len(text) > 0 {
		t.Errorf("%v, %v, standard error %q", err, bad, text)
	}
}
