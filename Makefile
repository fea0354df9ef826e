# Every target works as the first command on a fresh machine: it makes .venv and installs the pinned requirements once.
PYTHON ?= $(shell for p in python3.11 python3 python3.12; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help bench quick test perf lint clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

bench: .venv/.ready  ## run the default bench, with table and report (ARGS="--set c=16 --jobs 4" are passed on)
	$(BIN)/rehearse run bench $(ARGS)

quick: .venv/.ready  ## a small part of the bench, in about a minute
	$(BIN)/rehearse run bench --quick --out results/bench-quick $(ARGS)

test: .venv/.ready  ## run every test (ARGS="-k name" are passed on)
	$(BIN)/python -m pytest -n auto $(ARGS)

perf: .venv/.ready  ## how fast workloads and replays are, and the share of the time that is vLLM's own
	$(BIN)/python -m workloads.perf
	$(BIN)/python -m harness.perf

lint: .venv/.ready  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:  ## remove the environment and the caches; results stay
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and with its own dependencies, then the lock without asking for any: see requirements/cpu.txt.
.venv/.ready: requirements/torch.txt requirements/cpu.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Rehearsal needs Python 3.11 or 3.12 on the PATH (or name one: make PYTHON=/path/to/python3.11)." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/torch.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/cpu.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
