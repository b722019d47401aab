#!/bin/sh
# Builds the sample release into the folder given as the only word, which is
# replaced. Run by "make build" and by the tests' labtest.
set -eu
out=${1:?usage: build.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
tmp=$out.partial
rm -rf "$tmp"
mkdir -p "$tmp/bin"
(cd "$here" && CGO_ENABLED=0 GOOS=linux go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$tmp/bin/" ./src/vs-workspace ./src/vs-agent)
cp -a "$here/files/." "$tmp/"
rm -rf "$out"
mv "$tmp" "$out"
