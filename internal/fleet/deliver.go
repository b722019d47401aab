package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// delivery brings the files of a verb to a host whose admin channel has no
// stream for them: through the service account, through a bucket, or in pieces.
// Whichever way they come, root copies them to a place of its own and runs what
// has the sha256 that was computed here.
type delivery struct {
	f     *Fleet
	host  *hosts.Host
	admin remote.Channel
	left  []onhost.File // stored with the service account, to be removed there
}

// bring brings files, each the first way that works.
func (d *delivery) bring(ctx context.Context, files []onhost.File) error {
	for _, file := range files {
		var why []string
		for _, way := range []func(context.Context, onhost.File) error{d.service, d.bucket, d.pieces} {
			err := way(ctx, file)
			if err == nil {
				why = nil
				break
			}
			if ctx.Err() != nil {
				return err
			}
			why = append(why, err.Error())
		}
		if why != nil {
			return report.Coded(report.ExitUnfinished, "%s has no %s yet, and no way to get it there worked: %s", d.host.Name, filepath.Base(file.Path), strings.Join(why, "; "))
		}
	}
	return nil
}

// service sends file to the service account, whose channel has a stream.
func (d *delivery) service(ctx context.Context, file onhost.File) error {
	ch, err := d.f.channel(d.host, remote.Service)
	if err != nil {
		return err
	}
	if _, narrow := ch.(remote.Narrow); narrow {
		return errors.New("the service channel has no stream either")
	}
	fmt.Fprintf(d.f.Log, "%s: sent over %s, for root to verify and copy\n", file.Name, ch)
	d.left = append(d.left, file)
	return file.Store(ctx, ch, d.folder())
}

// folder is where the service account may keep programs.
func (d *delivery) folder() string {
	layout := d.host.Layout()
	return layout.ServiceHalves()
}

// bucket lays file down where the host can fetch it.
func (d *delivery) bucket(ctx context.Context, file onhost.File) error {
	depot, ok := d.admin.(remote.Depot)
	if !ok {
		return remote.ErrNoDepot
	}
	data, err := os.Open(file.Path)
	if err != nil {
		return err
	}
	defer data.Close()
	address, remove, err := depot.Put(ctx, file.Name+"-"+file.SHA256(), data, file.Size())
	if err != nil {
		return err
	}
	fmt.Fprintf(d.f.Log, "%s: in the bucket, for root to fetch and verify\n", file.Name)
	err = file.Fetch(ctx, d.admin, address)
	if bad := remove(context.WithoutCancel(ctx)); bad != nil {
		fmt.Fprintf(d.f.Log, "%s: %v\n", file.Name, bad)
	}
	return err
}

// pieces sends file in as many commands as it takes, if they are not too many.
func (d *delivery) pieces(ctx context.Context, file onhost.File) error {
	narrow, ok := d.admin.(remote.Narrow)
	if !ok {
		return errors.New("not a channel for pieces")
	}
	p, err := file.CutFor(narrow)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.f.Log, "%s: goes in pieces, %d commands\n", file.Name, p.Count()+1)
	return p.Send(ctx, d.admin, d.f.Log)
}

// done removes what the service account need not keep.
func (d *delivery) done(ctx context.Context) {
	for _, file := range d.left {
		ch, err := d.f.channel(d.host, remote.Service)
		if err == nil {
			err = file.Forget(context.WithoutCancel(ctx), ch, d.folder())
		}
		if err != nil {
			fmt.Fprintf(d.f.Log, "%s: remove it with the service account: %v\n", file.Name, err)
		}
	}
}
