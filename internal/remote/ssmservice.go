package remote

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

const (
	ssmDocument  = "AWS-RunShellScript"
	ssmDelivery  = 120 * time.Second // for the agent to take a command up
	ssmExecution = time.Hour         // for the command to end; between the 5 s and 172,800 s that the service keeps
	ssmMinExec   = 5 * time.Second
	ssmMaxExec   = 172800 * time.Second
	ssmIDs       = 50 // instances of one send

	ssmFirstPoll = 250 * time.Millisecond
	ssmLastPoll  = 3 * time.Second
	ssmHeartbeat = 10 * time.Second
	ssmAppears   = 30 * time.Second // for a command just sent to be known
)

// ssmService is the API client of one region and profile.
type ssmService struct {
	api    *ssm.Client
	config aws.Config
	http   *http.Client // for S3 and CloudFormation
	way    hosts.SSMChannel
	key    string // of way in the host file
	// patience with a command; values so that tests need not wait
	execution, firstPoll, lastPoll, heartbeat, appears time.Duration
}

// connectSSM loads credentials the way AWS's own tools do, without the lines that
// the SDK would write to standard error. Endpoints follow
// AWS_ENDPOINT_URL_SSM and AWS_ENDPOINT_URL_CLOUDFORMATION.
func connectSSM(ctx context.Context, way hosts.SSMChannel, key string) (*ssmService, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(way.Region), config.WithSharedConfigProfile(way.Profile), config.WithLogger(logging.Nop{}), config.WithRetryer(func() aws.Retryer {
		return retry.NewStandard(patient)
	}))
	var missing config.SharedConfigProfileNotExistError
	if errors.As(err, &missing) {
		return nil, report.Coded(report.ExitUsage, "the AWS profile %q does not exist in ~/.aws/config: add it, or name another one as %s.profile", way.Profile, key)
	}
	if err != nil {
		return nil, report.Coded(report.ExitUnfinished, "load the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, report.Coded(report.ExitUsage, "no AWS region: set %s.region", key)
	}
	cfg.HTTPClient = ownBody{cfg.HTTPClient}
	return &ssmService{
		api: ssm.NewFromConfig(cfg), config: cfg, way: way, key: key,
		// A signed address is good for one place: whoever points elsewhere refuses.
		http:      &http.Client{Timeout: 15 * time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		execution: ssmExecution, firstPoll: ssmFirstPoll, lastPoll: ssmLastPoll, heartbeat: ssmHeartbeat, appears: ssmAppears,
	}, nil
}

// ownBody gives each request a body of its own. The SDK closes the one it made as
// soon as the answer's head is there, which a transport that is still about to see
// its end takes for a failed write: the answer would be lost.
type ownBody struct{ aws.HTTPClient }

func (c ownBody) Do(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		return c.HTTPClient.Do(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	own := req.Clone(req.Context())
	own.Body = io.NopCloser(bytes.NewReader(body))
	return c.HTTPClient.Do(own)
}

// send sends script to the ids or targets of in and returns the command's id.
func (s *ssmService) send(ctx context.Context, script string, in *ssm.SendCommandInput) (string, error) {
	if s.execution < ssmMinExec || s.execution > ssmMaxExec {
		return "", report.Coded(report.ExitUsage, "an execution timeout of %s is outside the %s to %s that the service keeps to", s.execution, ssmMinExec, ssmMaxExec)
	}
	if len(in.InstanceIds) > ssmIDs {
		return "", report.Coded(report.ExitUsage, "%d instances in one send, at most %d", len(in.InstanceIds), ssmIDs)
	}
	in.DocumentName = aws.String(ssmDocument)
	in.Comment = aws.String("agentworks-deploy") // at most 100 characters
	in.TimeoutSeconds = aws.Int32(int32(ssmDelivery / time.Second))
	in.Parameters = map[string][]string{"commands": {script}, "executionTimeout": {strconv.Itoa(int(s.execution / time.Second))}}
	out, err := s.api.SendCommand(ctx, in, onlyThrottled)
	var refused smithy.APIError
	switch {
	case errors.As(err, &refused), err != nil && strings.Contains(err.Error(), "get identity"):
		return "", s.explain(err, "send a command")
	case err != nil:
		return "", &LostError{report.Coded(report.ExitUnfinished, "whether a command was sent is unknown: %w; see: aws ssm list-commands --max-items 5 --region %s", s.explain(err, "send a command"), s.way.Region)}
	}
	return aws.ToString(out.Command.CommandId), nil
}

// onlyThrottled lets a send be tried again where the service said that it did
// not take it. After a lost connection nobody knows, and a second send would be a
// second run.
func onlyThrottled(o *ssm.Options) {
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		patient(o)
		o.Retryables = []retry.IsErrorRetryable{retry.RetryableErrorCode{Codes: retry.DefaultThrottleErrorCodes}}
	})
}

// patient waits throttling out, which is the normal case of a fleet; the
// client's own quota of retries would give up (case B51).
func patient(o *retry.StandardOptions) {
	o.MaxAttempts, o.MaxBackoff, o.RateLimiter = 10, 5*time.Second, ratelimit.None
}

