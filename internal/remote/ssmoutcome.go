package remote

import (
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// ended tells the terminal states of an invocation; Delayed and Cancelling are
// not.
func ended(s types.CommandInvocationStatus) bool {
	switch s {
	case types.CommandInvocationStatusSuccess, types.CommandInvocationStatusFailed, types.CommandInvocationStatusTimedOut, types.CommandInvocationStatusCancelled:
		return true
	}
	return false
}

// outcome judges a terminal state: nil where the program ran to its end and its
// exit code is known, whatever it is (case B53). Details are compared without
// blanks and case: the service's documents write them in two ways.
func outcome(inv *invocation, status, details, command string, way hosts.SSMChannel) error {
	switch strings.ToLower(strings.ReplaceAll(details, " ", "")) {
	case "success":
		return nil
	case "failed":
		if inv.exit >= 0 {
			return nil
		}
		return report.Coded(report.ExitUnfinished, "%s: command %s never started: see the agent's log there, /var/log/amazon/ssm/errors.log", inv.instance, command)
	case "deliverytimedout":
		return report.Coded(report.ExitUnfinished, "%s: command %s was not delivered in time: nothing ran, so send it again once the agent is online", inv.instance, command)
	case "executiontimedout":
		return unknownOutcome(inv.instance, command, way, "it ran out of its time and was ended")
	case "terminated":
		return unknownOutcome(inv.instance, command, way, "it was terminated because too many other invocations failed")
	case "undeliverable":
		return report.Coded(report.ExitUnfinished, "%s: command %s is undeliverable: the instance does not exist or does not answer; nothing ran", inv.instance, command)
	case "invalidplatform":
		return report.Coded(report.ExitUnfinished, "%s: command %s does not fit the instance's platform: is this a Linux instance? nothing ran", inv.instance, command)
	case "accessdenied":
		return report.Coded(report.ExitUnfinished, "%s: command %s was refused: the caller's policy lacks ssm:SendCommand on this instance; nothing ran", inv.instance, command)
	case "cancelled":
		return unknownOutcome(inv.instance, command, way, "somebody cancelled it")
	}
	return unknownOutcome(inv.instance, command, way, "it ended as "+status+" ("+details+")")
}

// unknownOutcome: it may have started, and nobody knows how far it came. Never a
// verdict; the person is told where the truth is.
func unknownOutcome(instance, command string, way hosts.SSMChannel, why string) error {
	see := "aws ssm get-command-invocation --command-id " + command + " --instance-id " + instance + " --region " + way.Region
	if way.Profile != "" {
		see += " --profile " + way.Profile
	}
	return &LostError{report.Coded(report.ExitUnfinished, "%s: the outcome of command %s is unknown: %s; see: %s", instance, command, why, see)}
}

// explain is one line on a failed API call, with the next step.
func (s *ssmService) explain(err error, doing string) error {
	profile := s.way.Profile
	if profile == "" {
		profile = "default"
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode() {
		case "ExpiredTokenException", "ExpiredToken", "RequestExpired":
			return report.Coded(report.ExitUnfinished, "%s: the AWS credentials of profile %s are expired: log in again (aws sso login --profile %s)", doing, profile, profile)
		case "UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "SignatureDoesNotMatch", "MissingAuthenticationTokenException", "MissingAuthenticationToken":
			return report.Coded(report.ExitUnfinished, "%s: AWS does not accept the credentials of profile %s: check them with aws sts get-caller-identity --profile %s", doing, profile, profile)
		case "AccessDeniedException", "AccessDenied", "UnauthorizedOperation":
			return report.Coded(report.ExitUnfinished, "%s: profile %s may not do this in %s: %s", doing, profile, s.way.Region, api.ErrorMessage())
		case "InvalidInstanceId":
			return report.Coded(report.ExitUnfinished, "%s: Systems Manager in %s does not know the instance, or its agent is stopped: check %s.region and the instance; nothing was sent", doing, s.way.Region, s.key)
		case "ThrottlingException", "RequestLimitExceeded", "Throttling":
			return report.Coded(report.ExitUnfinished, "%s: AWS is still throttling after many tries: try again later", doing)
		}
		return report.Coded(report.ExitUnfinished, "%s: %s: %s", doing, api.ErrorCode(), api.ErrorMessage())
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "refresh cached SSO token"), strings.Contains(text, "SSO session has expired"), strings.Contains(text, "InvalidGrantException"):
		return report.Coded(report.ExitUnfinished, "%s: the SSO session of profile %s has ended: aws sso login --profile %s", doing, profile, profile)
	case strings.Contains(text, "get credentials"), strings.Contains(text, "failed to refresh cached credentials"):
		return report.Coded(report.ExitUnfinished, "%s: no AWS credentials for profile %s: configure them (aws configure --profile %s), or log in (aws sso login --profile %s)", doing, profile, profile, profile)
	case strings.Contains(text, "no such host"):
		return report.Coded(report.ExitUnfinished, "%s: there is no AWS endpoint for region %q: check %s.region", doing, s.way.Region, s.key)
	}
	return report.Coded(report.ExitUnfinished, "%s in %s: %w", doing, s.way.Region, err)
}
