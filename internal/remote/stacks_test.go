package remote

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

// judge recomputes a request's signature with botocore, from what was received:
// words are the body, the host and the signed headers "name:value".
const judge = `
import sys
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
body, url, date, key = sys.argv[1:5]
request = AWSRequest(method="POST", url=url, data=body)
for header in sys.argv[5:]:
    name, value = header.split(":", 1)
    request.headers[name] = value
auth = SigV4Auth(Credentials(key, "x"), "cloudformation", "us-west-2")
request.context["timestamp"] = date
print(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))
`

func TestStacksRequestIsSignedAsAWSDoes(t *testing.T) {
	c, _ := quick(t, shell, nil)
	if err := c.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	var said, want string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		authorization := r.Header.Get("Authorization")
		_, said, _ = strings.Cut(authorization, "Signature=")
		_, signed, _ := strings.Cut(authorization, "SignedHeaders=")
		signed, _, _ = strings.Cut(signed, ",")
		_, credential, _ := strings.Cut(authorization, "Credential=")
		key, _, _ := strings.Cut(credential, "/")
		argv := []string{"-c", judge, string(body), "http://" + r.Host + "/", r.Header.Get("X-Amz-Date"), key}
		for name := range strings.SplitSeq(signed, ";") {
			value := r.Header.Get(name)
			switch name {
			case "host":
				value = r.Host
			case "content-length":
				value = r.Header.Get("Content-Length")
			}
			argv = append(argv, name+":"+value)
		}
		out, err := exec.Command("/usr/bin/python3", argv...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		want = strings.TrimSpace(string(out))
		_, _ = io.WriteString(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><Outputs><member><OutputKey>Id</OutputKey><OutputValue>i-1</OutputValue></member></Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
	}))
	defer srv.Close()
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", srv.URL)
	got, err := c.service.stackOutput(t.Context(), "a stack&b", "Id")
	if err != nil || got != "i-1" {
		t.Fatalf("%q, %v", got, err)
	}
	if said == "" || said != want {
		t.Errorf("signed %q, botocore signs %q", said, want)
	}
}

func TestB51StacksWaitForThrottling(t *testing.T) {
	c, _ := quick(t, shell, nil)
	if err := c.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls, code := 0, "Throttling"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "<ErrorResponse><Error><Code>"+code+"</Code><Message>m</Message></Error></ErrorResponse>")
		code = "AccessDenied"
	}))
	defer srv.Close()
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", srv.URL)
	_, err := c.service.stackOutput(t.Context(), "s", "o")
	if calls != 2 || report.CodeOf(err) != report.ExitUnfinished || !strings.Contains(err.Error(), "may not do this in us-west-2") {
		t.Errorf("%d calls, %v", calls, err)
	}
}
