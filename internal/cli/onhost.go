package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

// uploadLock is the descriptor on which the upload script hands over the lock
// of the folder this program was uploaded to.
const uploadLock = 9

// onHost is the host's half: another run of this program starts it through a
// channel and speaks the protocol of package onhost with it.
func (a *app) onHost() *cobra.Command {
	var protocol bool
	var uploaded string
	cmd := a.command(doc{
		use:     "on-host",
		short:   "Serve one verb on the host (started by another run of this program)",
		example: program + " on-host --protocol",
		args:    cobra.NoArgs,
	}, func(ctx context.Context, _ []string) (int, error) {
		if protocol {
			_, err := fmt.Fprintln(a.stdout, onhost.Protocol)
			return report.ExitOK, err
		}
		if err := a.settle(uploaded); err != nil {
			return 0, err
		}
		if err := onhost.AdoptOrphans(); err != nil {
			return 0, fmt.Errorf("become the parent of orphans: %w", err)
		}
		return onhost.NewServer(version()).Serve(ctx, a.stdin, a.stdout, a.stderr), nil
	})
	cmd.Hidden = true
	cmd.Flags().BoolVar(&protocol, "protocol", false, "print the protocol's version and end")
	cmd.Flags().StringVar(&uploaded, "uploaded", "", "this program was just uploaded: keep or remove its file")
	return cmd
}

// settle ends an upload: the file goes when it was sent for this run alone, its
// folder when nothing else is in it, and then the folder's lock.
func (a *app) settle(uploaded string) error {
	switch uploaded {
	case "":
		return nil
	case "remove":
		if err := os.Remove(a.self); err != nil {
			return fmt.Errorf("remove the uploaded program: %w", err)
		}
		_ = os.Remove(filepath.Dir(a.self)) // refused while it holds anything
	}
	return os.NewFile(uploadLock, "upload lock").Close()
}
