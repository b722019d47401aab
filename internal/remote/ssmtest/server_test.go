package ssmtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// awscli is Debian's, by its full path: another one may lie before it on PATH.
const awscli = "/usr/bin/aws"

func start(t *testing.T, run Run) (*Server, func(args ...string) (string, error)) {
	t.Helper()
	s := New("us-west-2", run)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, func(args ...string) (string, error) {
		cmd := exec.Command(awscli, append([]string{"--endpoint-url", srv.URL, "--region", "us-west-2", "--output", "json"}, args...)...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=x", "AWS_MAX_ATTEMPTS=1", "AWS_EC2_METADATA_DISABLED=true"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// The stand-in is not judged by our own reading of the protocol alone: Debian's
// awscli is another client of it.
func TestIndependentClient(t *testing.T) {
	s, aws := start(t, func(_ context.Context, id, script string) (string, string, int) {
		return id + " ran " + script + strings.Repeat("x", 30000), "some error", 7
	})
	s.Register("i-0123456789abcdef0", map[string]string{"Name": "one"})
	out, err := aws("ssm", "describe-instance-information", "--filters", "Key=tag:Name,Values=one")
	if err != nil || !strings.Contains(out, `"PingStatus": "Online"`) {
		t.Fatalf("describe: %v\n%s", err, out)
	}
	out, err = aws("ssm", "send-command", "--document-name", document, "--instance-ids", "i-0123456789abcdef0", "--parameters", `{"commands":["echo 'a b'"],"executionTimeout":["60"]}`)
	if err != nil {
		t.Fatalf("send: %v\n%s", err, out)
	}
	var sent struct{ Command struct{ CommandId string } }
	if err := json.Unmarshal([]byte(out), &sent); err != nil {
		t.Fatal(err)
	}
	s.Wait()
	out, err = aws("ssm", "get-command-invocation", "--command-id", sent.Command.CommandId, "--instance-id", "i-0123456789abcdef0")
	if err != nil {
		t.Fatalf("get: %v\n%s", err, out)
	}
	var got struct {
		Status, StandardOutputContent, StandardErrorContent string
		ResponseCode                                        int
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Status != "Failed" || got.ResponseCode != 7 || got.StandardErrorContent != "some error" || len(got.StandardOutputContent) != StdoutLimit || !strings.HasSuffix(got.StandardOutputContent, cutSuffix) {
		t.Errorf("status %s, code %d, stderr %q, %d bytes of stdout", got.Status, got.ResponseCode, got.StandardErrorContent, len(got.StandardOutputContent))
	}
	if !strings.HasPrefix(got.StandardOutputContent, "i-0123456789abcdef0 ran echo 'a b'") {
		t.Errorf("stdout begins %.60q", got.StandardOutputContent)
	}
	out, err = aws("ssm", "list-command-invocations", "--command-id", sent.Command.CommandId, "--details")
	if err != nil || !strings.Contains(out, `"ResponseCode": 7`) {
		t.Errorf("list: %v\n%s", err, out)
	}
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"InvalidInstanceId", []string{"ssm", "send-command", "--document-name", document, "--instance-ids", "i-0000000000000dead", "--parameters", `{"commands":["true"]}`}},
		{"InvalidParameters", []string{"ssm", "send-command", "--document-name", document, "--instance-ids", "i-0123456789abcdef0", "--parameters", `{"commands":["true"],"executionTimeout":["172801"]}`}},
		{"InvocationDoesNotExist", []string{"ssm", "get-command-invocation", "--command-id", sent.Command.CommandId, "--instance-id", "i-0000000000000dead"}},
	} {
		if out, err := aws(tt.args...); err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %v, want %s:\n%s", tt.args[1], err, tt.want, out)
		}
	}
	s.Play(Faults{Expired: true})
	if out, err := aws("ssm", "describe-instance-information"); err == nil || !strings.Contains(out, "ExpiredTokenException") {
		t.Errorf("expired: %v\n%s", err, out)
	}
	s.AddStack("prod", map[string]string{"InstanceId": "i-0123456789abcdef0"})
	if out, err := aws("cloudformation", "describe-stacks", "--stack-name", "prod"); err != nil || !strings.Contains(out, "i-0123456789abcdef0") {
		t.Errorf("stack: %v\n%s", err, out)
	}
}

// The service's published model, from Debian's python3-botocore, validates each
// kind of answer: every member must be known to it, and of its type.
func TestPublishedModel(t *testing.T) {
	models, err := filepath.Glob("/usr/lib/python3/dist-packages/botocore/data/ssm/*/service-2.json")
	if err != nil || len(models) == 0 {
		t.Fatalf("the model of python3-botocore is not installed: %v", err)
	}
	data, err := os.ReadFile(models[len(models)-1])
	if err != nil {
		t.Fatal(err)
	}
	var m model
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	s := New("r", func(context.Context, string, string) (string, string, int) { return "out", "err", 1 })
	s.Register("i-0123456789abcdef0", nil)
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+s.AccessKey+"/20260101/r/ssm/aws4_request, x")
	sent, f := s.send(r, input{"DocumentName": document, "InstanceIds": []any{"i-0123456789abcdef0"}, "Parameters": map[string]any{"commands": []any{"true"}}})
	if f != nil {
		t.Fatal(f)
	}
	id := sent.(map[string]any)["Command"].(map[string]any)["CommandId"]
	s.Wait()
	check := func(shape string, doc any, f *fault) {
		t.Helper()
		if f != nil {
			t.Fatal(f)
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		_ = json.Unmarshal(raw, &v)
		for _, fault := range m.check(shape, v, shape) {
			t.Error(fault)
		}
	}
	check("SendCommandResult", sent, nil)
	got, f := s.get(r, input{"CommandId": id, "InstanceId": "i-0123456789abcdef0"})
	check("GetCommandInvocationResult", got, f)
	got, f = s.list(r, input{"CommandId": id, "Details": true})
	check("ListCommandInvocationsResult", got, f)
	got, f = s.describe(r, input{})
	check("DescribeInstanceInformationResult", got, f)
	got, f = s.cancelCommand(r, input{"CommandId": id})
	check("CancelCommandResult", got, f)
}

type model struct {
	Shapes map[string]struct {
		Type    string
		Members map[string]struct{ Shape string }
		Member  struct{ Shape string }
		Value   struct{ Shape string }
		Enum    []string
	}
}

func (m model) check(shape string, v any, at string) (faults []string) {
	s, ok := m.Shapes[shape]
	if !ok {
		return []string{at + ": the model has no shape " + shape}
	}
	if v == nil {
		return nil
	}
	wrong := []string{fmt.Sprintf("%s: %T is no %s", at, v, s.Type)}
	switch s.Type {
	case "structure":
		o, ok := v.(map[string]any)
		if !ok {
			return wrong
		}
		for k, e := range o {
			member, ok := s.Members[k]
			if !ok {
				faults = append(faults, at+": unknown member "+k)
				continue
			}
			faults = append(faults, m.check(member.Shape, e, at+"."+k)...)
		}
	case "list":
		l, ok := v.([]any)
		if !ok {
			return wrong
		}
		for _, e := range l {
			faults = append(faults, m.check(s.Member.Shape, e, at+"[]")...)
		}
	case "map":
		o, ok := v.(map[string]any)
		if !ok {
			return wrong
		}
		for k, e := range o {
			faults = append(faults, m.check(s.Value.Shape, e, at+"."+k)...)
		}
	case "string":
		text, ok := v.(string)
		if !ok {
			return wrong
		}
		for _, e := range s.Enum {
			if e == text {
				return nil
			}
		}
		if len(s.Enum) > 0 {
			return []string{fmt.Sprintf("%s: %q is none of %v", at, text, s.Enum)}
		}
	case "integer", "timestamp", "long":
		if _, ok := v.(float64); !ok {
			return wrong
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return wrong
		}
	}
	return faults
}
