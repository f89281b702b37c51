# `make` alone prints this list of targets.
PYTHON ?= python3
ARGS ?=
SEEDS ?= 200
STAGES ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all planted docs screenshots test-faults test-dispatch test-deep soak sim test-tools check language format bench-triggers bench-index bench-jobs bench-scheduler bench-planners bench-dispatch bench-dashboard bench-compare lock clean

help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z-]*:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Make .venv with the locked dependencies and duly itself

$(STAMP): requirements-dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: $(PYTHON) not found. Install Python 3.11 or newer, or say make PYTHON=/path/to/python."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $(PYTHON) is $$($(PYTHON) -V); Duly needs 3.11 or newer. Say make PYTHON=python3.11 (or newer)."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || { echo "setup: making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "setup: installing locked dependencies (about a minute the first time)"
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
	@echo "setup: ready, try $(BIN)/duly --help"

demo: setup ## See the whole product run on a SQLite file; bounded with ARGS=--once
	@$(BIN)/duly demo $(ARGS)

# What is marked `extended` is left to test-all.
test: setup ## Run the tests on memory, SQLite and PostgreSQL (about 5 minutes), options through ARGS="..."
	@$(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not extended" $(ARGS)

test-all: setup ## Run all stages beyond make test (about 25 minutes), or some: STAGES="soak browsers"; ARGS=--list lists them
	@$(BIN)/python -m tests.stages $(STAGES) $(ARGS)

test-faults: setup test-tools ## Kill, freeze and cut off real workers and servers under load, options through ARGS="..."
	@$(BIN)/python -m tests.system.faults $(ARGS)

soak: setup ## Kill planners and workers every second under load, and count every occurrence; options through ARGS="..."
	@$(BIN)/python -m tests.system.soak $(ARGS)

sim: setup ## Simulate planners, workers and faults on a virtual clock, SEEDS=2000 or ARGS="..."
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

test-deep: setup ## Search the properties ten times as long as in every run, options through ARGS="..."
	@DULY_TEST_DEPTH=10 $(BIN)/python -m pytest -q -n 2 --timeout=3600 tests/property tests/integration/test_index_model.py $(ARGS)

test-dispatch: setup ## Kill a server under two ticks and 5,000 due schedules, options through ARGS="..."
	@$(BIN)/python -m tests.system.fleet $(ARGS)

# Debian packages that some tests need; without them those tests are skipped with the reason.
test-tools: setup
	@$(BIN)/python -m tests.stages --tools

planted: setup ## Count the planted faults that make test and make test-all catch
	@$(BIN)/python -m tests.stages.planted $(ARGS)

docs: setup ## Write what is generated, and the documents as a site to build/site; a warning is an error
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: open build/site/index.html"

screenshots: setup test-tools ## Take the pictures of the documents anew, with the browser tests
	@DULY_SCREENSHOTS=1 $(BIN)/python -m pytest -q tests/browser/test_dashboard.py $(ARGS)

check: setup ## Format, lint, types, import layers, tidy: what a merge must pass
	@echo "check: format"; $(BIN)/ruff format --quiet --check . || { echo "check: run make format"; exit 1; }
	@echo "check: lint"; $(BIN)/ruff check --quiet .
	@echo "check: types"; $(BIN)/mypy --no-error-summary $(wildcard src tests tools benchmarks examples)
	@echo "check: layers"; $(BIN)/lint-imports --no-logo >$(VENV)/.layers 2>&1 || { cat $(VENV)/.layers; exit 1; }
	@echo "check: tidy"; $(BIN)/python -m pytest -q --no-header tests/test_tidy.py

language: setup ## List wording that may not be plain English; advice only, paths through ARGS="..."
	@$(BIN)/python -m tools.language $(ARGS)

format: setup ## Format the code and fix what the linter can fix
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

bench-triggers: setup ## Measure triggers beside their peers
	@$(BIN)/python benchmarks/triggers.py $(ARGS)

bench-index: setup ## Measure claims beside the bare drivers and APScheduler
	@$(BIN)/python benchmarks/index.py $(ARGS)

bench-dashboard: setup ## Measure every page over a million schedules and a million jobs (about 4 minutes)
	@$(BIN)/python benchmarks/dashboard.py $(ARGS)

bench-jobs: setup ## Measure the queue beside other queues (about 12 minutes, peers from PyPI and npm)
	@$(BIN)/python benchmarks/jobs.py $(ARGS)

bench-scheduler: setup ## Measure planning, lateness and bursts beside other schedulers (about 10 minutes)
	@$(BIN)/python benchmarks/scheduler.py $(ARGS)

bench-planners: setup ## Measure planners that share a burst, beside shards and partitions (about 4 minutes)
	@$(BIN)/python benchmarks/planners.py $(ARGS)

bench-dispatch: setup ## Measure the tick beside loops with httpx
	@$(BIN)/python benchmarks/dispatch.py $(ARGS)

bench-compare: setup ## Measure what operations cost beside an earlier commit: ARGS="--base COMMIT" (about 5 minutes)
	@$(BIN)/python benchmarks/compare.py $(ARGS)

# The lock holds names, versions and hashes only, so it installs from any registry.
lock: ## Make requirements-dev.txt anew from requirements-dev.in
	@test -x $(VENV)-lock/bin/uv || { $(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/python -m pip install --quiet uv; }
	@$(VENV)-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	  requirements-dev.in -o requirements-dev.txt
	@echo "lock: requirements-dev.txt is new; run make setup check test before committing it"

clean: ## Remove the environment, caches and built files
	@rm -rf $(VENV) $(VENV)-* .bench build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
