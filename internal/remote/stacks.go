package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"

	"agentworks-deploy/internal/report"
)

// CloudFormation is asked one thing, in its query protocol. Its own client would
// make the program 1 MB larger and every start of it 5% slower.
const (
	stacksVersion = "2010-05-15"
	stacksAnswer  = 4 << 20
	stacksTries   = 5
)

type stacksReply struct {
	Stacks []struct {
		Outputs []struct {
			OutputKey, OutputValue string
		} `xml:"Outputs>member"`
	} `xml:"DescribeStacksResult>Stacks>member"`
}

type stacksFault struct {
	Error struct{ Code, Message string }
}

// stackOutput looks one output of a stack up.
func (s *ssmService) stackOutput(ctx context.Context, stack, output string) (string, error) {
	reply, err := s.describeStack(ctx, stack)
	for try := 1; throttled(err) && try < stacksTries; try++ {
		if err := sleep(ctx, jitter(time.Second<<try)); err != nil {
			return "", context.Cause(ctx)
		}
		reply, err = s.describeStack(ctx, stack)
	}
	if err != nil {
		return "", s.explain(err, "look up stack "+stack)
	}
	for _, st := range reply.Stacks {
		for _, o := range st.Outputs {
			if o.OutputKey == output {
				return o.OutputValue, nil
			}
		}
	}
	return "", report.Coded(report.ExitUnfinished, "stack %s in %s has no output %s", stack, s.way.Region, output)
}

func (s *ssmService) describeStack(ctx context.Context, stack string) (*stacksReply, error) {
	form := url.Values{"Action": {"DescribeStacks"}, "Version": {stacksVersion}, "StackName": {stack}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, stacksEndpoint(s.config.Region), strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	credentials, err := s.config.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("get credentials: %w", err)
	}
	sum := sha256.Sum256([]byte(form))
	if err := v4.NewSigner().SignHTTP(ctx, aws.Credentials(credentials), req, hex.EncodeToString(sum[:]), "cloudformation", s.config.Region, time.Now()); err != nil {
		return nil, err
	}
	answer, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, stacksAnswer))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		var fault stacksFault
		if err := xml.Unmarshal(text, &fault); err != nil || fault.Error.Code == "" {
			return nil, fmt.Errorf("CloudFormation answers %s", answer.Status)
		}
		return nil, &smithy.GenericAPIError{Code: fault.Error.Code, Message: fault.Error.Message}
	}
	var reply stacksReply
	if err := xml.Unmarshal(text, &reply); err != nil {
		return nil, fmt.Errorf("read CloudFormation's answer: %w", err)
	}
	return &reply, nil
}

// stacksEndpoint is where CloudFormation is; AWS_ENDPOINT_URL_CLOUDFORMATION
// counts, as it does for AWS's own tools.
func stacksEndpoint(region string) string {
	if other := os.Getenv("AWS_ENDPOINT_URL_CLOUDFORMATION"); other != "" {
		return strings.TrimSuffix(other, "/") + "/"
	}
	return "https://cloudformation." + region + "." + awsDomain(region) + "/"
}

func awsDomain(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}

func throttled(err error) bool {
	fault, ok := err.(*smithy.GenericAPIError)
	return ok && (fault.Code == "Throttling" || fault.Code == "ThrottlingException")
}
