# forkd. `make help` lists what there is.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
N       ?= 100
SOAK    ?= 1h

# The patch release of Go to build with: releases after go.mod's fix faults of net/http and crypto
# that a client can use. Where it cannot be downloaded, the installed one builds.
PATCHED  := go1.26.10+auto
export GOTOOLCHAIN := $(shell GOTOOLCHAIN=$(PATCHED) $(GO) version >/dev/null 2>&1 && echo $(PATCHED) || echo local)

# No C library is linked: the programs run in any guest and in the machine.
export CGO_ENABLED = 0

# One way of compiling for programs, tests and packages: each dependency is compiled once.
export GOFLAGS := $(strip -trimpath $(GOFLAGS))

.DEFAULT_GOAL := help
.PHONY: help deps build fixtures sdks sdk-types sdk-docs outdated wheels deb release ui chart test-package test-wheel test-ui test test-integrations soak codeinterp test-recipes test-buckets test-upgrade test-operation test-registries test-kube kube-types quick cross lint demo bench clean

help: ## show this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "  make %-17s %s\n", $$1, $$2 }'

deps: ## install the Debian packages that are missing (packaging/debian/packages.txt)
	@scripts/deps.sh

build: ## build bin/forkd, bin/forkd-agent, bin/forkd-vmm, bin/forkd-spawn, bin/forkd-net, bin/forkd-kube and bin/forkd-bench
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

fixtures: deps build ## build the kernels and images that KVM tests boot
	$(GO) run ./test/fixtures

sdks: deps ## install the pinned packages that tests run: E2B's, the original's, MCP's, those of our SDKs, and two frameworks
	@scripts/e2b-sdks.sh
	@scripts/original-sdk.sh
	@scripts/mcp-clients.sh
	@scripts/sdk-python.sh
	@scripts/mutation.sh
	@scripts/promtool.sh
	@GO="$(GO)" scripts/registries.sh
	@scripts/ui.sh
	@scripts/sdk-typescript.sh
	@scripts/integrations.sh --install pytest-forkd forkd-smolagents

test: deps build fixtures sdks ## everything: vet, other platforms, tests, KVM tests in the machine (or on this host), fuzz targets briefly
	$(GO) run ./test/runner

test-integrations: ## run the suites of integrations/ with the pinned frameworks against a running daemon (SUITES="...")
	scripts/integrations.sh $(SUITES)

soak: deps build fixtures ## random steps, kills and churn, each capture compared with its source (SOAK=1h)
	scripts/schemathesis.sh short
	scripts/e2b-sdks.sh newest
	scripts/mcp-clients.sh all
	$(GO) run ./test/runner -soak $(SOAK)

codeinterp: deps build ## E2B's code interpreter over VMs in a machine, with FORKD_FORKS forks (100) of a warm one
	FORKD_TEST_SOAK=1 FORKD_TEST_MACHINE=codeinterp $(GO) test -count=1 -v -timeout 60m -run OverVMs ./test/codeinterp

test-recipes: deps build ## recipes that take long, over VMs in a machine: each forked 20 times and used; Docker in a sandbox
	FORKD_TEST_SOAK=1 FORKD_TEST_MACHINE=recipes $(GO) test -count=1 -v -timeout 60m ./test/recipes

test-buckets: deps ## signatures of requests to buckets, with a real S3 server that checks them, and rclone
	@GO="$(GO)" scripts/s3.sh
	FORKD_TEST_SOAK=1 FORKD_TEST_VERSITYGW=$(CURDIR)/.cache/s3/versitygw $(GO) test -count=1 -v -timeout 10m ./internal/net/s3sign

test-upgrade: deps build fixtures ## VMs, snapshots and paused sandboxes of 0.1.0 under today's daemon, in the machine
	scripts/old-release.sh
	FORKD_TEST_SOAK=1 FORKD_TEST_FIXTURES=$(CURDIR)/.cache/fixtures $(GO) test -count=1 -v -timeout 30m \
		-exec "$(CURDIR)/bin/forkd machine test-exec --name test --timeout 20m" ./test/upgrade

test-operation: deps build ## events of a long operation, with a real Prometheus and OpenTelemetry's receiver; takes 20 minutes
	@scripts/promtool.sh
	FORKD_TEST_SOAK=1 FORKD_TEST_MACHINE=test $(GO) test -count=1 -v -timeout 60m ./test/operation

