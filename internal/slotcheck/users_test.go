package slotcheck

import (
	"context"
	"os"
	"strings"
	"testing"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

func TestV01AccountsWithoutSlot(t *testing.T) {
	const two = `{"users":[{"id":"u1","email":"a@example.com"},{"id":"u2"},{"id":"u3","disabled":true},{"email":"x@example.com"}]}`
	tests := []struct {
		mode, table, users string
		want               report.State
	}{
		{"off", `{"slots":{}}`, two, report.Fail},
		{"", `{"slots":{}}`, `{"users":[{"id":"u1"},{"id":"u2","disabled":true}]}`, report.Pass},
		{"ON", `{"slots":{"slot01":"u1"}}`, two, report.Fail},
		{"on", `{"slots":{"slot01":"u1","slot02":"u2"}}`, two, report.Pass},
		{"optin", `{"slots":{"slot01":"u1"}}`, two, report.Warn},
		{"on", `{"slots":{}}`, `{"users":[]}`, report.Pass},
		{"on", `{"slots":{}}`, `{"users":`, report.Error},
		{"on", `{"slots":{}}`, "", report.Skip},
	}
	for _, tt := range tests {
		t.Run(tt.mode+" "+string(tt.want), func(t *testing.T) {
			h := hosts.Host{Product: "vs", Paths: hosts.Paths{App: t.TempDir()}}
			a := &audit{layout: h.Layout(), settings: settings{keySlots: tt.mode}}
			var err error
			if a.table, err = slots.ParseTable([]byte(tt.table), "slot"); err != nil {
				t.Fatal(err)
			}
			if tt.users != "" {
				if err := os.MkdirAll(a.layout.DocsConfig(), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(a.layout.UsersFile(), []byte(tt.users), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			rows := checkAccountsWithoutSlot(context.Background(), a, subject{})
			if len(rows) != 1 || rows[0].State != tt.want {
				t.Fatalf("%+v, want one %s", rows, tt.want)
			}
			for _, id := range []string{"u1", "u2", "example"} {
				if strings.Contains(rows[0].Detail, id) {
					t.Errorf("%q tells who", rows[0].Detail)
				}
			}
		})
	}
}
