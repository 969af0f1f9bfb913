# Everything a contributor runs. Each target sets up `.venv` first, and again only when pyproject.toml
# or constraints.txt changed. Needs make, git and a Python 3.11 or later; no root.

PYTHON ?= python3
# One more than there are cores: many tests wait for processes, leases and clocks.
JOBS ?= $(shell expr `getconf _NPROCESSORS_ONLN` + 1)

BIN := .venv/bin
READY := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test check fuzz simulate restarts cancels durability chaos faults soak mutants mutation audit bench bench-peers clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## create .venv with the tested versions

run: $(READY) ## run the example playbook examples/tour.yaml
	$(BIN)/noetl run examples/tour.yaml

test: check ## the checks, then every test (JOBS=n processes)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

check: $(READY) ## lint, format, types, architecture and the repository's gates
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_architecture.py tests/test_gates.py

fuzz: $(READY) ## validate N mutated playbooks (N=100000)
	$(BIN)/python -m tests.fuzz.validate --count $(or $(N),100000)

simulate: $(READY) ## play N random executions with crashes, and report what occurred (N=10000)
	$(BIN)/python -m tests.simulation --count $(or $(N),10000) --coverage

restarts: $(READY) ## restart N random executions after each of their commits (N=2000)
	$(BIN)/python -m tests.simulation.restarts --count $(or $(N),2000)

cancels: $(READY) ## cancel N random executions after each of their commits (N=1000)
	$(BIN)/python -m tests.simulation.cancels --count $(or $(N),1000)

durability: $(READY) ## kill executions at every commit and at 200 random moments
	$(BIN)/python -m tests.durability

chaos: $(READY) ## random faults on a whole deployment, for SECONDS or ROUNDS; SEED repeats (SECONDS=60)
	$(BIN)/python -m tests.distributed.chaos --seconds $(or $(SECONDS),60) \
	  $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS))

faults: $(READY) ## one fault of the table, ROW, tried TRIALS times under load; SEED repeats (ROW=workers)
	$(BIN)/python -m tests.distributed.faults $(or $(ROW),workers) \
	  $(if $(TRIALS),--trials $(TRIALS)) $(if $(SEED),--seed $(SEED))

soak: $(READY) ## mixed load with a fault a minute, memory measured; MINUTES, SEED, OPTIONS (MINUTES=10)
	$(BIN)/python -m tests.distributed.soak --minutes $(or $(MINUTES),10) \
	  $(if $(SEED),--seed $(SEED)) $(OPTIONS)

mutants: $(READY) ## plant each known bug in a copy of the tree and see that the tests notice
	$(BIN)/python -m tests.mutants

mutation: $(READY) ## make N random changes of engine and control and see that the tests notice 85 % (N=300)
	$(BIN)/python -m tests.mutants.operators --count $(or $(N),300) --seed $(or $(SEED),1) --least 0.85

audit: ## known holes in the pinned versions; needs a vulnerability service (SERVICE=pypi or osv)
	$(PYTHON) -m venv .bench/audit
	.bench/audit/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip-audit
	@# Strict, because a service that knows none of the versions would let everything pass.
	.bench/audit/bin/pip-audit --strict --no-deps --disable-pip -s $(or $(SERVICE),pypi) -r constraints.txt

bench: $(READY) ## run each script of benchmarks/, then the other engines
	@failed=0; for script in benchmarks/[!_]*.py; do echo "== $$script"; $(BIN)/python "$$script" || failed=1; done; \
	  $(MAKE) bench-peers && exit $$failed

bench-peers: $(READY) ## the same work on other engines, each installed under .bench/
	$(BIN)/python benchmarks/peers/run.py
	$(BIN)/python benchmarks/peers/on_postgres.py

clean: ## remove .venv and everything generated
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .noetl .bench build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The build tools are installed first and the package without build isolation, so that one constraints file
# holds for both: pip versions differ in whether `-c` reaches an isolated build.
$(READY): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "NoETL needs Python 3.11 or later, but '$(PYTHON)' is not ($$($(PYTHON) --version 2>&1))." \
	      "Name one: make PYTHON=python3.12 ..." >&2; exit 1; }; \
	  $(PYTHON) -m venv .venv; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo ".venv was made with $$($(BIN)/python --version 2>&1); NoETL needs 3.11 or later: make clean" >&2; exit 1; }
	@# Python brings a pip, and some a setuptools, of the day it was made itself: with holes known since.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip hatchling editables
	@$(BIN)/python -m pip uninstall --quiet --yes setuptools 2>/dev/null
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[dev]"
	@# Where Python is told not to write bytecode, every start of `noetl` would compile it anew.
	@$(BIN)/python -m compileall -q src
	@touch $(READY)
