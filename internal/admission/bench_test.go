package admission

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworks-deploy/internal/hosts"
)

// The platform of the promise: 10,000 manifests of 200 users, 2,000 secrets in
// 50 folders of Vault, a store for every tenth project.
const (
	benchUsers     = 200
	benchManifests = 10_000
	benchFolders   = 50
	benchSecrets   = 2000
)

func benchName(i int) string { return fmt.Sprintf("f%02d/SECRET_%d", i%benchFolders, i/benchFolders) }

// benchDocs makes the tree and answers with its path. Each manifest selects
// three names, so that each secret is selected fifteen times.
func benchDocs(b *testing.B) string {
	b.Helper()
	root := b.TempDir()
	write := func(name, content string) {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for i := range benchManifests {
		user := fmt.Sprintf("_users/u%d", i%benchUsers)
		project := fmt.Sprintf("%s/Chats/Work/projects/p%d", user, i)
		write(project+"/product.json", manifest(b, []string{"LOCAL"}, []string{benchName(3 * i % benchSecrets), benchName((3*i + 1) % benchSecrets), benchName((3*i + 2) % benchSecrets)}))
		if i%10 == 0 {
			name, content := ownStore(project, "LOCAL")
			write(user+"/"+name, content)
		}
	}
	return root
}

// benchVault is the stand-in as a process of its own, so that its work is not
// counted as the scan's.
func benchVault(b *testing.B) (addr, token string) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "ADMISSION_TEST_VAULT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := fmt.Fscan(out, &addr, &token); err != nil {
		b.Fatalf("the stand-in does not start: %v", err)
	}
	return addr, token
}

// cpu is the time that this process or its ended children have computed.
func cpu(who int) time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(who, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// counting counts the requests that go through it.
type counting struct {
	metadata, other int
}

func (c *counting) count(r string) {
	if strings.HasPrefix(r, "GET secret/metadata/") {
		c.metadata++
	} else {
		c.other++
	}
}

// BenchmarkScan prints the CPU time of a whole scan, its memory and requests,
// and how many times as long a straightforward scan without Vault computes.
func BenchmarkScan(b *testing.B) {
	root := benchDocs(b)
	addr, token := benchVault(b)
	lookup := func(k string) string { return map[string]string{"VAULT_TOKEN": token}[k] }
	c := hosts.Vault{Address: addr, Mount: "secret", Prefix: "shared", PlatformGroup: "platform"}
	var spent time.Duration
	for b.Loop() {
		began := cpu(syscall.RUSAGE_SELF)
		f, err := Collect(context.Background(), root, Environment{Lookup: lookup})
		if err != nil || f.Manifests != benchManifests {
			b.Fatalf("%d manifests, %v", f.Manifests, err)
		}
		a := AskVault(context.Background(), c, lookup, f)
		rows := Judge(f, a, c)
		spent += cpu(syscall.RUSAGE_SELF) - began
		if len(a.Exists) != benchSecrets+1 || len(a.Granted) != benchSecrets+1 { // and LOCAL
			b.Fatalf("%d of %d names known, %d granted: %v", len(a.Exists), benchSecrets, len(a.Granted), rows[len(rows)-1])
		}
	}
	b.ReportMetric(spent.Seconds()/float64(b.N), "cpu-s/scan")

	began := cpu(syscall.RUSAGE_CHILDREN)
	said, err := exec.Command("python3", "testdata/scan.py", root).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(said), fmt.Sprint(benchManifests)) {
		b.Fatalf("the straightforward scan: %v: %s", err, said)
	}
	b.ReportMetric((cpu(syscall.RUSAGE_CHILDREN)-began).Seconds()/(spent.Seconds()/float64(b.N)), "x-python")

	resp, err := http.Get(addr + "/requests")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var n counting
	var line string
	for {
		var method, path string
		if _, err := fmt.Fscan(resp.Body, &method, &path); err != nil {
			break
		}
		line = method + " " + path
		n.count(line)
	}
	b.ReportMetric(float64(n.metadata)/float64(b.N), "metadata-reads/scan")
	b.ReportMetric(float64(n.other)/float64(b.N), "requests/scan")
}
