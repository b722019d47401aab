package onhost

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// UploadFolder holds the half that provision sends ahead of everything else.
const UploadFolder = "/var/lib/agentworks-deploy"

// Exit codes of the scripts below that are no answer of a half.
const (
	exitNoHalf   = 91 // no usable half on the host
	exitBusy     = 93 // another upload is under way
	exitDamaged  = 94 // the uploaded bytes are not the operator's
	exitOldHalf  = 95 // a half is there, but it speaks another protocol
	exitNoFolder = 96 // the folder that should hold the half cannot be made
)

// scriptHead is POSIX sh in an environment that may be empty (case B52).
const scriptHead = `set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin; export PATH
umask 077
cd /
body=
half() { exec env -i PATH="$PATH" HOME="${HOME:-/}" LC_ALL=C.UTF-8 "$@"; }
`

// runScript runs the first installed half that is the operator's own program,
// else the first that speaks the protocol, and says so.
// Words: protocol, sha256, candidates…
const runScript = scriptHead + runInstalled

const runInstalled = `
protocol=$1 sum=$2; shift 2
missing=91
for c do
	[ -f "$c" ] && [ -x "$c" ] || continue
	case $(sha256sum <"$c") in "$sum "*) half "$c" on-host ${body:+"$body"} ;; esac
done
for c do
	[ -f "$c" ] && [ -x "$c" ] || continue
	missing=95
	[ "$("$c" on-host --protocol </dev/null 2>/dev/null)" = "$protocol" ] || continue
	echo "the half on the host, $c, is another build than this program" >&2
	half "$c" on-host ${body:+"$body"}
done
exit $missing
`

// findScript prints the first candidate that is the operator's own program.
// Words: sha256, candidates…
const findScript = scriptHead + `
sum=$1; shift
for c do
	[ -f "$c" ] && [ -x "$c" ] || continue
	case $(sha256sum <"$c") in "$sum "*) printf '%s' "$c"; exit 0 ;; esac
done
`

// uploadScript writes the program that comes first on standard input to a file
// of its own, proves it, and runs it with the rest of the stream. The lock on
// the folder passes to the half, which closes it (descriptor 9) once it runs:
// until then no other upload may remove the file. Every upload removes those
// before it, so that neither killed runs nor old versions pile up.
// Words: folder, beginning of the name, sha256, size, "remove" or "keep".
const uploadScript = scriptHead + `
dir=$1 old=$2 sum=$3 size=$4 after=$5
name=$old$sum` + lockFolder + clearFolder + `
new=$dir/.$name.agentworks-new
clear
for f in "$dir"/"$old"*; do
	case $f in "$dir"/in-*) ;; *) [ ! -f "$f" ] || rm -f "$f" ;; esac
done
head -c "$size" >"$new"
case $(sha256sum <"$new") in "$sum "*) ;; *) rm -f "$new"; exit 94 ;; esac
chmod 0700 "$new"
mv -f "$new" "$dir/$name"
half "$dir/$name" on-host --uploaded="$after"
`

// plan is how one call starts its half.
type plan struct {
	argv   []string
	upload bool // the program's bytes go first on standard input
}

func sh(script string, words ...string) []string {
	return append([]string{"/bin/sh", "-c", script, "agentworks-deploy"}, words...)
}

func (p *Program) run(candidates ...string) plan {
	return plan{argv: sh(runScript, p.runWords(candidates)...)}
}

func (p *Program) runWords(candidates []string) []string {
	return append([]string{strconv.Itoa(Protocol), p.sum}, candidates...)
}

func (p *Program) uploadTo(folder, prefix, after string) plan {
	return plan{argv: sh(uploadScript, folder, prefix, p.sum, strconv.FormatInt(p.size, 10), after), upload: true}
}

// admin plans a root verb: root runs only what root owns, so what is installed
// in LIBEXEC, or (provision, which installs it) an upload into a root folder.
func (p *Program) admin(verb Verb, layout hosts.Layout) plan {
	if verb.Upload {
		return p.uploadTo(UploadFolder, "half-", "remove")
	}
	return p.run(layout.AdminHalf())
}

// service plans a service verb. Only a verb that may upload asks first.
func (p *Program) service(ctx context.Context, verb Verb, layout hosts.Layout, find func(ctx context.Context, argv []string) (string, error)) (plan, error) {
	installed := serviceHalves(layout)
	if !verb.Upload {
		return p.run(installed...), nil
	}
	found, err := find(ctx, sh(findScript, append([]string{p.sum}, append(installed, path.Join(layout.ServiceHalves(), p.sum))...)...))
	if err != nil {
		return plan{}, err
	}
	if found != "" {
		return p.run(found), nil
	}
	return p.uploadTo(layout.ServiceHalves(), "", "keep"), nil
}

// serviceHalves are where a half for the service account may be installed.
func serviceHalves(layout hosts.Layout) []string {
	return []string{path.Join(layout.Current(), "bin/agentworks-deploy"), layout.AdminHalf()}
}

// noAnswer explains an end without an answer.
func noAnswer(exit int, channel, host string, verb string, stderr string) error {
	provision := fmt.Sprintf("agentworks-deploy provision %s", host)
	switch exit {
	case exitNoHalf:
		return report.Coded(report.ExitState, "%s is not provisioned: it has no on-host half: %s", host, provision)
	case exitOldHalf:
		return report.Coded(report.ExitState, "the on-host half of %s does not speak protocol %d: %s", host, Protocol, provision)
	case exitBusy:
		return report.Coded(report.ExitLocked, "%s: another upload of the on-host half is under way", channel)
	case exitDamaged:
		return report.Coded(report.ExitUnfinished, "%s: the uploaded on-host half arrived changed", channel)
	case exitNoFolder:
		if Verbs()[verb].Role == remote.Admin {
			return report.Coded(report.ExitState, "%s: no place for the on-host half (%s): does the admin channel come in as root?", channel, lastLine(stderr))
		}
		return report.Coded(report.ExitState, "%s is not provisioned: no place for the on-host half (%s): %s", host, lastLine(stderr), provision)
	}
	last := lastLine(stderr)
	if why, ok := strings.CutPrefix(last, "setpriv: "); ok {
		if strings.Contains(why, "not permitted") {
			return report.Coded(report.ExitUsage, "%s: not root: this host has no service channel, and only root can become the service account (%s)", channel, why)
		}
		return report.Coded(report.ExitState, "%s is not provisioned: root cannot become the service account (%s): %s", host, why, provision)
	}
	err := report.Coded(report.ExitUnfinished, "%s: %s ended with %d and no answer", channel, verb, exit)
	if last != "" {
		err = fmt.Errorf("%w: %s", err, last)
	}
	return &remote.LostError{Err: err}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
