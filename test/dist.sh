#!/bin/sh
# Makes dist/epochmq-VERSION-OS-ARCH.tar.gz with bin/, conf/ and docs/ for each platform.
set -eu
cd "$(dirname "$0")/.."
version=${1:-dev}
mkdir -p dist
for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
	os=${target%/*} arch=${target#*/}
	name=epochmq-$version-$os-$arch
	tmp=$(mktemp -d)
	mkdir -p "$tmp/$name/bin"
	cp bin/mq* "$tmp/$name/bin/"
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$tmp/$name/bin/epochmq" ./cmd/epochmq
	mkdir -p "$tmp/$name/conf"
	(cd conf && find . -name '*.go' -prune -o -name testdata -prune -o -type f -print | cpio -pdm --quiet "$tmp/$name/conf" 2>/dev/null) ||
		(cd conf && for f in $(find . -type f ! -name '*.go' ! -path '*testdata*'); do mkdir -p "$tmp/$name/conf/$(dirname "$f")"; cp "$f" "$tmp/$name/conf/$f"; done)
	cp LICENSE README.md CHANGELOG.md "$tmp/$name/"
	cp -R docs "$tmp/$name/docs"
	tar -C "$tmp" -czf "dist/$name.tar.gz" "$name"
	rm -rf "$tmp"
	echo "dist/$name.tar.gz"
done
