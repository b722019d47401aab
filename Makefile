# Everything a person types here: build, demo, test, lint, check, bench. `make setup` installs what is missing and is part of demo and test.
SHELL := /bin/bash
export CGO_ENABLED ?= 0
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Where the programs go; tests build into a folder of their own.
BIN ?= $(CURDIR)/bin
LDFLAGS := -s -w -X agentworks-deploy/internal/cli.Version=$(VERSION)

.PHONY: build setup demo test lint check bench fuzz clean

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/agentworks-deploy ./cmd/agentworks-deploy
	$(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/slotctl ./cmd/slotctl
	$(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/video-studio-landlock-runner ./cmd/landlock-runner
	$(MAKE) --no-print-directory -C testdata/sample-release OUT=$(BIN)/sample-release

setup:
	@tools/setup.sh

demo: setup build
	@tools/demo.sh

# The race detector needs cgo; the programs under test are built static all the same. Most of a test in a lab is waiting for
# services to be steady, so more packages than there are CPUs run at once.
test: setup build
	CGO_ENABLED=1 AWS_EC2_METADATA_DISABLED=true $(GO) test -race -p 3 -timeout 18m ./...
	@printf '\n== what breaks a slot host, which rows find it, and whether the printed fix heals it, as the tests above found it; alone, then in pairs\n'
	@cat internal/slotcheck/testdata/breakages.golden internal/slotcheck/testdata/pairs.golden

lint: setup
	@tools/lint.sh

check: lint test

bench: setup build
	CGO_ENABLED=0 $(GO) test -run '^$$' -bench . -benchmem ./...

clean:
	rm -rf bin
