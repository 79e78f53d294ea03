# Everything by name. What each target does in detail is in `cargo xtask --help` (docs/xtask.md).
SHELL := /bin/bash
CACHE := $(or $(VALKEY_OPERATOR_CACHE),$(HOME)/.cache/valkey-operator)
# Builds survive the checkout: a fresh clone compiles only what changed.
export CARGO_TARGET_DIR ?= $(CACHE)/target

.DEFAULT_GOAL := help
.PHONY: help demo test test-full bench down clean ours

# Cargo knows a changed file by its time, not by its content, so what another checkout built here could pass for ours.
# Whenever the checkout is another one than last time, all our sources count as changed.
ours:
	@mkdir -p "$(CARGO_TARGET_DIR)"
	@if [ "$$(cat "$(CARGO_TARGET_DIR)/.checkout" 2>/dev/null)" != "$(CURDIR)" ]; then \
	    find crates e2e xtask -name '*.rs' -exec touch {} + && echo "$(CURDIR)" >"$(CARGO_TARGET_DIR)/.checkout"; \
	fi

help: ## prints this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ours ## boots a local Kubernetes with the operator and a sample cluster, and says how to go on
	@cargo xtask demo

test: ours ## every check and test, as CI runs them
	@cargo xtask test

test-full: ours ## the same and the long suites
	@cargo xtask test --full

bench: ours ## figures, as ratios measured in one run
	@cargo xtask bench

down: ours ## ends every local cluster and removes every trace of it
	@cargo xtask cluster down --all

clean: down ## the same, and removes everything that was built or fetched
	rm -rf "$(CACHE)" target
