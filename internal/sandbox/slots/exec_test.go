package slots_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentworks-deploy/internal/sandbox/slots"
)

func TestC01ExitCodes(t *testing.T) {
	w := newWorld(t)
	w.want(w.run(call{stdin: w.sh("exit 0")}), 0, "")
	w.want(w.run(call{stdin: w.sh("exit 7")}), 7, "")
	w.want(w.run(call{stdin: w.sh("kill -TERM $$")}), 143, "")
	w.want(w.run(call{stdin: w.sh("kill -KILL $$")}), 137, "")
	w.want(w.run(call{stdin: "{"}), 125, "slotctl: unreadable or malformed request")
	w.want(w.run(call{stdin: w.sh("exit 0") + "more"}), 125, "white space")
	w.want(w.run(call{stdin: w.sh(strings.Repeat("a", slots.MaxRequest))}), 125, "longer than")
	w.want(w.run(call{stdin: w.request(nil, "/usr/bin/id")}), 126, "slotctl: refused: /usr/bin/id is not an allowed program")
	w.want(w.run(call{args: []string{"status"}}), 126, "slotctl: refused: ")
	w.want(w.run(call{args: []string{}}), 126, "slotctl: refused: ")
	w.want(w.run(call{args: []string{"exec", "more"}}), 126, "slotctl: refused: ")
	w.want(w.run(call{args: []string{"exec", "--request-file", "/x", "more"}}), 126, "slotctl: refused: ")
	channel := w.request(func(r *slots.Request) { r.Channel = true }, "/bin/sh")
	w.want(w.run(call{stdin: channel}), 126, "channel is not offered")
}

func TestC02AllowListThroughTheProgram(t *testing.T) {
	w := newWorld(t)
	ok := w.in("releases/r1/bin/runner")
	w.want(w.run(call{stdin: w.request(nil, ok, "--config", "x", "--", "/bin/true")}), 0, "")
	for name, argv := range map[string][]string{
		"unlisted":       {"/usr/bin/id"},
		"relative":       {"bin/sh"},
		"unclean":        {"/bin/../bin/sh"},
		"empty":          {},
		"two segments":   {w.in("releases/a/b/bin/runner")},
		"another folder": {w.in("data/docs/runner")},
		"NUL":            {"/bin/sh", "-c", "a\x00b"},
	} {
		r := w.run(call{stdin: w.request(nil, argv...)})
		if r.exit != 126 || !strings.HasPrefix(r.stderr, "slotctl: refused: ") {
			t.Errorf("%s: exit %d, %q", name, r.exit, r.stderr)
		}
	}
	noEquals := w.request(func(r *slots.Request) { r.Env = []string{"SECRETVALUE"} }, "/bin/sh", "-c", "exit 0")
	r := w.run(call{stdin: noEquals})
	w.want(r, 126, "env entry 0")
	if strings.Contains(r.stderr, "SECRETVALUE") {
		t.Error("the entry itself was shown")
	}
}

func TestC04EnvironmentAndPolicyChannel(t *testing.T) {
	w := newWorld(t)
	env := w.request(func(r *slots.Request) { r.Env = []string{"A=1", "B=x=y z"} }, "/usr/bin/env")
	r := w.run(call{stdin: env, env: []string{"PLATFORM_ONLY_SECRET=s"}})
	if r.exit != 0 || r.stdout != "A=1\nB=x=y z\n" {
		t.Errorf("environment: %+v", r)
	}

	text := "{\"é\": \"\\n\x01 <>&\"}\n\n"
	fd3 := func(argv ...string) string {
		return w.request(func(r *slots.Request) { r.FD3 = &text }, argv...)
	}
	r = w.run(call{stdin: fd3("/bin/sh", "-c", "cat /proc/self/fd/3; cat <&3; echo x >&3")})
	if r.stdout != text+text {
		t.Errorf("descriptor 3 held %q", r.stdout)
	}
	if r.exit == 0 {
		t.Error("the policy could be written")
	}
	r = w.run(call{stdin: fd3("/bin/sh", "-c", "ls -l /proc/self/fd/3; echo a > "+w.in("slots/state/slot01/new")+"; umask")})
	if !strings.Contains(r.stdout, "/memfd:") || !strings.Contains(r.stdout, "0007") {
		t.Errorf("descriptor 3 or umask: %q", r.stdout)
	}
	if st, err := os.Stat(w.in("slots/state/slot01/new")); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("a new file: %v, %v", st, err)
	}
}

