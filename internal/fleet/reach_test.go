package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/remote/ssmtest"
)

const (
	labAddress    = "192.0.2.1" // addresses for documentation: they lead nowhere else
	clientAddress = "192.0.2.2"
	instance      = "i-0123456789abcdef0"
	region        = "us-west-2"
)

// seat is where a person sits who reaches the lab over a network: a network of
// its own, joined to the lab's by a veth pair, and an account file of its own, so
// that OpenSSH finds its configuration in a folder of the test.
type seat struct {
	lab  *labtest.Lab
	bin  string
	dir  string // home, keys, host files
	tmp  string // temporary files of the programs under test
	pid  string // of the process that holds the namespaces
	sshd *exec.Cmd
	ssm  *ssmtest.Server
	s3   *ssmtest.Bucket
	env  []string
}

// takeSeat joins a seat to lab, with sshd running there and SSM's stand-in here.
func takeSeat(t *testing.T, lab *labtest.Lab) *seat {
	t.Helper()
	s := &seat{lab: lab, bin: labtest.Binaries(t), dir: t.TempDir(), tmp: t.TempDir()}
	s.hold(t)
	s.join(t)
	s.serveSSH(t)
	s.serveSSM(t)
	return s
}

func must(t *testing.T, argv ...string) {
	t.Helper()
	if said, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, said)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// hold starts the process that the namespaces live in.
func (s *seat) hold(t *testing.T) {
	t.Helper()
	write(t, s.dir+"/passwd", "root:x:0:0:root:"+s.dir+":/bin/sh\n", 0o644)
	ready, ends, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command("unshare", "--net", "--mount", "--propagation", "private", "/bin/sh", "-c", `mount --bind "$0" /etc/passwd && ip link set lo up && echo ready >&3 && exec 3>&- sleep infinity`, s.dir+"/passwd")
	cmd.ExtraFiles = []*os.File{ends}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ends.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if n, err := ready.Read(make([]byte, 10)); n == 0 {
		t.Fatalf("the seat's namespaces were not made: %v", err)
	}
	s.pid = fmt.Sprint(cmd.Process.Pid)
}

// join lays the veth pair: the lab's end goes by a process in there.
func (s *seat) join(t *testing.T) {
	t.Helper()
	inside := exec.Command("sleep", "infinity")
	if err := s.lab.Start(inside, "root"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inside.Process.Kill(); _ = inside.Wait() }()
	ip := []string{"nsenter", "-t", s.pid, "-n", "ip"}
	must(t, append(ip, "link", "add", "seat0", "type", "veth", "peer", "name", "lab0")...)
	t.Cleanup(func() { _ = exec.Command(ip[0], append(ip[1:], "link", "del", "seat0")...).Run() }) // with its peer
	must(t, append(ip, "link", "set", "lab0", "netns", fmt.Sprint(inside.Process.Pid))...)
	must(t, append(ip, "addr", "add", clientAddress+"/30", "dev", "seat0")...)
	must(t, append(ip, "link", "set", "seat0", "up")...)
	s.lab.MustExec(t, "ip", "addr", "add", labAddress+"/30", "dev", "lab0")
	s.lab.MustExec(t, "ip", "link", "set", "lab0", "up")
}

// serveSSH starts the lab's own sshd with keys of the test: "key" opens root and
// the service account, "stranger" nothing.
func (s *seat) serveSSH(t *testing.T) {
	t.Helper()
	for _, name := range []string{"key", "stranger", "hostkey"} {
		must(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(s.dir, name))
	}
	s.lab.MustExec(t, "/bin/mkdir", "-p", "/etc/ssh/seat", "/run/sshd")
	s.lab.CopyIn(t, s.dir+"/hostkey", "/etc/ssh/seat/hostkey", 0o600)
	for _, account := range []string{"root", "vs"} {
		s.lab.CopyIn(t, s.dir+"/key.pub", "/etc/ssh/seat/"+account, 0o644)
	}
	s.lab.WriteFile(t, "/etc/ssh/seat/config", fmt.Sprintf(`ListenAddress %s
Port 2222
HostKey /etc/ssh/seat/hostkey
PidFile none
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AuthorizedKeysFile /etc/ssh/seat/%%u
StrictModes no
`, labAddress), 0o644)
	s.startSSH(t)
	t.Cleanup(func() { _ = s.sshd.Process.Kill(); _ = s.sshd.Wait() })

	hostKey, err := os.ReadFile(s.dir + "/hostkey.pub")
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.dir+"/.ssh/known_hosts", "["+labAddress+"]:2222 "+string(hostKey), 0o600)
	write(t, s.dir+"/.ssh/config", fmt.Sprintf("Host thelab\n\tHostName %s\n\tPort 2222\n\tIdentityFile %s/key\n", labAddress, s.dir), 0o600)
}

