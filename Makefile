# walrelay. `make` shows what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash -o pipefail
GO ?= go
TOOLS := $(CURDIR)/.cache/tools
GOVULNCHECK_VERSION := v1.9.0
GOLANGCI_VERSION := v2.15.0
# The tools that check deploy/. goreleaser: the newest that this Go builds.
HELM_VERSION := v4.3.2
KUBECTL_VALIDATE_VERSION := v0.0.4
COMPOSE_VERSION := v2.16.2
GORELEASER_VERSION := v2.17.0
PROMTOOL_VERSION := v0.316.0
TEST_TIMEOUT ?= 20m

.PHONY: help
help: ## show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: build
build: ## build bin/walrelay, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/walrelay ./cmd/walrelay

.PHONY: demo
demo: ## a shop, its outbox and a broker outage, live (needs only Go; ARGS="--for 30s")
	@$(GO) build -o bin/walrelay ./cmd/walrelay
	@$(GO) build -o bin/demo ./cmd/demo
	@bin/demo $(ARGS)

.PHONY: test
test: ## everything against real PostgreSQL and Kafka (needs Go, a JDK, Maven)
	$(GO) test -timeout $(TEST_TIMEOUT) ./...
	@$(GO) test ./testenv -run '^TestBrowser$$' -v | grep -A 1 'no browser' || true

.PHONY: test-all
test-all: ## make test on every PostgreSQL major, 14 to 18
	WALRELAY_TEST_MAJORS=14,15,16,17,18 $(GO) test -timeout 90m ./...

.PHONY: race
race: ## the packages with goroutines, and the binary, under the race detector
	$(GO) test -race -timeout $(TEST_TIMEOUT) ./checkpoint ./decoder ./cdc/... ./sink ./monitor ./cmd/walrelay

.PHONY: kill-campaign
kill-campaign: ## 1,000,000 events, ten SIGKILLs, in both delivery modes, judged by an independent consumer
	WALRELAY_E2E_EVENTS=1000000 WALRELAY_E2E_KILLS=10 $(GO) test ./e2e -run 'TestKill|TestExactlyOnce_Kill' -v -count=1 -timeout 60m

.PHONY: memory
memory: ## one transaction of 10,000,000 rows in both delivery modes, payloads of 5 MB, and Kafka away: what walrelay has resident
	WALRELAY_E2E_ROWS=10000000 $(GO) test ./e2e -run TestMemory -v -count=1 -timeout 120m

.PHONY: campaign
campaign: ## look for lost events under faults: FOR=10m SEED=7 FAULTS=a,b PG=18 DELIVERY=at-least-once SHAPE=rows
	$(GO) run ./e2e/campaign --for $(or $(FOR),10m) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(PG),--pg $(PG)) $(if $(DELIVERY),--delivery $(DELIVERY)) $(if $(SHAPE),--shape $(SHAPE))

.PHONY: payments
payments: ## the example application with everything going wrong; its sums have to agree: FOR=1m SEED=7
	@$(GO) run ./examples/payments prove --for $(or $(FOR),1m) $(if $(SEED),--seed $(SEED))

.PHONY: debezium-parity
debezium-parity: ## the same rows through Debezium's outbox event router and through walrelay: equal records; and the change from one to the other
	WALRELAY_PARITY=1 $(GO) test ./e2e/parity -v -count=1 -timeout 30m

.PHONY: fuzz
fuzz: ## fuzz the decoder, FUZZTIME (default 5m) a target
	$(GO) test ./decoder -run '^$$' -fuzz FuzzDecode -fuzztime $(or $(FUZZTIME),5m)
	$(GO) test ./decoder -run '^$$' -fuzz FuzzParseHeaders -fuzztime $(or $(FUZZTIME),5m)
	$(GO) test ./decoder -run '^$$' -fuzz FuzzEnvelope -fuzztime $(or $(FUZZTIME),5m)
	$(GO) test ./decoder -run '^$$' -fuzz FuzzBinary -fuzztime $(or $(FUZZTIME),5m)

