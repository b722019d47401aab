#!/usr/bin/env bash
# Installs what a fresh Debian machine lacks for the lab and the tests. Changes nothing where all is there.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "setup: the lab needs root; run this as root" >&2; exit 2; }
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); } # program, Debian package
need mmdebstrap mmdebstrap
need nsenter util-linux
need setpriv util-linux
need gcc gcc # go test -race
need ssh openssh-client
need ssh-keygen openssh-client
need ip iproute2
need curl curl # tries what a host does with an address
# Independent judges of the stand-in for SSM: another client, and the published model of the service.
[ -x /usr/bin/aws ] || missing+=(awscli)
[ -d /usr/lib/python3/dist-packages/botocore/data/ssm ] || missing+=(python3-botocore)
need git git
if [ ${#missing[@]} -gt 0 ]; then
	echo "setup: installing ${missing[*]}" >&2
	log=$(mktemp)
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -q && apt-get install -qy --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
		{ cat "$log" >&2; echo "setup: apt-get could not install ${missing[*]}" >&2; exit 3; }
	rm -f "$log"
fi
