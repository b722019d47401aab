package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/fleet"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

func (a *app) slots() *cobra.Command {
	return a.group(doc{
		use:   "slots",
		short: "Say who holds which slot, give one, take one away",
		long: `Users hold slots, the accounts that their commands run as. The table that says who
holds what is root's; a user holds at most one slot. All of them need the admin
channel.`,
		example: program + " slots assign lab u1\n" + program + " slots status lab\n" + program + " slots release lab u1",
	}, a.slotsAssign(), a.slotsRelease(), a.slotsStatus(), a.slotsRebuild())
}

func (a *app) slotsAssign() *cobra.Command {
	var args onhost.SlotsArgs
	var plan *bool
	cmd := a.command(doc{
		use:   "assign <host> <user-id> [slot]",
		short: "Give a user a slot, and the slot the user's tree",
		long: `Give a user the named slot, or the lowest free one, and open the user's tree to
the slot's group; a tree that is missing is made. A user who holds a slot gets the
same one back. A slot in which somebody else left files or processes is refused
without --adopt.`,
		codes: `  0    the user holds the slot
  1    the slot is held or not clean, none is free, or the host is not provisioned
  2    wrong words: user id, slot name, flag, host file, unknown host, not root
  3    the host could not be reached or the work could not be finished
  4    another run holds the lock
  130  interrupted
`,
		example: program + " slots assign rts aa73da63e26b40a1 slot01\n" + program + " slots assign lab u1 --plan",
	}, func(ctx context.Context, words []string) (int, error) {
		args.User = words[1]
		if len(words) == 3 {
			args.Slot = words[2]
			if args.Slot == "" {
				return 0, report.Coded(report.ExitUsage, "the slot's name is empty")
			}
		}
		return a.change(words[0], "slots assign", func(f *fleet.Fleet, host *hosts.Host) (onhost.Envelope, error) {
			return f.AssignSlot(ctx, host, args, *plan)
		})
	})
	cmd.Flags().BoolVar(&args.Adopt, "adopt", false, "take the slot with what somebody else left in it")
	plan = planFlag(cmd)
	return cmd
}

func (a *app) slotsRelease() *cobra.Command {
	var plan *bool
	cmd := a.command(doc{
		use:   "release <host> <user-id>",
		short: "Take a user's slot away",
		long: `Give the user's tree back to the service account and free the slot. What is in
the slot's home, state and run folders stays, and so do its processes; who held
it is noted for root, and nobody else gets the slot without --adopt while it is
not clean.`,
		codes: `  0    the slot is free
  1    the user holds none, or the host is not provisioned
  2    wrong words: user id, flag, host file, unknown host, not root
  3    the host could not be reached or the work could not be finished
  4    another run holds the lock
  130  interrupted
`,
		example: program + " slots release rts aa73da63e26b40a1",
	}, func(ctx context.Context, words []string) (int, error) {
		return a.change(words[0], "slots release", func(f *fleet.Fleet, host *hosts.Host) (onhost.Envelope, error) {
			return f.ReleaseSlot(ctx, host, onhost.SlotsArgs{User: words[1]}, *plan)
		})
	})
	plan = planFlag(cmd)
	return cmd
}

func (a *app) slotsRebuild() *cobra.Command {
	var plan *bool
	cmd := a.command(doc{
		use:   "rebuild <host>",
		short: "Write a slot table that nobody can read anew, from the users' trees",
		long: `Where the slot table is gone or no program can read it, write it anew: whose tree
has a slot's group holds that slot. The old text is kept beside it. A table that
can be read stays as it is; where two trees have one slot's group, nothing is
written.`,
		codes: `  0    the table can be read
  1    the trees do not say who holds what, or the host is not provisioned
  2    wrong words: flag, host file, unknown host, not root
  3    the host could not be reached or the work could not be finished
  4    another run holds the lock
  130  interrupted
`,
		example: program + " slots rebuild rts --plan",
	}, func(ctx context.Context, words []string) (int, error) {
		return a.change(words[0], "slots rebuild", func(f *fleet.Fleet, host *hosts.Host) (onhost.Envelope, error) {
			return f.RebuildSlots(ctx, host, *plan)
		})
	})
	plan = planFlag(cmd)
	return cmd
}

func (a *app) slotsStatus() *cobra.Command {
	var format string
	cmd := a.command(doc{
		use:   "status <host>",
		short: "Say who holds which slot and what is not as it should be",
		long: `List every slot that somebody holds or left something in, with the entries of its
folders and its processes, and hold the table, its holders' trees and their
accounts against what they should be. Nothing on the host is changed.`,
		codes: `  0    all is as it should be (a warning does not change that)
  1    something is not, or the host is not provisioned
  2    wrong words: flag, host file, unknown host, not root
  3    the host could not be reached or the look could not be finished
  130  interrupted
`,
		example: program + " slots status rts\n" + program + " slots status rts --format json",
	}, func(ctx context.Context, words []string) (int, error) {
		if format != "table" && format != "json" {
			return 0, report.Coded(report.ExitUsage, "%q is no format: table, json", format)
		}
		host, status, err := withHost(a, words[0], func(f *fleet.Fleet, host *hosts.Host) (fleet.Slots, error) { return f.SlotsStatus(ctx, host) })
		if err != nil && len(status.Rows) == 0 {
			return status.Exit, err
		}
		err = errors.Join(err, a.printSlots(status, format))
		if format == "table" {
			a.tellFixes(host, status.Rows)
		}
		return status.Exit, err
	})
	cmd.Flags().StringVar(&format, "format", "table", "form of the answer: table, json")
	return cmd
}

func (a *app) printSlots(s fleet.Slots, format string) error {
	if format == "json" {
		enc := json.NewEncoder(a.stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	}
	table := report.NewTable("SLOT", "HOLDER", "HOME", "STATE", "RUN", "PROCESSES").Fit(a.style().Width)
	var listed bool
	for _, slot := range s.Slots {
		if slot.User == "" && slot.Clean() {
			continue
		}
		holder := slot.User
		if holder == "" {
			holder = "-"
		}
		table.Add(slot.Slot, holder, strconv.Itoa(slot.Home), strconv.Itoa(slot.State), strconv.Itoa(slot.Run), strconv.Itoa(slot.Processes))
		listed = true
	}
	if listed {
		if err := table.Write(a.stdout); err != nil {
			return fmt.Errorf("print the slots: %w", err)
		}
	}
	return report.WriteRows(a.stdout, s.Rows, a.style())
}