func TestC04NothingElseIsInherited(t *testing.T) {
	w := newWorld(t)
	leak, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	r := w.run(call{stdin: w.sh("ls /proc/self/fd; cat; echo end"), fds: []*os.File{leak, leak, leak}})
	// ls itself opens the folder it lists, as 3.
	if r.stdout != "0\n1\n2\n3\nend\n" {
		t.Errorf("descriptors: %q, stderr %q", r.stdout, r.stderr)
	}
	r = w.run(call{stdin: w.sh("test -e /proc/self/fd/3 || echo closed"), fds: []*os.File{leak}})
	if r.stdout != "closed\n" {
		t.Errorf("descriptor 3: %q", r.stdout)
	}
}

func TestC06RequestFile(t *testing.T) {
	w := newWorld(t)
	file := w.in("slots/run/slot01/req.json")
	named := func(p string) []string { return []string{"exec", "--request-file", p} }
	w.file(file, w.sh("cat; exit 3"), svc, slot01, 0o640)
	r := w.run(call{args: named(file), stdin: "from the caller"})
	if r.exit != 3 || r.stdout != "from the caller" {
		t.Errorf("own file: %+v", r)
	}
	if _, err := os.Lstat(file); err == nil {
		t.Error("the request file is still there")
	}

	w.file(file, "{", svc, slot01, 0o640)
	w.want(w.run(call{args: named(file)}), 125, "malformed")

	good := w.sh("echo ran")
	elsewhere := w.in("data/docs/req.json")
	w.file(elsewhere, good, slot01, slot01, 0o640)
	other := w.in("slots/run/slot02/req.json")
	w.file(other, good, svc, slot02, 0o644)
	link := w.in("slots/run/slot01/link")
	w.must(os.Symlink(elsewhere, link))
	dirLink := w.in("slots/run/slot01/dir")
	w.must(os.Symlink(filepath.Dir(elsewhere), dirLink))
	fifo := w.in("slots/run/slot01/fifo")
	w.must(mkfifo(fifo, slot01))
	folder := w.in("slots/run/slot01/folder")
	w.dir(folder, svc, slot01, 0o2770)
	big := w.in("slots/run/slot01/big")
	w.file(big, good, svc, slot01, 0o640)
	w.must(os.Truncate(big, slots.MaxRequest+1))
	for _, p := range []string{
		elsewhere, other, link, dirLink + "/req.json", fifo, folder, big,
		w.in("slots/run/slot01/../slot01/big"), w.in("slots/run/slot01"), "req.json", "", w.in("slots/run/slot01/absent"),
	} {
		r := w.run(call{args: named(p)})
		if r.exit != 126 || strings.Contains(r.stdout, "ran") {
			t.Errorf("%s: %+v", p, r)
		}
	}
	for _, p := range []string{elsewhere, other, link, dirLink, fifo, folder, big} {
		if _, err := os.Lstat(p); err != nil {
			t.Errorf("%s was removed", p)
		}
	}
}

