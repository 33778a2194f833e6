#!/bin/sh
# Runs every fuzz target of the repository for the given time each (default 5m); stops at the first finding.
set -eu
cd "$(dirname "$0")/.."
time=${1:-5m}
for pkg in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$pkg" 2>/dev/null | grep '^Fuzz' || true); do
		echo "fuzz $pkg $target for $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg" | tail -2
	done
done
