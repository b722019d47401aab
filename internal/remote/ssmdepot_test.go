package remote

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/remote/ssmtest"
	"agentworks-deploy/internal/report"
)

func depot(t *testing.T) (*ssmChannel, *ssmtest.Bucket) {
	t.Helper()
	c, _ := quick(t, shell, nil)
	b := ssmtest.NewBucket("us-west-2")
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	t.Setenv("AWS_ENDPOINT_URL_S3", srv.URL)
	c.way.Bucket = "deploy-bucket"
	return c, b
}

func TestDepotHandsAFileOver(t *testing.T) {
	c, b := depot(t)
	address, remove, err := c.Put(t.Context(), "half-0123", strings.NewReader("program"), 7)
	if err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command("curl", "-q", "-sSf", address).CombinedOutput()
	if err != nil || string(got) != "program" {
		t.Errorf("%q, %v", got, err)
	}
	err = remove(t.Context())
	if left, _ := b.Objects(); err != nil || len(left) > 0 {
		t.Errorf("%v, left: %v", err, left)
	}
}

func TestDepotFaults(t *testing.T) {
	c, b := depot(t)
	b.Deny()
	_, remove, err := c.Put(t.Context(), "half", bytes.NewReader(nil), 0)
	if remove != nil {
		t.Error("a refused file is to be removed")
	}
	if report.CodeOf(err) != report.ExitUnfinished || !strings.Contains(err.Error(), "403 Forbidden") || strings.Contains(err.Error(), "Signature") {
		t.Errorf("%v", err)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
	_, _, err = c.Put(t.Context(), "half", bytes.NewReader(nil), 0)
	if report.CodeOf(err) != report.ExitUnfinished || strings.Contains(err.Error(), "Signature") {
		t.Errorf("%v", err)
	}
	elsewhere := httptest.NewServer(http.RedirectHandler("https://elsewhere.example/", http.StatusMovedPermanently))
	defer elsewhere.Close()
	t.Setenv("AWS_ENDPOINT_URL_S3", elsewhere.URL)
	_, _, err = c.Put(t.Context(), "half", bytes.NewReader(nil), 0)
	if report.CodeOf(err) != report.ExitUnfinished || !strings.Contains(err.Error(), "S3 answers 301") || !strings.Contains(err.Error(), "may profile default use it?") {
		t.Errorf("%v", err)
	}
	c.way.Bucket = ""
	if _, _, err := c.Put(t.Context(), "half", bytes.NewReader(nil), 0); err == nil || err.Error() != "channels.admin.ssm.bucket is not set" {
		t.Errorf("%v", err)
	}
}

// A caller that is interrupted, or loses the connection, while the file is taken
// does not know whether it lies there, and can take it away all the same.
func TestDepotTakesBackWhatMayLieThere(t *testing.T) {
	c, b := depot(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.ServeHTTP(httptest.NewRecorder(), r)
		if r.Method == http.MethodPut {
			interrupt()
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	t.Setenv("AWS_ENDPOINT_URL_S3", srv.URL)
	_, remove, err := c.Put(ctx, "half", strings.NewReader("program"), 7)
	if there, _ := b.Objects(); err == nil || remove == nil || len(there) != 1 {
		t.Fatalf("%v, there: %v", err, there)
	}
	if err := remove(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := b.Objects(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Debian's awscli signs the same address in the same second.
func TestDepotSignsAsAWSDoes(t *testing.T) {
	c, _ := depot(t)
	if err := c.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, "/usr/bin/aws", "s3", "presign", "s3://deploy-bucket/agentworks-deploy/half-0123", "--expires-in", "600", "--region", "us-west-2", "--endpoint-url", os.Getenv("AWS_ENDPOINT_URL_S3"))
		var theirs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &theirs, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		ours := map[string]url.Values{}
		for running := true; running; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				running = false
			case <-time.After(100 * time.Millisecond):
			}
			address, err := c.sign(t.Context(), http.MethodGet, "agentworks-deploy/half-0123")
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			ours[u.Query().Get("X-Amz-Date")] = u.Query()
		}
		u, err := url.Parse(strings.TrimSpace(theirs.String()))
		if err != nil {
			t.Fatal(err)
		}
		mine, ok := ours[u.Query().Get("X-Amz-Date")]
		if !ok {
			continue
		}
		mine.Del("x-id")
		if mine.Encode() != u.Query().Encode() {
			t.Errorf("we sign\n%s\nawscli signs\n%s", mine.Encode(), u.Query().Encode())
		}
		return
	}
	t.Fatal("never in the same second")
}
