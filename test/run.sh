#!/bin/sh
# Runs every Go test and ends with go test's own lines and the number of skipped tests.
set -u
cd "$(dirname "$0")/.." || exit 2
out=$(mktemp)
trap 'rm -f "$out"' EXIT
go vet ./... || exit 1
# The integration tests build and start the binary, which the test cache does not see: nothing is taken from the cache.
go test -count=1 -timeout 20m -v "$@" ./... >"$out" 2>&1
code=$?
# Failures in full, then the closing line of every package.
grep -E -B 40 '^(--- FAIL|\s+--- FAIL|panic:)' "$out" | head -400
grep -E '^(ok|FAIL|---.*FAIL|panic:)|^\?.*no test files|build failed' "$out"
skips=$(grep -cE '^\s*--- SKIP' "$out")
echo "tests: $(grep -cE '^\s*--- PASS' "$out") passed, $(grep -cE '^\s*--- FAIL' "$out") failed, $skips skipped"
# Each skipped test with its reason: the last line that it logged.
awk '/^=== (RUN|NAME|CONT) /{name=$3} /^ +[^ ]+_test\.go:[0-9]+: /{line=$0; sub(/^ +/,"",line); why[name]=line} /^ *--- SKIP: /{print "  skipped " $3 ": " why[$3]}' "$out" | head -60
exit $code
