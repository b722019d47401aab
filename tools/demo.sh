#!/usr/bin/env bash
# The main job on a throwaway slot host: provision it, deploy to it, prove it; then break it in the four ways of October 2026 and heal it by the
# fixes that the audit prints. Every line it runs is printed, and may be copied while the lab is there; the lab is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/bin:$PATH
export AGENTWORKS_DEPLOY_HOSTS_DIR=$PWD/hosts
export AGENTWORKS_DEPLOY_LAB=demo-$$

times=()
step() { # step TITLE COMMAND…: prints, runs and times one step
	local title=$1 begun=${EPOCHREALTIME/./} took
	shift
	printf '\n== %s\n' "$title"
	current=$title
	"$@" || { local code=$?; echo "demo: '$*' ended with $code" >&2; exit "$code"; }
	took=$(((${EPOCHREALTIME/./} - begun) / 1000))
	times+=("$(printf '%6d.%03d s  %s' $((took / 1000)) $((took % 1000)) "$title")")
}
run() { printf '$ %s\n' "$*"; "$@"; }

# broken: the audit must fail. Of its rows those are printed that say something else to do; what they print is kept in fixes.
broken() {
	local said code=0 line fix
	declare -A seen=()
	fixes=()
	echo '$ agentworks-deploy slotcheck lab --level full'
	said=$(agentworks-deploy slotcheck lab --level full 2>/dev/null) || code=$?
	while IFS= read -r line; do
		fix=${line##* -- fix: }
		[ -z "${seen[$fix]-}" ] || continue
		seen[$fix]=1
		fixes+=("$fix")
		echo "$line"
	done < <(grep -E '^FAIL .* -- fix: ' <<<"$said")
	grep '^slot self-test: ' <<<"$said"
	[ "$code" = 1 ] && [ ${#fixes[@]} -gt 0 ] || { echo "demo: the audit of a broken host ended with $code and ${#fixes[@]} fixes" >&2; return 1; }
}
# healed: each fix as it was printed, a verb of ours here and everything else as root on the host; then the audit must pass.
healed() {
	local fix words said
	for fix in "${fixes[@]}"; do
		words=$fix
		[[ $fix == agentworks-deploy\ * ]] || words="agentworks-deploy lab exec -- $fix"
		printf '$ %s\n' "$words"
		said=$(eval "$words" 2>&1) || { echo "$said" >&2; return 1; }
	done
	echo '$ agentworks-deploy slotcheck lab --level full'
	said=$(agentworks-deploy slotcheck lab --level full 2>/dev/null) || { echo "$said" >&2; return 1; }
	grep '^slot self-test: .* 0 failed, ' <<<"$said"
}
remove() { agentworks-deploy lab reset --name "$AGENTWORKS_DEPLOY_LAB" >/dev/null 2>&1 || true; }
ended() { # however the script ends: the lab goes, and what failed is the last word
	local code=$?
	remove
	[ "$code" = 0 ] || printf '\ndemo: FAILED in "%s" (%s); the lab is removed\n' "$current" "$code" >&2
	exit "$code"
}
trap ended EXIT
current=begin found=0 fixed=0
breakages=(allowed-cwd releases-0700 launcher-fails-on-grant table-root-root)

# What a copied line needs: the programs of this tree, and which lab the host "lab" is.
printf '$ export PATH=%s/bin:$PATH AGENTWORKS_DEPLOY_HOSTS_DIR=%s AGENTWORKS_DEPLOY_LAB=%s\n' "$PWD" "$AGENTWORKS_DEPLOY_HOSTS_DIR" "$AGENTWORKS_DEPLOY_LAB"
step "bring up a slot host (the first time its root file system is made: about 80 s)" run agentworks-deploy lab up --name "$AGENTWORKS_DEPLOY_LAB" --reference
step "provision 50 slots" run agentworks-deploy provision lab
step "give u1 a slot" run agentworks-deploy slots assign lab u1
step "give u2 a slot" run agentworks-deploy slots assign lab u2
step "deploy the sample release" run agentworks-deploy deploy lab
step "audit the host" run agentworks-deploy slotcheck lab
step "audit it at level full: commands are also confined" run agentworks-deploy slotcheck lab --level full
for breakage in "${breakages[@]}"; do
	step "break it as in October 2026: $breakage" run agentworks-deploy lab break "$breakage"
	step "the audit finds it, and prints its fix" broken
	found=$((found + 1))
	step "the printed fix heals it" healed
	fixed=$((fixed + 1))
done
step "remove the lab" run agentworks-deploy lab reset --name "$AGENTWORKS_DEPLOY_LAB"

printf '\n'
printf '%s\n' "${times[@]}"
printf '\ndemo: OK: a slot host was provisioned, deployed to and proven; %d of %d breakages found, %d healed by the printed fix\n' "$found" "${#breakages[@]}" "$fixed"
