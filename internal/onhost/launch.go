package onhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Parcel is a file that a verb needs on the host before its half can begin, where
// the channel has no stream for it: the half itself, and the verb's body.
type Parcel struct {
	name string // halfParcel or bodyParcel
	File
}

const (
	halfParcel = "half"
	bodyParcel = "body"
)

const (
	exitMissing = 92 // some of the parcels are nowhere on the host; their names are the output
	exitNoCurl  = 97 // a file should be fetched, and there is no curl
	exitTaken   = 98 // pieces that were stored are gone
)

// lockFolder makes $dir, which belongs to this account, and locks it. A half that
// ends removes it when it is empty, at any moment of this: then it begins again.
const lockFolder = `
tries=0
while :; do
	tries=$((tries + 1))
	[ $tries -le 100 ] || { echo "$dir cannot be made" >&2; exit 96; }
	[ -d "$dir" ] || mkdir "$dir" 2>/dev/null || continue
	owner=$(stat -Lc %u "$dir" 2>/dev/null) || continue
	[ "$owner" = "$(id -u)" ] || { echo "$dir belongs to another account" >&2; exit 96; }
	{ command exec 9<"$dir"; } 2>/dev/null || continue
	flock -w 30 9 || exit 93
	[ /proc/self/fd/9 -ef "$dir" ] && break
done
`

// clearFolder removes what killed runs left in $dir. Of what was delivered ahead
// only what is old goes: another run may be about to use the rest.
const clearFolder = `
clear() {
	find "$dir/." -mindepth 1 -maxdepth 1 ! -type d "(" -name "half-*" -o -name "body-*" -o -name ".*.agentworks-new" -o -name "in-*" -mmin +30 ")" -delete
}
`

// gatherScript looks for each parcel by its digest among what was delivered,
// what is installed, and what the service account has. Whatever it finds is
// copied to the account's own folder first and judged then, so that nobody can
// change it in between. Root opens nothing that the service account may have put
// there, which could be a link to a device: a process of that account reads it
// into a pipe, and has a minute for all there is. The folder's lock passes to the
// half, as in uploadScript: until it has opened its body no other run may remove
// that.
// Words: folder, LIBEXEC, app, service account, then name, sum, size of each,
// "--", and those of what follows.
const gatherScript = scriptHead + `
dir=$1 libexec=$2 app=$3 as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid=$4 --regid=$4 --init-groups"
shift 4` + lockFolder + clearFolder + `
clear
until=$(($(date +%s) + 60))
take() {
	s=$1; shift
	[ -f "$c" ] && [ "$(stat -Lc %s -- "$c")" = "$size" ] || return 1
	timeout -s KILL "$s" "$@" head -c "$size" -- "$c" 2>/dev/null 9<&- | timeout -s KILL "$s" head -c "$size" >"$new"
	case $(sha256sum <"$new") in "$sum "*) ;; *) return 1 ;; esac
}
look() {
	for c in "$dir/in-$sum" "$libexec"/*; do take 60 && return; done
	for c in "$app/.deploy/$sum" "$app"/current/bin/agentworks-deploy "$app"/releases/*/bin/agentworks-deploy "$app"/current/bin/slotctl "$app"/releases/*/bin/slotctl; do
		left=$((until - $(date +%s)))
		[ "$left" -gt 0 ] || return 1
		take "$left" $as && return
	done
	return 1
}
missing= sums=
while [ "$1" != -- ]; do
	name=$1 sum=$2 size=$3; shift 3
	new=$dir/.$name.agentworks-new sums="$sums $sum"
	if look; then
		chmod 0700 "$new"; mv -fT "$new" "$dir/$name-$sum"
		[ $name = half ] || body=--body=$dir/$name-$sum
	else missing="$missing $name"; fi
	rm -f "$new"
done
shift
if [ "$missing" ]; then
	clear
	rmdir "$dir" 2>/dev/null || :
	echo "missing$missing"
	exit 92
fi
for s in $sums; do rm -f "$dir/in-$s" "$dir/in-$s".*; done
`

