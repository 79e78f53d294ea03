# Everything by name. What each target does in detail is in `cargo xtask --help` (docs/xtask.md).
SHELL := /bin/bash
CACHE := $(or $(VALKEY_OPERATOR_CACHE),$(HOME)/.cache/valkey-operator)
# Builds survive the checkout: a fresh clone compiles only what changed.
export CARGO_TARGET_DIR ?= $(CACHE)/target

.DEFAULT_GOAL := help
.PHONY: help demo test test-full bench down clean

# What a recipe builds is known by its content the next time, whatever checkout that is.
built = .ci/source-times begin "$(CARGO_TARGET_DIR)" && { $(1); status=$$?; .ci/source-times end "$(CARGO_TARGET_DIR)"; exit $$status; }

help: ## prints this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## boots a local Kubernetes with the operator and a sample cluster, and says how to go on
	@$(call built,cargo xtask demo)

test: ## every check and test, as CI runs them
	@$(call built,cargo xtask test)

test-full: ## the same and the long suites
	@$(call built,cargo xtask test --full)

bench: ## figures, as ratios measured in one run
	@$(call built,cargo xtask bench)

down: ## ends every local cluster and removes every trace of it
	@$(call built,cargo xtask cluster down --all)

clean: down ## the same, and removes everything that was built or fetched
	rm -rf "$(CACHE)" target
