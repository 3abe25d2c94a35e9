# Everything is a script under localstack/; this file only names it. `make` or `make help` lists the targets.

# The Node versions this was tried with run the CDK's runtime well; its notices would bury our own lines.
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION = 1
export JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION = 1
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION = 20

.DEFAULT_GOAL := help
.PHONY: help doctor demo up down logs test check bench load chaos large upgrade deploy tools lock FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { sub("%", "<function>", $$1); printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  HOLDFAST_PORT, HOLDFAST_MODEL_PORT   ports of the local stack (4566, 4567)'
	@echo '  UPSTREAM_URL                         an OpenAI-compatible server instead of the simulated one (up, demo)'
	@echo '  BATCH_LINES                          lines of the demo batch (2000)'
	@echo '  BATCH_MODEL                          model the demo asks for, with UPSTREAM_URL'
	@echo '  LOAD_BATCHES, LOAD_LINES, LOAD_PARTS, LOAD_PART_LINES   how much make load sends (10, 10000, 3000, 10)'
	@echo '  KILLS, CHAOS_LINES, CHAOS_SEED       workers that make chaos kills, lines of its batches, its choices (20, 5000, random)'
	@echo '  CHAOS_ONLY=doors                     make chaos without the batches: only what befalls those who start them'
	@echo '  ALARM_EMAIL                          an address that alarms are sent to (deploy)'
	@echo '  DOORS                                off: no batches from S3 and messages, $$0.26 a month less (deploy)'
	@echo '  GATEWAY                              off: no gateway; a number: so many of its requests at once (deploy)'
	@echo '  VPC, SUBNETS, ROUTE_TABLES, ENDPOINTS   the VPC of who calls upstreams: docs/operations.md (deploy)'
	@echo '  V=1                                  show what every stage says'

doctor: ## name what this machine lacks and how to get it
	@sh localstack/doctor.sh

demo: ## a batch of 2,000 lines through the whole stack, on this machine; leaves the stack up
	@bash localstack/demo.sh

up: ## the local stack, without a batch; writes .local/env for other programs
	@bash localstack/up.sh

down: ## end the local stack wholly; tools and builds stay
	@bash localstack/down.sh

logs: ## what the functions of the local stack logged
	@bash localstack/function.sh logs

invoke-%: FORCE ## send a function of the local stack its sample event from events/ (EVENT=file: another)
	@bash localstack/function.sh invoke $* $(if $(EVENT),'$(EVENT)')

test: ## everything, from formatting to the end-to-end tests, on a stack of its own
	@bash localstack/test.sh

check: ## under a minute: formatting, vet and the tests that need no stack
	@bash localstack/source.sh check

bench: ## measure (ONLY=finishing: what has that in its name), print each figure beside its bound, write .local/bench.json
	@bash localstack/binaries.sh locked functions host
	@bash localstack/binaries.sh locked commands bench holdfast
	@.local/bin/bench --json .local/bench.json --only '$(ONLY)' --functions "$$(bash localstack/binaries.sh folder)"

load: ## load runs on a stack of its own, each figure beside its bound, in under ten minutes; writes .local/load.json
	@bash localstack/load.sh

chaos: ## kill and stop workers (KILLS=20) while batches run, on a stack of its own; exit 1 when a line was lost or doubled
	@bash localstack/chaos.sh

large: ## a 512 MB upload, killed in the middle and resumed, on a stack of its own
	@bash localstack/large.sh

upgrade: ## replace the stack of an earlier commit (FROM) while it runs a batch; needs the history, so make test leaves it out
	@bash localstack/upgrade.sh

deploy: ## deploy to your AWS account; needs HOLDFAST_UPSTREAM_URL
	@bash localstack/account.sh

tools: ## install the locked tools into .local/tools
	@bash localstack/tools.sh locked

lock: ## make localstack/requirements.txt anew from requirements.in
	@bash localstack/tools.sh lock

FORCE:
