package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// callNarrow runs c over a channel without streams: what the verb needs on the
// host is brought there before it begins.
func (f *Fleet) callNarrow(ctx context.Context, host *hosts.Host, ch remote.Channel, req onhost.Request, c call) (onhost.Envelope, error) {
	d := &delivery{f: f, host: host, to: ch}
	defer d.done(ctx)
	if c.body == nil {
		return f.Program.CallNarrow(ctx, ch, req, nil, d.bring, f.Log)
	}
	body, err := d.spool(c.body, c.what)
	if err != nil {
		return onhost.Envelope{}, report.Coded(report.ExitUnfinished, "put %s together: %w", c.what, err)
	}
	return f.Program.CallNarrow(ctx, ch, req, &body, d.bring, f.Log)
}

// delivery brings files to a host whose channel has no stream for them: through
// the service account, through a bucket, or in pieces. Whichever way they come,
// what is used of them there has the sha256 that was computed here.
type delivery struct {
	f     *Fleet
	host  *hosts.Host
	to    remote.Channel
	local *os.File        // what must be a file here first
	left  []onhost.Parcel // stored with the service account, to be removed there
}

// spool makes a file of what is to be sent, since its digest goes ahead of it. The
// file has no name from the beginning, so that nothing of a killed run stays here.
func (d *delivery) spool(body io.Reader, name string) (onhost.File, error) {
	file, err := os.CreateTemp("", "agentworks-deploy-send-")
	if err != nil {
		return onhost.File{}, err
	}
	d.local = file
	if err := os.Remove(file.Name()); err != nil {
		return onhost.File{}, err
	}
	if _, err := io.Copy(file, body); err != nil {
		return onhost.File{}, err
	}
	return onhost.NamedFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), name)
}

// bring brings parcels into folder on the host, each the first way that works.
func (d *delivery) bring(ctx context.Context, folder string, parcels []onhost.Parcel) error {
	ways := []func(context.Context, string, onhost.Parcel) error{d.service, d.bucket, d.pieces}
	for _, parcel := range parcels {
		var why []string
		for _, way := range ways {
			err := way(ctx, folder, parcel)
			if err == nil {
				why = nil
				break
			}
			if ctx.Err() != nil || report.CodeOf(err) == report.ExitLocked {
				return err
			}
			why = append(why, err.Error())
		}
		if why != nil {
			return report.Coded(report.ExitUnfinished, "%s has no %s yet, and no way to get it there worked: %s", d.host.Name, parcel.Name(), strings.Join(why, "; "))
		}
	}
	return nil
}

// service sends parcel to the service account, whose channel may have a stream.
func (d *delivery) service(ctx context.Context, _ string, parcel onhost.Parcel) error {
	ch, err := d.f.channel(d.host, remote.Service)
	if err != nil {
		return err
	}
	if _, narrow := ch.(remote.Narrow); narrow {
		return errors.New("the service channel has no stream either")
	}
	fmt.Fprintf(d.f.Log, "%s: sent over %s, for root to verify and copy\n", parcel.Name(), ch)
	d.left = append(d.left, parcel)
	return parcel.Store(ctx, ch, d.halves())
}

// halves is where the service account may keep programs.
func (d *delivery) halves() string {
	layout := d.host.Layout()
	return layout.ServiceHalves()
}

// bucket lays parcel down where the host can fetch it.
func (d *delivery) bucket(ctx context.Context, folder string, parcel onhost.Parcel) error {
	depot, ok := d.to.(remote.Depot)
	if !ok {
		return fmt.Errorf("%s has no bucket", d.to)
	}
	name := parcel.Name()
	data, err := os.Open(parcel.Path)
	if err != nil {
		return err
	}
	defer data.Close()
	sent := &metered{r: data, log: d.f.Log, name: name, size: parcel.Size(), said: time.Now()}
	address, remove, err := depot.Put(ctx, name+"-"+parcel.SHA256(), sent, parcel.Size())
	if err == nil {
		fmt.Fprintf(d.f.Log, "%s: in the bucket, for the host to fetch and verify\n", name)
		err = parcel.Fetch(ctx, d.to, address, folder)
	}
	if remove == nil {
		return err
	}
	after, end := afterwards(ctx)
	defer end()
	if bad := remove(after); bad != nil {
		fmt.Fprintf(d.f.Log, "%s: it may be left in the bucket: %v\n", name, bad)
	}
	return err
}

// afterwards is ctx for removing what was brought, also once that has ended.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
}

// metered says every few seconds how much of a file has been read.
type metered struct {
	r          io.Reader
	log        io.Writer
	name       string
	size, read int64
	said       time.Time
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.read += int64(n)
	if time.Since(m.said) >= sayEvery {
		m.said = time.Now()
		fmt.Fprintf(m.log, "%s: %d of %d MB sent\n", m.name, m.read>>20, m.size>>20)
	}
	return n, err
}

// pieces sends parcel in as many commands as it takes, if they are not too many.
func (d *delivery) pieces(ctx context.Context, folder string, parcel onhost.Parcel) error {
	narrow, ok := d.to.(remote.Narrow)
	if !ok {
		return errors.New("not a channel for pieces")
	}
	p, err := parcel.CutFor(narrow, folder)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.f.Log, "%s: goes in pieces, %d commands\n", parcel.Name(), p.Count()+1)
	return p.Send(ctx, d.to, d.f.Log)
}

// done removes what neither side need keep.
func (d *delivery) done(ctx context.Context) {
	if d.local != nil {
		_ = d.local.Close() // it was read, and is gone with this
	}
	ctx, end := afterwards(ctx)
	defer end()
	for _, parcel := range d.left {
		ch, err := d.f.channel(d.host, remote.Service)
		if err == nil {
			err = parcel.Forget(ctx, ch, d.halves())
		}
		if err != nil {
			fmt.Fprintf(d.f.Log, "%s: remove it with the service account: %v\n", parcel.Name(), err)
		}
	}
}