// runGathered runs the half that was gathered. Word: its sha256.
const runGathered = `half "$dir/half-$1" on-host --uploaded=remove ${body:+"$body"}
`

// Deliver brings parcels into a folder of the channel's account, as the files
// in-<sha256>: see File.Fetch and Pieces.
type Deliver func(ctx context.Context, folder string, parcels []Parcel) error

// CallNarrow is Call over a channel without streams. What the verb needs on the
// host, its body (which may be nil) among it, is looked for there by its digest,
// and what is nowhere comes by deliver, once.
func (p *Program) CallNarrow(ctx context.Context, ch remote.Channel, req Request, body *File, deliver Deliver, log io.Writer) (Envelope, error) {
	verb, ok := Verbs()[req.Verb]
	if !ok {
		return Envelope{}, report.Coded(report.ExitUnfinished, "no verb %q", req.Verb)
	}
	if body == nil && !verb.Upload {
		return p.Call(ctx, ch, req, nil, log)
	}
	layout := req.Host.Layout()
	folder, installed := UploadFolder, []string{layout.AdminHalf()}
	if verb.Role == remote.Service {
		folder, installed = layout.ServiceHalves(), serviceHalves(layout)
	}
	var parcels []Parcel
	if verb.Upload {
		parcels = append(parcels, Parcel{halfParcel, p.File})
	}
	if body != nil {
		parcels = append(parcels, Parcel{bodyParcel, *body})
	}
	words := []string{folder, layout.Libexec(), layout.App, layout.Product}
	for _, f := range parcels {
		words = append(words, f.name, f.sum, strconv.FormatInt(f.size, 10))
	}
	words = append(words, "--")
	how := plan{argv: sh(gatherScript+runGathered, append(words, p.sum)...)}
	if !verb.Upload {
		how = plan{argv: sh(gatherScript+runInstalled, append(words, p.runWords(installed)...)...)}
	}
	e, err := p.exchange(ctx, ch, how, req, nil, log)
	missing, ok := errors.AsType[*missingError](err)
	if !ok {
		return e, err
	}
	wanted := slices.DeleteFunc(parcels, func(f Parcel) bool { return !slices.Contains(missing.names, f.name) })
	if err := deliver(ctx, folder, wanted); err != nil {
		return Envelope{}, err
	}
	e, err = p.exchange(ctx, ch, how, req, nil, log)
	if gone, ok := errors.AsType[*missingError](err); ok {
		return e, report.Coded(report.ExitLocked, "%s: %w although it was brought there just now: another run has taken it: run this again once that has ended", ch, gone)
	}
	return e, err
}

// missingError names the parcels that a host has not got.
type missingError struct{ names []string }

func (e *missingError) Error() string {
	return "the host has no " + strings.Join(e.names, " and ")
}

// Settle takes over what the script that started a half at self hands to it: its
// own file, which was uploaded ("keep" or "remove" it), a body that came ahead
// ("" where there is none), which is opened and has no name from then on, and the
// lock of the folder with both. Without either it does nothing.
func Settle(self, uploaded, body string) (io.ReadCloser, error) {
	if uploaded == "" && body == "" {
		return nil, nil
	}
	var opened io.ReadCloser
	if body != "" {
		f, err := os.Open(body)
		if err == nil {
			err = os.Remove(body)
		}
		if err != nil {
			return nil, fmt.Errorf("take over the body: %w", err)
		}
		opened = f
		_ = os.Remove(filepath.Dir(body)) // refused while it holds anything
	}
	if uploaded == "remove" {
		if err := os.Remove(self); err != nil {
			return nil, fmt.Errorf("remove the uploaded program: %w", err)
		}
		_ = os.Remove(filepath.Dir(self))
	}
	return opened, os.NewFile(uploadLock, "upload lock").Close()
}

// uploadLock is the descriptor of the folder's lock.
const uploadLock = 9
