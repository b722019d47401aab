package remote

import (
	"context"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

func TestLocalServiceAccountIsLookedForBeforeAnythingRuns(t *testing.T) {
	getent := func(_ context.Context, database string, keys ...string) ([]byte, error) {
		if database == "passwd" {
			return []byte("vs:x:998:998::/srv/vs/home:/bin/sh\n"), nil
		}
		return nil, nil
	}
	for _, c := range []struct {
		product string
		uid     int
		want    string
	}{
		{"vs", 0, ""},
		{"vs", 998, ""},
		{"vs", 1000, "not root and not vs: "},
		{"other", 0, "no account other on this machine: "},
		{"other", 1000, "no account other on this machine: "},
	} {
		err := (&local{role: Service, account: c.product, getent: getent}).reach(t.Context(), c.uid)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s as %d: %v", c.product, c.uid, err)
			}
			continue
		}
		if report.CodeOf(err) != report.ExitUsage || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s as %d: %v (%d), want %q", c.product, c.uid, err, report.CodeOf(err), c.want)
		}
	}
}
