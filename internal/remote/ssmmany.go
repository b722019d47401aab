package remote

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"agentworks-deploy/internal/report"
)

// The list call shows less of an output than the call for one invocation.
const (
	ssmListed = 2500
	ssmPage   = 50
)

// Each is what a command did on one of many instances. Err is set where its end
// is not known, or it never ran.
type Each struct {
	Instance string
	Exit     int
	Stdout   []byte
	Err      error
}

// Many is what a channel also implements that leads to many instances. RunAll
// runs cmd on all of them through the service's own engine and hands each result
// on when it is there; At is the channel to one of them.
type Many interface {
	Narrow
	Many() bool
	RunAll(ctx context.Context, cmd Cmd, done func(Each)) error
	At(instance string) Channel
}

// Many makes the channel one to many instances where the host file says so.
func (c *ssmChannel) Many() bool { return c.way.Many() }

// At is the channel to one of the instances, over the same connection.
func (c *ssmChannel) At(instance string) Channel {
	one := newSSM(c.way, c.key, c.account)
	one.way.Instance.ID = instance
	one.once.Do(func() { one.service, one.instance, one.failed = c.service, instance, c.failed })
	return one
}

// RunAll sends cmd to the tag's instances in one command, or to the ids in
// batches, and reads the results by the page.
func (c *ssmChannel) RunAll(ctx context.Context, cmd Cmd, done func(Each)) error {
	cmd.Argv = c.words(cmd.Argv)
	script, err := ssmCommand(cmd)
	if err != nil {
		return err
	}
	if c.once.Do(func() { c.service, c.failed = c.connect(ctx) }); c.failed != nil {
		return c.failed
	}
	batches, err := c.service.batches(ctx, c, done)
	if err != nil {
		return err
	}
	for _, b := range batches {
		in := &ssm.SendCommandInput{InstanceIds: b.ids}
		if t := c.way.Targets; t.Tag != "" {
			key, value, _ := strings.Cut(t.Tag, "=")
			in.InstanceIds, in.Targets = nil, []types.Target{{Key: aws.String("tag:" + key), Values: []string{value}}}
		}
		if t := c.way.Targets; t.MaxConcurrency != "" {
			in.MaxConcurrency = aws.String(t.MaxConcurrency)
		}
		if t := c.way.Targets; t.MaxErrors != "" {
			in.MaxErrors = aws.String(t.MaxErrors)
		}
		if b.command, err = c.service.send(ctx, script, in); err != nil {
			return err
		}
	}
	for _, b := range batches {
		if err := c.service.collect(ctx, b, orDiscard(cmd.Stderr), done); err != nil {
			return err
		}
	}
	return nil
}

// batch is one send and the instances whose answer is still out.
type batch struct {
	command string
	ids     []string
}

// batches finds out which instances there are. One whose agent is not online is
// reported at once: it would keep the rest waiting.
func (s *ssmService) batches(ctx context.Context, c *ssmChannel, done func(Each)) ([]*batch, error) {
	t := c.way.Targets
	filter := types.InstanceInformationStringFilter{Key: aws.String("InstanceIds"), Values: t.IDs}
	if t.Tag != "" {
		key, value, _ := strings.Cut(t.Tag, "=")
		filter = types.InstanceInformationStringFilter{Key: aws.String("tag:" + key), Values: []string{value}}
	}
	filters := []types.InstanceInformationStringFilter{filter}
	if len(t.IDs) > ssmIDs {
		filters = nil
		for from := 0; from < len(t.IDs); from += ssmIDs {
			filters = append(filters, types.InstanceInformationStringFilter{Key: filter.Key, Values: t.IDs[from:min(from+ssmIDs, len(t.IDs))]})
		}
	}
	known := map[string]bool{}
	var online []string
	for _, f := range filters {
		pages := ssm.NewDescribeInstanceInformationPaginator(s.api, &ssm.DescribeInstanceInformationInput{Filters: []types.InstanceInformationStringFilter{f}, MaxResults: aws.Int32(ssmPage)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, s.explain(err, "list the instances")
			}
			for _, i := range page.InstanceInformationList {
				id := aws.ToString(i.InstanceId)
				known[id] = true
				if i.PingStatus == types.PingStatusOnline {
					online = append(online, id)
					continue
				}
				done(Each{Instance: id, Err: report.Coded(report.ExitUnfinished, "the agent of %s is not online (%s): start amazon-ssm-agent there; its answer is not waited for", id, i.PingStatus)})
			}
		}
	}
	for _, id := range t.IDs {
		if !known[id] {
			done(Each{Instance: id, Err: report.Coded(report.ExitUnfinished, "%s is not known to Systems Manager in %s: check the region, the instance and its role; nothing was sent", id, s.way.Region)})
		}
	}
	if len(known) == 0 && t.Tag != "" {
		return nil, report.Coded(report.ExitUnfinished, "no managed instance in %s has the tag %s", s.way.Region, t.Tag)
	}
	if t.Tag != "" {
		if len(online) == 0 {
			return nil, nil
		}
		return []*batch{{ids: online}}, nil
	}
	var batches []*batch
	for from := 0; from < len(online); from += ssmIDs {
		batches = append(batches, &batch{ids: online[from:min(from+ssmIDs, len(online))]})
	}
	return batches, nil
}

