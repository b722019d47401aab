#!/usr/bin/env bash
# Lints the whole tree and proves first that the arrow linter can fail at all: a linter that finds no configuration says so and passes.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
bin=${TOOLS_BIN:-$top/bin/tools}
mkdir -p "$bin"
(cd tools && go build -o "$bin/" honnef.co/go/tools/cmd/staticcheck github.com/OpenPeeDeeP/depguard/v2/cmd/depguard github.com/ashanbrown/forbidigo/v2)

proof=$(mktemp -d)
trap 'rm -rf "$proof"' EXIT
mkdir -p "$proof/internal/sandbox/slots" "$proof/internal/report" "$proof/cmd/slotctl"
cp go.mod .depguard.yml "$proof/"
echo 'package report' >"$proof/internal/report/report.go"
printf 'package slots\n\nimport _ "agentworks-deploy/internal/report"\n' >"$proof/internal/sandbox/slots/slots.go"
printf 'package main\n\nimport _ "agentworks-deploy/internal/report"\n\nfunc main() {}\n' >"$proof/cmd/slotctl/main.go"
found=$(cd "$proof" && "$bin/depguard" ./... 2>&1 || true)
for want in sandbox/slots/slots.go cmd/slotctl/main.go; do
	grep -q "$want.*not allowed" <<<"$found" || { echo "lint: the arrow linter did not find the planted import in $want:"; echo "$found"; exit 1; }
done

fail=0
run() { echo "lint: $1"; shift; "$@" || fail=1; }
unformatted() { local f; f=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l); [ -z "$f" ] || { echo "$f"; return 1; }; }
arrows() { "$bin/depguard" ./...; }
# Root code works by descriptors (internal/safefs); these path-based calls follow links and race (cases B09, B30).
paths() { "$bin/forbidigo" -set_exit_status -tests=false -analyze_types "$@" ./internal/provision/... ./internal/slottable/...; }
ban='{p: "^os\\.(Create|OpenFile|WriteFile|Chmod|Chown|Lchown|Mkdir|MkdirAll|Rename|Remove|RemoveAll|Symlink)$", msg: "use internal/safefs: this follows links"}'
umask() { "$bin/forbidigo" -set_exit_status -tests=false -analyze_types '{p: "^(syscall|unix)\\.Umask$", msg: "the umask is the whole process: give modes by fchmod"}' '{p: "^os\\.Exit$", msg: "return an exit code"}' ./internal/...; }
run "gofmt" unformatted
run "go vet" go vet ./...
run "staticcheck" "$bin/staticcheck" ./...
run "arrows" arrows
run "path-based calls" paths "$ban"
run "umask and exit" umask
exit $fail