func (s *seat) startSSH(t *testing.T) {
	t.Helper()
	var said bytes.Buffer
	s.sshd = exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/seat/config")
	s.sshd.Stderr, s.sshd.WaitDelay = &said, time.Second
	if err := s.lab.Start(s.sshd, "root"); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for exec.Command("nsenter", "-t", s.pid, "-n", "/bin/bash", "-c", "exec 3<>/dev/tcp/"+labAddress+"/2222").Run() != nil {
		if time.Now().After(deadline) {
			t.Fatalf("sshd does not listen: %s", said.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// serveSSM runs the stand-ins in the seat's network; the instance is the lab,
// which reaches the bucket as well.
func (s *seat) serveSSM(t *testing.T) {
	t.Helper()
	s.ssm = ssmtest.New(region, s.agent)
	s.ssm.Register(instance, map[string]string{"Name": "thelab"})
	s.ssm.AddStack("prod", map[string]string{"InstanceId": instance})
	url := s.listen(t, "127.0.0.1", s.ssm)
	s.s3 = ssmtest.NewBucket(region)
	s.env = append(os.Environ(), "AWS_ENDPOINT_URL_S3="+s.listen(t, clientAddress, s.s3), "AWS_ENDPOINT_URL_SSM="+url, "AWS_ENDPOINT_URL_CLOUDFORMATION="+url, "AWS_ACCESS_KEY_ID="+s.ssm.AccessKey, "AWS_SECRET_ACCESS_KEY=x",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE="+s.dir+"/aws", "AWS_SHARED_CREDENTIALS_FILE="+s.dir+"/aws-credentials", "SSH_AUTH_SOCK=", "HOME="+s.dir, "TMPDIR="+s.tmp)
}

// agent does what SSM's agent does on the instance.
func (s *seat) agent(ctx context.Context, _, script string) (string, string, int) {
	cmd := exec.CommandContext(ctx, "/usr/bin/env", "-i", "/bin/sh", "-c", script)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	if err := s.lab.Start(cmd, "root"); err != nil {
		return "", err.Error(), 1
	}
	_ = cmd.Wait() // its code says it
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// listen serves h on an address of the seat's network.
func (s *seat) listen(t *testing.T, address string, h http.Handler) string {
	t.Helper()
	type listening struct {
		net.Listener
		err error
	}
	made := make(chan listening)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		space, err := os.Open("/proc/" + s.pid + "/ns/net")
		if err == nil {
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
			space.Close()
		}
		if err != nil {
			made <- listening{nil, err}
			return
		}
		l, err := net.Listen("tcp", address+":0")
		made <- listening{l, err}
	}()
	l := <-made
	if l.err != nil {
		t.Fatal(l.err)
	}
	server := httptest.NewUnstartedServer(h)
	server.Listener.Close()
	server.Listener = l.Listener
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// host writes a host file for the lab with these two channels, and more lines.
func (s *seat) host(t *testing.T, name, admin, service string, more ...string) {
	t.Helper()
	write(t, filepath.Join(s.dir, "hosts", name+".yaml"), `product: vs
paths: {app: /srv/vs, docs: /srv/vs/data/docs, home: /srv/vs/home}
slots: {mode: on, prefix: slot, count: 50}
release: {keep: 2, manager: user, services: [vs-workspace, vs-agent], health: ["http://127.0.0.1:8000/api/health", "http://127.0.0.1:8001/api/health"]}
listen: {address: "127.0.0.1:8000"}
channels:
  admin: `+admin+`
  service: `+service+"\n"+strings.Join(more, "\n"), 0o644)
}

const (
	sshRoot   = "{ssh: {host: thelab, user: root}}"
	sshVs     = "{ssh: {host: thelab, user: vs}}"
	ssmByID   = "{ssm: {region: " + region + ", instance: {id: " + instance + "}}}"
	ssmBucket = "{ssm: {region: " + region + ", instance: {id: " + instance + "}, bucket: deploy-bucket}}"
)

func (s *seat) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", s.pid, "-n", "-m", filepath.Join(s.bin, "agentworks-deploy"), "--hosts-dir", filepath.Join(s.dir, "hosts")}, args...)...)
	cmd.Env = s.env
	return cmd
}

func (s *seat) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := s.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
