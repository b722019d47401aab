package onhost

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// File is a program that root needs on a host before a verb can begin, where the
// channel has no stream for it: the half itself, and what it installs.
type File struct {
	Name string // HalfFile or SlotctlFile
	*Program
}

// The files that a host may be asked for.
const (
	HalfFile    = "half"
	SlotctlFile = "slotctl"
)

// DeliveredFile is where launchScript puts a file for the half.
func DeliveredFile(name, sum string) string { return UploadFolder + "/" + name + "-" + sum }

const (
	exitMissing = 92 // some of the files are nowhere on the host; their names are the output
	exitNoCurl  = 97 // a file should be fetched, and there is no curl
)

// lockFolder makes $dir, which belongs to this account, and locks it.
const lockFolder = `
while :; do
	[ -d "$dir" ] || mkdir "$dir" 2>/dev/null || [ -d "$dir" ] || exit 96
	[ "$(stat -c %u "$dir")" = "$(id -u)" ] || { echo "$dir belongs to another account" >&2; exit 96; }
	exec 9<"$dir"
	flock -w 30 9 || exit 93
	[ /proc/self/fd/9 -ef "$dir" ] && break
done
`

// launchScript looks for each file by its digest among what was delivered and
// what the service account has, which is copied first and judged then, so that
// nobody can change it in between; and runs the half.
// Words: folder, LIBEXEC, app, sum of the half, then name, sum, size of each.
const launchScript = scriptHead + `
dir=$1 libexec=$2 app=$3 run=$4; shift 4
words=" $* "` + lockFolder + `
for f in "$dir"/half-* "$dir"/slotctl-* "$dir"/.*.agentworks-new; do
	[ ! -f "$f" ] || rm -f "$f"
done
for f in "$dir"/in-*; do
	s=${f##*/in-}
	case $words in *" ${s%%.*} "*) ;; *) rm -f "$f" ;; esac
done
missing=
while [ $# -ge 3 ]; do
	name=$1 sum=$2 size=$3 found=; shift 3
	new=$dir/.$name.agentworks-new
	case $name in half) file=agentworks-deploy ;; *) file=$name ;; esac
	for c in "$dir/in-$sum" "$libexec/$file" "$app/.deploy/$sum" "$app/current/bin/$file" "$app"/releases/*/bin/"$file"; do
		[ -f "$c" ] && timeout 60 head -c "$size" -- "$c" >"$new" 2>/dev/null || continue
		case $(sha256sum <"$new") in "$sum "*) found=1; break ;; esac
	done
	if [ "$found" ]; then chmod 0700 "$new"; mv -f "$new" "$dir/$name-$sum"; else missing="$missing $name"; fi
	rm -f "$new"
done
[ -z "$missing" ] || { echo "missing$missing"; exit 92; }
rm -f "$dir"/in-*
half "$dir/half-$run" on-host --uploaded=remove
`

// CallWith is Call for a verb whose files the channel cannot carry. Where the
// host has not got some of them, deliver brings them there, once.
func (p *Program) CallWith(ctx context.Context, ch remote.Channel, req Request, files []File, deliver func(context.Context, []File) error, log io.Writer) (Envelope, error) {
	layout := req.Host.Layout()
	words := []string{UploadFolder, layout.Libexec(), layout.App, p.sum}
	for _, f := range files {
		words = append(words, f.Name, f.sum, strconv.FormatInt(f.size, 10))
	}
	how := plan{argv: sh(launchScript, words...)}
	e, err := p.exchange(ctx, ch, how, req, nil, log)
	missing, ok := isMissing(err)
	if !ok {
		return e, err
	}
	wanted := slices.DeleteFunc(slices.Clone(files), func(f File) bool { return !slices.Contains(missing, f.Name) })
	if err := deliver(ctx, wanted); err != nil {
		return Envelope{}, err
	}
	return p.exchange(ctx, ch, how, req, nil, log)
}

// missingError names the files that a host has not got.
type missingError struct{ names []string }

func (e *missingError) Error() string {
	return "the host did not get " + strings.Join(e.names, " and ")
}

func isMissing(err error) ([]string, bool) {
	m, ok := err.(*missingError)
	if !ok {
		return nil, false
	}
	return m.names, true
}

// storeScript keeps the file on standard input for root to find. It runs as the
// service account. Words: folder, sha256, size.
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
		return report.Coded(report.ExitUnfinished, "read the %s to send: %w", f.Name, err)
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
	case exit == exitDamaged:
		return report.Coded(report.ExitUnfinished, "%s: %s arrived changed: its sha256 is not the one computed here", ch, f.Name)
	case exit == exitNoCurl:
		return report.Coded(report.ExitUnfinished, "%s: there is no curl to fetch %s with", ch, f.Name)
	case exit != 0:
		return report.Coded(report.ExitUnfinished, "%s: %s could not be stored (exit %d): %s", ch, f.Name, exit, lastLine(stderr.last()))
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

// Fetch has root on the host get the file from an address that lets it be read
// for a while.
func (f File) Fetch(ctx context.Context, ch remote.Channel, url string) error {
	return f.fetchTo(ctx, ch, url, UploadFolder)
}

func (f File) fetchTo(ctx context.Context, ch remote.Channel, url, folder string) error {
	if strings.ContainsAny(url, "\"\\\n\r") {
		return report.Coded(report.ExitUnfinished, "the address to fetch %s from holds a quote or line feed", f.Name)
	}
	return f.script(ctx, ch, strings.NewReader(`url = "`+url+"\"\n"), fetchScript, folder, f.sum)
}

// pieceScript stores one piece, joinScript makes the file of them. Words:
// folder, sha256, and the number of the piece or of pieces.
const (
	pieceScript = scriptHead + `
dir=$1
[ -d "$dir" ] || mkdir "$dir" 2>/dev/null || [ -d "$dir" ]
[ "$(stat -c %u "$dir")" = "$(id -u)" ]
cat >"$dir/in-$2.$3"
`
	joinScript = scriptHead + `
dir=$1 sum=$2 n=$3` + lockFolder + `
new=$dir/.$sum.agentworks-new i=0
: >"$new"
while [ $i -lt "$n" ]; do cat "$dir/in-$sum.$i" >>"$new" && i=$((i + 1)) || exit 94; done
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

// CutFor cuts f for ch. Its error says that this would be too many.
func (f File) CutFor(ch remote.Narrow) (*Pieces, error) { return f.cutFor(ch, UploadFolder) }

func (f File) cutFor(ch remote.Narrow, folder string) (*Pieces, error) {
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, report.Coded(report.ExitUnfinished, "read the %s to send: %w", f.Name, err)
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is a right one
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	p := &Pieces{file: f, folder: folder, packed: packed.Bytes(), size: ch.InputLimit(sh(pieceScript, folder, f.sum, strconv.Itoa(maxPieces)))}
	if p.size < 1 || p.Count() > maxPieces {
		return nil, fmt.Errorf("%s has %d KB packed, which would be more than %d commands", f.Name, packed.Len()>>10, maxPieces)
	}
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
			fmt.Fprintf(log, "%s: %d of %d pieces sent\n", p.file.Name, sent.Load(), p.Count())
		}
	}
	close(next)
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.file.script(ctx, ch, nil, joinScript, p.folder, p.file.sum, strconv.Itoa(p.Count()))
}
