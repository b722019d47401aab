package launcher

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/policy"
)

// listen serves a socket of the slot until the test ends.
func listen(t *testing.T, name string) {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if !strings.HasPrefix(name, "@") {
		if err := os.Chmod(name, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
}

func TestAllCapabilitySetsAreEmpty(t *testing.T) {
	w := newWorld(t)
	everyStart(t, func(t *testing.T, how start) {
		got := w.run(t, how, private(policy.Policy{}), "/bin/grep", "-E", "^(Cap|NoNewPrivs)", "/proc/self/status")
		const none = ":\t0000000000000000\n"
		got.wants(t, 0, "CapInh"+none+"CapPrm"+none+"CapEff"+none+"CapBnd"+none+"CapAmb"+none+"NoNewPrivs:\t1\n")
	})
}

func TestNoOpenDescriptorIsLeftOver(t *testing.T) {
	w := newWorld(t)
	open := []*os.File{}
	for range 20 {
		f, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		open = append(open, f)
	}
	config := w.write(t, "policy.json", fmt.Sprintf(`{"work_dir":%q,"private_tmp":true,"browser_scoped":true,"read_paths":[%q]}`, w.dir, runnerDir))
	everyStart(t, func(t *testing.T, how start) {
		w := *w
		w.env = append([]string{probeVariable + "=1"}, w.env...)
		cmd := w.command(how, runner, "--config", config, "--", probe, "fds")
		cmd.ExtraFiles = open
		finish(t, cmd).wants(t, 0, "0\n1\n2\n")
	})
}

func TestAFolderOnStandardInputIsRefused(t *testing.T) {
	w := newWorld(t)
	config := w.write(t, "policy.json", fmt.Sprintf(`{"work_dir":%q}`, w.dir))
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := w.command(plainly, runner, "--config", config, "--", "/bin/true")
	cmd.Stdin = dir
	finish(t, cmd).refused(t, 125, "descriptor 0 is a folder")
}

func TestS28DescriptorsThatCannotBeClosedRefuse(t *testing.T) {
	w := newWorld(t)
	w.filtered(t, unix.SYS_CLOSE_RANGE, unix.ENOSYS, fmt.Sprintf(`{"work_dir":%q}`, w.dir)).refused(t, 125, "close descriptors")
}

func TestS40WithoutLandlockNothingRuns(t *testing.T) {
	w := newWorld(t)
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EOPNOTSUPP} {
		w.filtered(t, unix.SYS_LANDLOCK_CREATE_RULESET, errno, fmt.Sprintf(`{"work_dir":%q}`, w.dir)).refused(t, 125, "Landlock")
	}
	w.filtered(t, unix.SYS_LANDLOCK_RESTRICT_SELF, unix.E2BIG, fmt.Sprintf(`{"work_dir":%q}`, w.dir)).refused(t, 125, "too many sandboxes")
	w.filtered(t, unix.SYS_LANDLOCK_ADD_RULE, unix.EINVAL, fmt.Sprintf(`{"work_dir":%q}`, w.dir)).refused(t, 125, "Landlock rule")
}

func TestS13NamespacesThatAreKeptFromUsRefuseWithTheReason(t *testing.T) {
	w := newWorld(t)
	text := fmt.Sprintf(`{"work_dir":%q,"private_tmp":true}`, w.dir)
	const reason = "kernel.apparmor_restrict_unprivileged_userns"
	for _, c := range []struct {
		call  int
		errno unix.Errno
		want  string
	}{
		{unix.SYS_CLONE, unix.EPERM, "user namespace: operation not permitted"},
		{unix.SYS_CLONE, unix.ENOSPC, "user namespace: no space left"},
		{unix.SYS_UNSHARE, unix.EPERM, "mount namespace: operation not permitted"},
		{unix.SYS_MOUNT, unix.EACCES, "mount namespace: make it private: permission denied"},
	} {
		w.filtered(t, c.call, c.errno, text).refused(t, 125, c.want, reason)
	}
	w.filtered(t, unix.SYS_FSOPEN, unix.EPERM, text).refused(t, 125, "open a new tmpfs")
	w.filtered(t, unix.SYS_MOVE_MOUNT, unix.EPERM, text).refused(t, 125, "mount over /tmp")
	w.filtered(t, unix.SYS_MOUNT_SETATTR, unix.ENOSYS, fmt.Sprintf(`{"work_dir":%q,"hidden_paths":["/etc/passwd"]}`, w.dir)).refused(t, 125, "read-only")
}

func TestS14WithoutNamespacesOnlyALandlockPolicyRuns(t *testing.T) {
	w := newWorld(t)
	config := w.write(t, "policy.json", fmt.Sprintf(`{"work_dir":%q,"browser_scoped":true}`, w.dir))
	withTmp := w.write(t, "tmp.json", fmt.Sprintf(`{"work_dir":%q,"private_tmp":true}`, w.dir))
	run := func(config string) result {
		// A user namespace in which there may be no further one.
		cmd := exec.Command("/bin/sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces &&
			exec setpriv --reuid "$1" --regid "$1" --clear-groups "$2" --config "$3" -- /bin/pwd`, "sh", fmt.Sprint(slotID), runner, config)
		cmd.Dir = "/"
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536 * 2}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}
		return finish(t, cmd)
	}
	run(config).wants(t, 0, w.dir+"\n")
	run(withTmp).refused(t, 125, "user namespace", "user.max_user_namespaces")
}

func TestS16ASandboxInsideASandboxIsRefusedByName(t *testing.T) {
	w := newWorld(t)
	config := w.write(t, "inner.json", fmt.Sprintf(`{"work_dir":%q,"private_tmp":true}`, w.dir))
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{ReadPaths: []string{w.dir}})
		w.run(t, how, p, runner, "--config", config, "--", "/bin/true").
			refused(t, 125, "namespace", "a sandbox cannot be started inside another")
		w.probe(t, how, p, "mount", "/tmp").wants(t, 0, "EPERM\n")
	})
}

func TestItRefusesRootAndTheMachinesAdministrator(t *testing.T) {
	w := newWorld(t)
	config := w.write(t, "policy.json", fmt.Sprintf(`{"work_dir":%q,"private_tmp":true}`, w.dir))
	finish(t, exec.Command(runner, "--config", config, "--", "/bin/true")).refused(t, 125, "uid 0")
	cmd := w.command(plainly, runner, "--config", config, "--", "/bin/true")
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	finish(t, cmd).refused(t, 125, "CAP_SYS_ADMIN in the initial user namespace")
}

func TestS11NoProcIsMounted(t *testing.T) {
	w := newWorld(t)
	if err := unix.Mount("/dev/null", "/proc/cmdline", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount("/proc/cmdline", 0)
	everyStart(t, func(t *testing.T, how start) {
		w.run(t, how, private(policy.Policy{}), "/bin/cat", "/proc/self/comm").wants(t, 0, "cat\n")
	})
}

func TestL11OtherProcessesCannotBeLookedInto(t *testing.T) {
	w := newWorld(t)
	victim := w.command(plainly, "/bin/sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	everyStart(t, func(t *testing.T, how start) {
		for _, pid := range []int{1, os.Getpid(), victim.Process.Pid} {
			w.run(t, how, private(policy.Policy{}), "/bin/cat", fmt.Sprintf("/proc/%d/environ", pid)).wants(t, 1, "")
		}
		got := w.run(t, how, private(policy.Policy{}), "/bin/cat", "/proc/self/status")
		if got.code != 0 || !strings.HasPrefix(got.stdout, "Name:\tcat\n") {
			t.Errorf("%+v", got)
		}
	})
}

func TestS44ProcessesOutsideAreOutOfReach(t *testing.T) {
	w := newWorld(t)
	victim := w.command(plainly, "/bin/sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	abstract := fmt.Sprintf("@launcher-test-%d", os.Getpid())
	listen(t, abstract)
	listen(t, w.path("app.sock"))
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{HiddenPaths: []string{w.path("app.sock")}})
		w.probe(t, how, p, "kill", fmt.Sprint(victim.Process.Pid)).wants(t, 0, "EPERM\n")
		w.probe(t, how, p, "connect", abstract).wants(t, 0, "EPERM\n")
		w.probe(t, how, p, "connect", w.path("app.sock")).wants(t, 0, "EACCES\n")
	})
}

func TestS08MergedAndSplitSystemFolders(t *testing.T) {
	for _, merged := range []bool{true, false} {
		t.Run(fmt.Sprintf("merged=%v", merged), func(t *testing.T) {
			w := newWorld(t)
			rootDir := w.mkdir(t, "root")
			for _, dir := range []string{"usr/bin", "proc", "tmp", "dev", "work"} {
				w.mkdir(t, "root/"+dir)
			}
			if err := os.Chown(rootDir, 0, 0); err != nil {
				t.Fatal(err)
			}
			if merged {
				w.link(t, "root/bin", "usr/bin", 0)
			} else {
				w.mkdir(t, "root/bin")
			}
			program, err := os.ReadFile(runner)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(rootDir, "bin/runner"), program, 0o755); err != nil {
				t.Fatal(err)
			}
			w.write(t, "root/policy.json", `{"work_dir":"/work","private_tmp":true,"browser_scoped":true}`)
			if err := unix.Mount("/proc", filepath.Join(rootDir, "proc"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(filepath.Join(rootDir, "proc"), unix.MNT_DETACH)
			cmd := exec.Command(probe, rootDir, "/bin/runner", "--config", "/policy.json", "--", "/bin/runner")
			cmd.Env = []string{roleVariable + "=pivot"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
			// A launcher that is started without words says how it is used.
			finish(t, cmd).refused(t, 125, "usage: ")
		})
	}
}

func TestExitCodesAndSignalsPass(t *testing.T) {
	w := newWorld(t)
	everyStart(t, func(t *testing.T, how start) {
		for _, p := range []policy.Policy{{}, private(policy.Policy{})} {
			w.sh(t, how, p, "exit 7").wants(t, 7, "")
			for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV, unix.SIGINT} {
				w.sh(t, how, p, fmt.Sprintf("kill -%d $$", sig)).wants(t, 128+int(sig), "")
			}
		}
	})
}

func TestSignalsReachTheCommand(t *testing.T) {
	w := newWorld(t)
	config := w.write(t, "policy.json", fmt.Sprintf(`{"work_dir":%q,"private_tmp":true}`, w.dir))
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGINT} {
		cmd := w.command(plainly, runner, "--config", config, "--", "/bin/sh", "-c",
			"trap 'echo caught; exit 9' TERM HUP USR1 INT; echo ready; while :; do read x; done")
		cmd.SysProcAttr.Setsid = true // no terminal
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(stdout)
		if line, err := lines.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(lines)
		_ = cmd.Wait()
		stdin.Close()
		if string(rest) != "caught\n" || cmd.ProcessState.ExitCode() != 9 {
			t.Errorf("%v: %q, %v", sig, rest, cmd.ProcessState)
		}
	}
}

// TestS20 kills the launcher at every stage; the command holds the write end of
// a pipe, which ends only when no process of it is left.
func TestS20TheCommandDiesWithTheLauncher(t *testing.T) {
	w := newWorld(t)
	config := w.write(t, "policy.json", fmt.Sprintf(`{"work_dir":%q,"private_tmp":true}`, w.dir))
	for range 50 {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := w.command(plainly, runner, "--config", config, "--", "/bin/sleep", "60")
		cmd.Stdout = writer
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond)))) // the random moment that the case asks for
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if err := reader.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := reader.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("the command outlived the launcher: %v", err)
		}
		reader.Close()
	}
}

func TestS05KilledAtAnyMomentItLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "p/.app/state")
	w.write(t, "p/.app/state/f", "text")
	w.write(t, "p/secret", "secret")
	w.mkdir(t, "p/planning")
	w.mkdir(t, "run/slot01")
	text := fmt.Sprintf(`{"work_dir":%[1]q,"private_tmp":true,"private_pts":true,"write_paths":[%[1]q],"read_paths":["/srv/release"],
		"private_roots":[%[2]q],"hidden_paths":[%[3]q,%[4]q],"read_only_overlays":[%[5]q,%[6]q]}`,
		w.path("p"), w.path("run"), w.path("p/secret"), w.path("p/.git/config"), w.path("p/planning"), w.path("p/.app/state"))
	config := w.write(t, "policy.json", text)
	before, mounts := scan(t, "/srv"), readFile(t, "/proc/self/mountinfo")
	everyStart(t, func(t *testing.T, how start) {
		for range 50 {
			cmd := w.command(how, runner, "--config", config, "--", "/bin/sleep", "60")
			cmd.SysProcAttr.Setpgid = true
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.Int64N(int64(30 * time.Millisecond)))) // the random moment that the case asks for
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			_ = cmd.Wait()
		}
		if after := scan(t, "/srv"); after != before {
			t.Errorf("the tree changed:\n%s\nwas\n%s", after, before)
		}
		if after := readFile(t, "/proc/self/mountinfo"); after != mounts {
			t.Errorf("the mounts changed:\n%s\nwas\n%s", after, mounts)
		}
	})
}

// scan describes every file below a folder: name, type, mode, owner, times,
// content.
func scan(t *testing.T, top string) string {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		fmt.Fprintln(&all, name, st.Mode, st.Uid, st.Gid, st.Ino, st.Size, st.Mtim, st.Ctim)
		if entry.Type().IsRegular() && !strings.HasPrefix(name, runnerDir) {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, "%q\n", content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