test-registries: deps build ## snapshots in registries with skopeo, docker-registry and cosign, which is built first
	@GO="$(GO)" scripts/registries.sh cosign
	FORKD_TEST_SOAK=1 $(GO) test -count=1 -v -timeout 20m ./test/registries

test-kube: deps build fixtures ## the operator and the gateway with a real control plane of Kubernetes, over fake nodes and over VMs; it is built first (10 minutes, once)
	@GO="$(GO)" scripts/kube-bench.sh
	@scripts/kube-sdk.sh
	@GO="$(GO)" scripts/kube-types.sh check
	FORKD_TEST_SOAK=1 FORKD_TEST_KUBE=$(CURDIR)/.cache/kube FORKD_TEST_MACHINE=test \
		FORKD_TEST_FIXTURES=$(CURDIR)/.cache/fixtures $(GO) test -count=1 -v -timeout 90m ./test/kube

kube-types: ## generate the CRDs of packaging/kubernetes/crds, and methods of their types
	@GO="$(GO)" scripts/kube-types.sh

quick: ## vet and the tests that need nothing
	$(GO) vet ./...
	$(GO) test ./...

cross: ## compile for linux/arm64 (all), and CLI and client for macOS and Windows; make test does too
	$(GO) run ./test/runner -cross

lint: ## gofmt, golangci-lint, deadcode, gosec, govulncheck, and Vale for docs (the rules between packages are tests: test/arch)
	@unformatted=$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...)); \
	if [ -n "$$unformatted" ]; then echo "not formatted:"; echo "$$unformatted"; exit 1; fi
	scripts/golangci.sh
	@GO="$(GO)" scripts/deadcode.sh
	scripts/gosec.sh
	$(GO) run ./test/vulncheck ./...
	scripts/vale.sh

demo: deps build ## from nothing to N warm forks, with a table of times (N=100)
	@bin/forkd demo -n $(N)

bench: deps build ## fork N children and measure against the bare ioctls (N=100)
	bin/forkd-bench fork pyagent -n $(N) --json

sdk-types: deps ## generate the SDKs' types from api/openapi.json and api/errors.json
	@scripts/sdk-python.sh
	.cache/sdk/python/bin/python sdk/python/scripts/generate.py
	export PATH="$$(scripts/node.sh):$$PATH"; cd sdk/typescript && npm ci --silent && npm run -s generate && npm run -s build

outdated: ## list direct dependencies with newer versions (scripts/outdated.sh --apply updates the Go modules)
	@scripts/outdated.sh

sdk-docs: ## write the reference pages of the SDKs to dist/docs, with pdoc and TypeDoc
	@scripts/sdk-docs.sh

deb: deps ## build dist/forkd_*.deb: the programs, systemd units, manual and completions (VERSION=0.1.0)
	@VERSION=$(if $(filter command line environment,$(origin VERSION)),$(VERSION)) scripts/deb.sh

release: deps ## build all files of a release into dist/release: archives, package, wheels, image, SBOM (VERSION=0.1.0)
	@VERSION=$(if $(filter command line environment,$(origin VERSION)),$(VERSION)) scripts/release.sh

test-package: deps build fixtures ## install, use, upgrade and remove the package in a Debian with systemd under QEMU
	FORKD_TEST_SOAK=1 FORKD_TEST_FIXTURES=$(CURDIR)/.cache/fixtures $(GO) test -count=1 -v -timeout 40m ./test/deb

test-wheel: wheels ## install the wheel in a clean Debian without Go, make and QEMU, follow its advice, and fork
	FORKD_TEST_SOAK=1 $(GO) test -count=1 -v -timeout 60m ./test/wheel

chart: ## check the Helm chart, and render the Kustomize base from it
	@GO="$(GO)" scripts/chart.sh

ui: ## build the web page into internal/api/ui/dist, which is checked in
	@scripts/ui.sh
	cd ui && npm run build

test-ui: ## the tests of the web page in Debian's Chromium, over a mock of the daemon (UI_URL, UI_KEY: over a daemon)
	scripts/chromium.sh
	@scripts/ui.sh
	cd ui && npm test

wheels: deps ## build dist/forkd-*.whl: the Python client with forkd's programs inside (amd64; arm64: the client)
	@scripts/wheels.sh

clean: ## remove what was built here; machines and images stay (forkd machine rm)
	rm -rf bin .cache dist