// collect reads the batch's results by the page until all are there. When ctx
// ends, the command is cancelled.
func (s *ssmService) collect(ctx context.Context, b *batch, log io.Writer, done func(Each)) error {
	begun := time.Now()
	deadline, beat, pause := begun.Add(ssmDelivery+s.execution+time.Minute), begun.Add(s.heartbeat), s.firstPoll
	open := map[string]bool{}
	for _, id := range b.ids {
		open[id] = true
	}
	changed := begun
	for len(open) > 0 {
		if err := sleep(ctx, jitter(pause)); err != nil {
			return s.cancelledAll(ctx, b, len(open))
		}
		pause = min(pause*3/2, s.lastPoll)
		before := len(open)
		busy, err := s.sweep(ctx, b.command, open, done)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return s.cancelledAll(ctx, b, len(open))
		case err != nil:
			s.giveUp(b, open, s.explain(err, "ask for its state").Error(), done)
		case len(open) < before || busy > 0 && now.Before(deadline):
			changed = now
		case now.After(deadline):
			s.giveUp(b, open, fmt.Sprintf("it has not ended after %s", now.Sub(begun).Round(time.Second)), done)
		case busy == 0 && now.Sub(changed) > s.appears:
			// The engine stops sending after MaxErrors failures.
			for id := range open {
				done(Each{Instance: id, Err: report.Coded(report.ExitUnfinished, "%s: command %s was not sent to it: too many others failed, or it is no target any more; nothing ran", id, b.command)})
				delete(open, id)
			}
		}
		if len(open) > 0 && now.After(beat) {
			fmt.Fprintf(log, "ssm: command %s: %d of %d instances have not ended, %s\n", b.command, len(open), len(b.ids), now.Sub(begun).Round(time.Second))
			beat = now.Add(s.heartbeat)
		}
	}
	return nil
}

func (s *ssmService) giveUp(b *batch, open map[string]bool, why string, done func(Each)) {
	for id := range open {
		done(Each{Instance: id, Err: unknownOutcome(id, b.command, s.way, why)})
		delete(open, id)
	}
}

// sweep reads all pages once and hands on what has ended. Busy counts what has
// begun and not ended. What the list cuts is fetched by itself.
func (s *ssmService) sweep(ctx context.Context, command string, open map[string]bool, done func(Each)) (busy int, err error) {
	pages := ssm.NewListCommandInvocationsPaginator(s.api, &ssm.ListCommandInvocationsInput{CommandId: &command, Details: true, MaxResults: aws.Int32(ssmPage)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return busy, err
		}
		for _, i := range page.CommandInvocations {
			id := aws.ToString(i.InstanceId)
			if !open[id] {
				continue
			}
			if !ended(i.Status) {
				busy++
				continue
			}
			inv := &invocation{instance: id, exit: -1}
			for _, p := range i.CommandPlugins {
				inv.stdout, inv.exit = aws.ToString(p.Output), int(p.ResponseCode)
			}
			e := Each{Instance: id, Err: outcome(inv, string(i.Status), aws.ToString(i.StatusDetails), command, s.way)}
			if e.Err == nil && len(inv.stdout) >= ssmListed-len(ssmCutSuffix) {
				inv, e.Err = s.wait(ctx, command, id, io.Discard)
			}
			if e.Err == nil {
				e.Exit, e.Stdout = inv.exit, []byte(withoutStderr(inv.stdout))
			}
			delete(open, id)
			done(e)
		}
	}
	return busy, nil
}

// withoutStderr cuts off what the list call puts behind standard output.
func withoutStderr(out string) string {
	out, _, _ = strings.Cut(out, "\n----------ERROR-------\n")
	return out
}

// cancelledAll tells the service to stop a command on all its instances.
func (s *ssmService) cancelledAll(ctx context.Context, b *batch, open int) error {
	cause := context.Cause(ctx)
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer end()
	if _, err := s.api.CancelCommand(ctx, &ssm.CancelCommandInput{CommandId: &b.command}); err != nil {
		return fmt.Errorf("%w; command %s could not be cancelled and may still run on %d instances: %w", cause, b.command, open, s.explain(err, "cancel it"))
	}
	return fmt.Errorf("%w; command %s was cancelled on %d instances", cause, b.command, open)
}
