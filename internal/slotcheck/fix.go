package slotcheck

import (
	"unicode"
	"unicode/utf8"

	"agentworks-deploy/internal/report"
)

// program is the CLI's own name in a fix.
const program = "agentworks-deploy"

// NoHost stands for the host file's name where the audit knows none.
const NoHost = "<host>"

// hostFix is a command to be run as root on the host. Its words may name
// folders that users named, so a word that no terminal shows truly gives no
// command but the reason.
func hostFix(argv ...string) *report.Fix {
	for _, word := range argv {
		if !printable(word) {
			return noFix(report.OnHost, "a name on the way holds bytes that cannot be shown; run "+argv[0]+" on it as root")
		}
	}
	return &report.Fix{Where: report.OnHost, Argv: argv}
}

// noFix says why there is no command, and what to do instead.
func noFix(where, note string) *report.Fix { return &report.Fix{Where: where, Note: note} }

// operatorFix is a verb of this CLI for the audited host. With --local there is
// no host file, so the word <host> stays and the fix says so.
func (a *audit) operatorFix(verb ...string) *report.Fix {
	name, note := a.hostName(), ""
	if name == NoHost {
		note = NoHost + " is the name of this server's host file"
	}
	return &report.Fix{Where: report.Operator, Argv: append(append([]string{program}, verb...), name), Note: note}
}

func (a *audit) hostName() string {
	if a.ask.Local || a.ask.Host.Name == "" {
		return NoHost
	}
	return a.ask.Host.Name
}

// provision repairs what root once wrote for the host file's docs root. Where
// the service uses another one, provisioning would write the wrong one again.
func (a *audit) provisionFix() *report.Fix { return a.operatorFix("provision") }

func (a *audit) deployFix() *report.Fix { return a.operatorFix("deploy") }

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
