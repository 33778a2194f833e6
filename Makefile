# Targets: build test race fuzz lint bench integration conformance demo dist clean
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X main.version=$(VERSION)
FUZZTIME ?= 5m
FILE    ?= testdata/demo.txt

export CGO_ENABLED = 0
export FILE

.PHONY: all build test race fuzz lint bench integration powercut conformance demo dist clean

all: build

# build makes bin/epochmq, beside the launchers with RocketMQ's names.
build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/epochmq ./cmd/epochmq

# test needs nothing but Go. It ends with go test's own lines and the count of skipped tests.
test:
	./test/run.sh

# race needs a C compiler.
race:
	CGO_ENABLED=1 $(GO) test -race -short ./...

# fuzz runs every fuzz target for FUZZTIME.
fuzz:
	./test/fuzz.sh $(FUZZTIME)

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || (gofmt -l $$(git ls-files '*.go'); exit 1)
	$(GO) vet ./...

# bench loads the floor and the broker side by side, then runs the micro benchmarks.
bench: build
	$(GO) run ./benchmarks/driver -broker bin/epochmq
	$(GO) test -run '^$$' -bench . -benchmem ./message ./remoting/... ./store/...

# integration starts real processes: kills, restarts, damage, full disks.
integration: build
	$(GO) test -count=1 -timeout 60m ./test/integration/... -long

# powercut needs root, a loop device and mkfs.ext4.
powercut: build
	$(GO) test -count=1 -timeout 30m -run TestPowerCut -v ./test/integration/... -long

# conformance runs RocketMQ's unmodified clients and mqadmin. Needs JDK 17, Maven and access to module registries.
conformance: build
	./test/conformance/run.sh

demo: build
	@./bin/epochmq demo --file "$$FILE"

# dist makes one archive per platform with bin/, conf/ and docs/.
dist:
	./test/dist.sh $(VERSION)

clean:
	rm -rf bin/epochmq dist
