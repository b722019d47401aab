package onhost

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// storeScript keeps the file on standard input for gatherScript to find. Words: folder, sha256, size.
const storeScript = scriptHead + `
dir=$1 sum=$2 size=$3` + lockFolder + `
new=$dir/.$sum.agentworks-new
head -c "$size" >"$new"
case $(sha256sum <"$new") in "$sum "*) ;; *) rm -f "$new"; exit 94 ;; esac
mv -f "$new" "$dir/$sum"
`

// Store sends the file over a channel with streams into a folder of the account.
func (f File) Store(ctx context.Context, ch remote.Channel, folder string) error {
	file, err := os.Open(f.Path)
	if err != nil {
		return report.Coded(report.ExitUnfinished, "read the %s to send: %w", f.name, err)
	}
	defer file.Close()
	return f.script(ctx, ch, io.LimitReader(file, f.size), storeScript, folder, f.sum, strconv.FormatInt(f.size, 10))
}

// Forget removes what Store left.
func (f File) Forget(ctx context.Context, ch remote.Channel, folder string) error {
	return f.script(ctx, ch, nil, scriptHead+`rm -f "$1/$2"`, folder, f.sum)
}

// script runs one of the scripts of a delivery.
func (f File) script(ctx context.Context, ch remote.Channel, stdin io.Reader, script string, words ...string) error {
	stderr := &tail{w: io.Discard}
	exit, err := ch.Run(ctx, remote.Cmd{Argv: sh(script, words...), Stdin: stdin, Stderr: stderr})
	switch {
	case err != nil:
		return err
	case exit == exitBusy:
		return report.Coded(report.ExitLocked, "%s: another delivery is under way", ch)
	case exit == exitTaken:
		return report.Coded(report.ExitLocked, "%s: the pieces of %s are gone: another run has taken them: run this again once that has ended", ch, f.name)
	case exit == exitDamaged:
		return report.Coded(report.ExitUnfinished, "%s: %s arrived changed: its sha256 is not the one computed here", ch, f.name)
	case exit == exitNoCurl:
		return report.Coded(report.ExitUnfinished, "%s: there is no curl to fetch %s with", ch, f.name)
	case exit != 0:
		return report.Coded(report.ExitUnfinished, "%s: %s could not be stored (exit %d): %s", ch, f.name, exit, lastLine(stderr.last()))
	}
	return nil
}

// fetchScript gets a file from an address. The address is on standard input, as
// curl's configuration, and never in a command line. Words: folder, sha256.
const fetchScript = scriptHead + `
command -v curl >/dev/null || exit 97
dir=$1 sum=$2` + lockFolder + `
new=$dir/.$sum.agentworks-new
curl -q --silent --show-error --fail --proto =http,https --max-time 900 --config - --output "$new" || { rm -f "$new"; exit 1; }
case $(sha256sum <"$new") in "$sum "*) ;; *) rm -f "$new"; exit 94 ;; esac
mv -f "$new" "$dir/in-$sum"
`

// Fetch has the host get the file into folder from an address that lets it be
// read for a while.
func (f File) Fetch(ctx context.Context, ch remote.Channel, url, folder string) error {
	if strings.ContainsAny(url, "\"\\\n\r") {
		return report.Coded(report.ExitUnfinished, "the address to fetch %s from holds a quote or line feed", f.name)
	}
	return f.script(ctx, ch, strings.NewReader(`url = "`+url+"\"\n"), fetchScript, folder, f.sum)
}

// pieceScript stores one piece, joinScript makes the file of them, where no other
// run that delivers the same has done so. Words:
// folder, sha256, and the number of the piece or of pieces.
const (
	pieceScript = scriptHead + `
dir=$1
[ -d "$dir" ] || mkdir "$dir" 2>/dev/null || [ -d "$dir" ]
[ "$(stat -Lc %u "$dir")" = "$(id -u)" ]
cat >"$dir/in-$2.$3"
`
	joinScript = scriptHead + `
dir=$1 sum=$2 n=$3` + lockFolder + `
if [ -f "$dir/in-$sum" ]; then
	case $(sha256sum <"$dir/in-$sum") in "$sum "*) rm -f "$dir/in-$sum".*; exit 0 ;; esac
fi
new=$dir/.$sum.agentworks-new i=0
: >"$new"
while [ $i -lt "$n" ]; do
	[ -f "$dir/in-$sum.$i" ] || { rm -f "$new" "$dir/in-$sum".*; exit 98; }
	cat "$dir/in-$sum.$i" >>"$new"
	i=$((i + 1))
done
rm -f "$dir/in-$sum".*
gzip -dc "$new" >"$dir/.$sum.plain.agentworks-new" || exit 94
rm -f "$new"
new=$dir/.$sum.plain.agentworks-new
case $(sha256sum <"$new") in "$sum "*) ;; *) rm -f "$new"; exit 94 ;; esac
mv -f "$new" "$dir/in-$sum"
`
)

// A file is sent in pieces up to so many, some at a time: each is a command of
// its own.
const (
	maxPieces = 400
	atOnce    = 5
)

// Pieces are a file cut for a channel without streams.
type Pieces struct {
	file   File
	folder string
	packed []byte
	size   int
}

// CutFor cuts f for ch, to be joined in folder. Its error says that this would be
// too many.
func (f File) CutFor(ch remote.Narrow, folder string) (*Pieces, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, report.Coded(report.ExitUnfinished, "read the %s to send: %w", f.name, err)
	}
	defer file.Close()
	p := &Pieces{file: f, folder: folder, size: ch.InputLimit(sh(pieceScript, folder, f.sum, strconv.Itoa(maxPieces)))}
	room := &capped{left: max(p.size, 0) * maxPieces}
	z, _ := gzip.NewWriterLevel(room, gzip.BestCompression) // the level is a right one
	_, err = io.Copy(z, file)
	if err = errors.Join(err, z.Close()); errors.Is(err, errOverCap) {
		return nil, fmt.Errorf("%s has %d KB, which would be more than %d commands", f.name, f.size>>10, maxPieces)
	}
	if err != nil {
		return nil, report.Coded(report.ExitUnfinished, "pack the %s to send: %w", f.name, err)
	}
	p.packed = room.Bytes()
	return p, nil
}

// Count is how many commands Send needs, but for the one that joins them.
func (p *Pieces) Count() int { return (len(p.packed) + p.size - 1) / p.size }

// Send sends all pieces and has them joined and verified.
func (p *Pieces) Send(ctx context.Context, ch remote.Channel, log io.Writer) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var sent atomic.Int64
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for i := range next {
				piece := p.packed[i*p.size : min((i+1)*p.size, len(p.packed))]
				if err := p.file.script(ctx, ch, bytes.NewReader(piece), pieceScript, p.folder, p.file.sum, strconv.Itoa(i)); err != nil {
					stop(err)
					return
				}
				sent.Add(1)
			}
		})
	}
	said := time.Now()
feed:
	for i := range p.Count() {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
		if time.Since(said) > heartbeat {
			said = time.Now()
			fmt.Fprintf(log, "%s: %d of %d pieces sent\n", p.file.name, sent.Load(), p.Count())
		}
	}
	close(next)
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.file.script(ctx, ch, nil, joinScript, p.folder, p.file.sum, strconv.Itoa(p.Count()))
}