// invocation is how a command ended on one instance.
type invocation struct {
	instance       string
	stdout, stderr string
	exit           int
}

// wait polls until the command has ended on the instance. When ctx ends, the
// command is cancelled: nobody is left to read its answer.
func (s *ssmService) wait(ctx context.Context, command, instance string, log io.Writer) (*invocation, error) {
	begun := time.Now()
	deadline := begun.Add(ssmDelivery + s.execution + time.Minute)
	beat := begun.Add(s.heartbeat)
	pause := s.firstPoll
	seen := false
	for {
		if err := sleep(ctx, jitter(pause)); err != nil {
			return nil, s.cancelled(ctx, command, instance)
		}
		pause = min(pause*3/2, s.lastPoll)
		out, err := s.api.GetCommandInvocation(ctx, &ssm.GetCommandInvocationInput{CommandId: &command, InstanceId: &instance})
		var absent *types.InvocationDoesNotExist
		switch {
		case ctx.Err() != nil:
			return nil, s.cancelled(ctx, command, instance)
		case errors.As(err, &absent) && !seen:
			// It takes a moment until a command just sent is known (case B47).
			if time.Since(begun) > s.appears {
				return nil, unknownOutcome(instance, command, s.way, fmt.Sprintf("the service does not know it after %s", s.appears))
			}
			continue
		case err != nil:
			return nil, unknownOutcome(instance, command, s.way, s.explain(err, "ask for its state").Error())
		}
		seen = true
		status := aws.ToString(out.StatusDetails)
		if ended(out.Status) {
			inv := &invocation{instance, aws.ToString(out.StandardOutputContent), aws.ToString(out.StandardErrorContent), int(out.ResponseCode)}
			return inv, outcome(inv, string(out.Status), status, command, s.way)
		}
		if now := time.Now(); now.After(deadline) {
			return nil, unknownOutcome(instance, command, s.way, fmt.Sprintf("it is still %s after %s", status, now.Sub(begun).Round(time.Second)))
		} else if now.After(beat) {
			fmt.Fprintf(log, "ssm %s: command %s is %s, %s\n", instance, command, status, now.Sub(begun).Round(time.Second))
			beat = now.Add(s.heartbeat)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// jitter spreads polls so that many hosts do not ask at once.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// cancelled tells the service to stop a command whose caller was interrupted.
func (s *ssmService) cancelled(ctx context.Context, command, instance string) error {
	cause := context.Cause(ctx)
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer end()
	_, err := s.api.CancelCommand(ctx, &ssm.CancelCommandInput{CommandId: &command, InstanceIds: []string{instance}})
	if err != nil {
		return &LostError{fmt.Errorf("%w; command %s on %s could not be cancelled and may still run: %w", cause, command, instance, s.explain(err, "cancel it"))}
	}
	return &LostError{fmt.Errorf("%w; command %s on %s was cancelled", cause, command, instance)}
}

// online proves that the instance's agent answers.
func (s *ssmService) online(ctx context.Context, instance string) error {
	out, err := s.api.DescribeInstanceInformation(ctx, &ssm.DescribeInstanceInformationInput{
		Filters: []types.InstanceInformationStringFilter{{Key: aws.String("InstanceIds"), Values: []string{instance}}},
	})
	if err != nil {
		return s.explain(err, "ask whether the agent is online")
	}
	if len(out.InstanceInformationList) == 0 {
		return report.Coded(report.ExitUnfinished, "%s is not known to Systems Manager in %s: check the region, the instance and its role; nothing was sent", instance, s.way.Region)
	}
	if ping := out.InstanceInformationList[0].PingStatus; ping != types.PingStatusOnline {
		return report.Coded(report.ExitUnfinished, "the agent of %s is not online (%s): start amazon-ssm-agent there; nothing was sent", instance, ping)
	}
	return nil
}

// instance resolves what the host file names: an id, a stack's output, or a tag.
func (s *ssmService) instance(ctx context.Context, i hosts.SSMInstance) (string, error) {
	switch {
	case i.ID != "":
		return i.ID, nil
	case i.Stack != "":
		return s.stackOutput(ctx, i.Stack, i.Output)
	}
	key, value, _ := strings.Cut(i.Tag, "=")
	out, err := s.api.DescribeInstanceInformation(ctx, &ssm.DescribeInstanceInformationInput{
		Filters: []types.InstanceInformationStringFilter{{Key: aws.String("tag:" + key), Values: []string{value}}},
	})
	if err != nil {
		return "", s.explain(err, "look an instance up by its tag")
	}
	switch n := len(out.InstanceInformationList); {
	case n == 0:
		return "", report.Coded(report.ExitUnfinished, "no managed instance in %s has the tag %s", s.way.Region, i.Tag)
	case n > 1:
		return "", report.Coded(report.ExitUsage, "%d managed instances in %s have the tag %s: name one, or use %s.targets", n, s.way.Region, i.Tag, s.key)
	}
	return aws.ToString(out.InstanceInformationList[0].InstanceId), nil
}

func encodeBase64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
