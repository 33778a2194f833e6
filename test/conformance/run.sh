#!/bin/sh
# Runs RocketMQ's unmodified clients, mqadmin and brokers beside ours. Fetches them by package name through Maven and Go modules.
cd "$(dirname "$0")/../.." || exit 2
for tool in java javac mvn go; do
	command -v $tool >/dev/null || { echo "conformance: $tool is missing; it needs JDK 17, Maven and Go" >&2; exit 2; }
done
exec go test -tags conformance -count=1 -v -timeout 90m "$@" ./test/conformance/
