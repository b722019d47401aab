#!/usr/bin/env bash
# The main job on a throwaway slot host: provision it, deploy to it, prove it. Every line it runs is printed; the lab is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/bin:$PATH
export AGENTWORKS_DEPLOY_HOSTS_DIR=$PWD/hosts
export AGENTWORKS_DEPLOY_LAB=demo-$$

times=()
step() { # step TITLE COMMAND…: prints, runs and times one step
	local title=$1 begun=${EPOCHREALTIME/./} took
	shift
	printf '\n== %s\n$ %s\n' "$title" "$*"
	"$@" || { local code=$?; echo "demo: '$*' ended with $code" >&2; exit "$code"; }
	took=$(((${EPOCHREALTIME/./} - begun) / 1000))
	times+=("$(printf '%6d.%03d s  %s' $((took / 1000)) $((took % 1000)) "$title")")
}
remove() { agentworks-deploy lab reset --name "$AGENTWORKS_DEPLOY_LAB" >/dev/null 2>&1 || true; }
trap remove EXIT

step "bring up a slot host (the first time its root file system is made: about 80 s)" agentworks-deploy lab up --name "$AGENTWORKS_DEPLOY_LAB" --reference
step "provision 50 slots" agentworks-deploy provision lab
step "give u1 a slot" agentworks-deploy slots assign lab u1
step "give u2 a slot" agentworks-deploy slots assign lab u2
step "deploy the sample release" agentworks-deploy deploy lab
step "audit the host" agentworks-deploy slotcheck lab
step "remove the lab" agentworks-deploy lab reset --name "$AGENTWORKS_DEPLOY_LAB"
trap - EXIT

printf '\n'
printf '%s\n' "${times[@]}"