.PHONY: bench
bench: ## drain and latency beside pg_recvlogical (ARGS="--json")
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/walrelay ./cmd/walrelay
	@$(GO) run ./bench $(ARGS)

.PHONY: kit-bench
kit-bench: ## what each pattern of docs/patterns.md costs beside the bare transaction: ROUNDS=1000
	$(GO) test ./kit -run '^$$' -bench . -benchtime $(or $(ROUNDS),1000)x -timeout 60m

.PHONY: verify
verify: lint tidy vet verify-deploy ## format, lint, tidy, deploy/: what must be clean before a commit

# promtool is Debian's (package prometheus) where that is installed. Where a tool is missing, make test says so only with -v.
DEPLOY_TOOLS := $(TOOLS)/helm-$(HELM_VERSION) $(TOOLS)/kubectl-validate-$(KUBECTL_VALIDATE_VERSION) \
	$(TOOLS)/compose-spec-$(COMPOSE_VERSION) $(TOOLS)/goreleaser-$(GORELEASER_VERSION) \
	$(if $(shell command -v promtool),,$(TOOLS)/promtool-$(PROMTOOL_VERSION)) $(TOOLS)/bin/deploy-lint

.PHONY: verify-deploy
verify-deploy: $(DEPLOY_TOOLS) ## deploy/ by each format's own tool, built the first time; Linux needs systemd-analyze
	WALRELAY_TEST_TOOLS=all $(GO) test -count=1 ./deploy

# Each is built once; the empty file says which version is there.
$(TOOLS)/helm-$(HELM_VERSION):
	GOBIN=$(TOOLS)/bin $(GO) install helm.sh/helm/v4/cmd/helm@$(HELM_VERSION)
	@touch $@
$(TOOLS)/kubectl-validate-$(KUBECTL_VALIDATE_VERSION):
	GOBIN=$(TOOLS)/bin $(GO) install sigs.k8s.io/kubectl-validate@$(KUBECTL_VALIDATE_VERSION)
	@touch $@
$(TOOLS)/compose-spec-$(COMPOSE_VERSION):
	GOBIN=$(TOOLS)/bin $(GO) install github.com/compose-spec/compose-go/v2/cmd@$(COMPOSE_VERSION)
	mv $(TOOLS)/bin/cmd $(TOOLS)/bin/compose-spec
	@touch $@
$(TOOLS)/goreleaser-$(GORELEASER_VERSION):
	GOBIN=$(TOOLS)/bin $(GO) install github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)
	@touch $@
$(TOOLS)/bin/deploy-lint: $(wildcard deploy/lint/*.go) deploy/lint/go.mod
	$(GO) build -C deploy/lint -o $@ .
$(TOOLS)/promtool-$(PROMTOOL_VERSION):
	GOBIN=$(TOOLS)/bin $(GO) install github.com/prometheus/prometheus/cmd/promtool@$(PROMTOOL_VERSION)
	@touch $@

# govulncheck ends with 3 when it found something; whatever else is not 0 has checked nothing.
.PHONY: vulncheck
vulncheck: $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION) ## known vulnerabilities, by https://vuln.go.dev or another database: VULNDB=url
	@$< $(if $(VULNDB),-db $(VULNDB)) ./... || { status=$$?; [ $$status -eq 3 ] || \
		echo "make vulncheck: NOT CHECKED: the database of vulnerabilities cannot be read; run it where https://vuln.go.dev can be reached" >&2; \
		exit $$status; }

$(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION):
	GOBIN=$(TOOLS) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	mv $(TOOLS)/govulncheck $@

.PHONY: vet
vet:
	$(GO) vet ./...
	GOOS=darwin $(GO) build -o /dev/null ./cmd/walrelay
	GOOS=darwin $(GO) build -o /dev/null ./cmd/demo

.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
	$< run ./...
	$< fmt --diff ./...

.PHONY: tidy
tidy:
	$(GO) mod tidy -diff

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION) ## format everything
	$< fmt ./...

$(TOOLS)/golangci-lint-$(GOLANGCI_VERSION):
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(TOOLS)/golangci-lint $@