func TestC08ConfigurationCannotBeSteered(t *testing.T) {
	w := newWorld(t)
	evil := w.config
	evil.AllowedExec = []string{"/usr/bin/id"}
	w.config.AllowedExec = []string{"/usr/bin/env"}
	w.writeConfig(0o644)
	other := newWorld(t)
	other.config = evil
	other.writeConfig(0o644)
	r := w.run(call{stdin: w.request(nil, "/usr/bin/id"), env: []string{
		"AGENTWORKS_SLOTCTL_CONFIG=" + filepath.Join(filepath.Dir(other.slotctl), slots.ConfigName),
	}})
	w.want(r, 126, "is not an allowed program")
	// A link to slotctl elsewhere does not bring another config along.
	alias := filepath.Join(filepath.Dir(other.slotctl), "alias")
	w.must(os.Symlink(w.slotctl, alias))
	linked := *w
	linked.slotctl = alias
	w.want(linked.run(call{stdin: w.request(nil, "/usr/bin/id")}), 126, "is not an allowed program")

	w.writeConfig(0o666)
	w.want(w.run(call{stdin: w.request(nil, "/usr/bin/env")}), 126, "writable by group or others")
	w.must(os.Remove(filepath.Join(filepath.Dir(w.slotctl), slots.ConfigName)))
	w.want(w.run(call{stdin: w.request(nil, "/usr/bin/env")}), 126, "slotctl: refused: ")
}

func TestDockerHostIsSlotctlsToGive(t *testing.T) {
	w := newWorld(t)
	env := w.request(func(r *slots.Request) { r.Env = []string{"A=1", "DOCKER_HOST=unix:///run/docker.sock"} }, "/usr/bin/env")
	if r := w.run(call{stdin: env}); r.stdout != "A=1\n" {
		t.Errorf("without slot_docker: %q", r.stdout)
	}
	w.config.SlotDocker = true
	w.writeConfig(0o644)
	if r := w.run(call{stdin: env}); r.stdout != "A=1\nDOCKER_HOST=unix:///run/user/76001/docker.sock\n" {
		t.Errorf("with slot_docker: %q", r.stdout)
	}
}

func TestS29WorkingFolder(t *testing.T) {
	w := newWorld(t)
	at := func(dir string) result {
		return w.run(call{stdin: w.request(func(r *slots.Request) { r.Cwd = dir }, "/bin/sh", "-c", "pwd -P")})
	}
	project := w.in("data/docs/Workflow/wf1")
	w.dir(w.in("data/docs/Workflow"), svc, shared, 0o2770)
	w.dir(project, svc, shared, 0o2770)
	for dir, want := range map[string]string{
		project:                    project,
		project + "/../wf1/":       project,
		w.in("slots/state/slot01"): w.in("slots/state/slot01"),
		w.in("slots/home/slot01"):  w.in("slots/home/slot01"),
	} {
		if r := at(dir); r.exit != 0 || r.stdout != want+"\n" {
			t.Errorf("%s: %+v", dir, r)
		}
	}
	w.must(os.Symlink(project, w.in("slots/state/slot01/in")))
	if r := at(w.in("slots/state/slot01/in")); r.stdout != project+"\n" {
		t.Errorf("a link inside: %+v", r)
	}
	w.must(os.Symlink("/etc", w.in("slots/state/slot01/out")))
	w.must(os.Symlink("/proc/self/cwd", w.in("slots/state/slot01/magic")))
	for _, dir := range []string{
		"/", "/etc", w.root, w.in(""), w.in("data"), w.in("data/docs2"), w.in("slots/state/slot01/out"),
		"/proc/self/fd/3", "/proc/self/cwd", "/proc/1/cwd", "/proc/self/root" + project,
		w.in("slots/state/slot01/magic"), w.in("slots/state/slot02"), w.in("slots/absent"), w.slotctl,
	} {
		if r := at(dir); r.exit != 126 {
			t.Errorf("%s: %+v", dir, r)
		}
	}
	w.want(at("/etc"), 126, "is outside the allowed folders")
	// A root that is a link allows what it leads to (case: docs root behind a link).
	w.must(os.Symlink(w.in("data/docs"), filepath.Join(w.root, "docs")))
	w.config.AllowedCwd = []string{filepath.Join(w.root, "docs")}
	w.writeConfig(0o644)
	if r := at(project); r.exit != 0 {
		t.Errorf("a root behind a link: %+v", r)
	}
}
