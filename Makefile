# Everything a newcomer needs. Each target first makes sure that .venv holds what setup.cfg asks for.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all test-slow test-sim test-mutants test-generated test-oracle test-mysql test-mariadb test-upgrade test-spark-versions lint docs bench release clean

PYTHON ?= python3
BIN := .venv/bin
# Whatever the machine says, bytecode is kept: without it each of the hundreds of processes of a run compiles the product anew.
export PYTHONDONTWRITEBYTECODE :=
# Named after the contents of what defines the environment: when they change, the environment is brought up to date.
STAMP := .venv/.installed-$(shell cat setup.cfg pyproject.toml | cksum | tr ' ' -)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  Variables: PYTHON=python3.12 (for a new .venv), KEEP=1 (demo goes on), ARGS="-k name" (for pytest)'

venv: $(STAMP) ## create .venv and install everything into it

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python: $(PYTHON) is $$($(PYTHON) --version 2>&1 | tail -1); rowlock needs Python 3.11 or newer." >&2; \
	  echo "  → install one and name it, for example: make PYTHON=python3.12" >&2; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  echo "Creating .venv"; rm -rf .venv; $(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "Python: $(PYTHON) cannot create a virtual environment." >&2; \
	  echo "  → install its venv module (Debian: apt-get install python3-venv)" >&2; exit 2; }; }
	@echo "Installing what setup.cfg asks for into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@rm -f .venv/.installed-* && touch $@

demo: $(STAMP) ## two branch databases flow into a head office (KEEP=1: leave it running)
	@$(BIN)/rowlock demo $(if $(KEEP),--keep)

test: $(STAMP) ## the tests that take less than ten seconds, with real services; of tests on services some cases
	@$(BIN)/python -m deploy.embedded fetch
	@$(BIN)/python -m consumer.spark.class_archive
	@$(BIN)/python -m pytest -m "not slow and not upgrade" --cases few -n 4 $(ARGS)  # in four processes: most of their time they wait

test-all: $(STAMP) ## every case of all tests but the slow ones (ARGS="--turn N": what make test leaves out, cases in turn)
	@$(BIN)/python -m deploy.embedded fetch
	@$(BIN)/python -m consumer.spark.class_archive
	@$(BIN)/python -m pytest -m "not slow and not upgrade" -n 4 $(ARGS)

test-slow: $(STAMP) ## the slow tests, which `make test` leaves out (ARGS="--turn N": those of one turn)
	@$(BIN)/python -m deploy.embedded fetch
	@$(BIN)/python -m consumer.spark.class_archive
	@$(BIN)/python -m pytest -m slow $(ARGS)

test-sim: $(STAMP) ## the simulations, 2,000 seeds each
	@ROWLOCK_SIM_SEEDS=2000 $(BIN)/python -m pytest tests/sim -m "" $(ARGS)

test-mutants: $(STAMP) ## small wrong changes of the product: does a test find each? (ARGS=--sample: a few)
	@$(BIN)/python -m tests.mutants $(ARGS)

test-generated: $(STAMP) ## small wrong changes that a test once found: does it still? (ARGS="--sample 100")
	@$(BIN)/python -m tests.mutants.generated $(or $(ARGS),--sample 100)

test-upgrade: $(STAMP) ## systems of the last released versions, stopped within their work and continued by this one, and back (ARGS="--turn N": each test from one of them)
	@$(BIN)/python -m deploy.embedded fetch
	@$(BIN)/python -m pytest -m upgrade tests/upgrade $(ARGS)

test-spark-versions: $(STAMP) ## the tests of Spark on the oldest and the newest PySpark (ARGS="4.1.4": on these versions)
	@$(BIN)/python -m deploy.embedded fetch
	@$(BIN)/python -m tools.spark_versions $(ARGS)

test-oracle: $(STAMP) ## the tests of Oracle on a server of yours (DSN=rowlock_test/password@host:port/service; its user's tables are dropped)
	@ROWLOCK_ORACLE_DSN="$(DSN)" $(BIN)/python -m tests.real_oracle
	@ROWLOCK_ORACLE_DSN="$(DSN)" $(BIN)/python -m pytest tests/integration/test_oracle_target.py \
	  tests/integration/test_oracle_real_source.py tests/integration/test_oracle_real_points.py \
	  "tests/integration/test_oracle_values.py::test_each_value_is_held_or_refused[oracle]" $(ARGS)

# The suites of sources and targets, and what both rely on: definitions, values, rights.
GIVEN = tests/integration/test_sources.py tests/integration/test_capture_*.py tests/integration/test_definition_proof.py \
  tests/integration/test_decoder_servers.py tests/integration/test_decoder_charsets.py tests/integration/test_logged_metadata.py \
  tests/integration/test_logged_statements.py tests/integration/test_snapshot_reader.py tests/integration/test_schemas_*.py \
  tests/integration/test_source_rights.py tests/integration/test_table_lives.py tests/integration/test_targets_*.py

test-mysql: $(STAMP) ## the tests of sources and targets on a MySQL of yours (DSN=rowlock_test:password@host:port), or on VERSION=mysql-8.0.31
	@ROWLOCK_MYSQL_DSN="$(DSN)" ROWLOCK_MYSQL_VERSION="$(VERSION)" $(BIN)/python -m tests.servers.given_server
	@ROWLOCK_MYSQL_DSN="$(DSN)" ROWLOCK_MYSQL_VERSION="$(VERSION)" $(BIN)/python -m pytest -n $(if $(DSN),0,2) --server mysql $(GIVEN) $(ARGS)

test-mariadb: $(STAMP) ## the same on a MariaDB of yours, or on VERSION=mariadb-10.1.23
	@ROWLOCK_MARIADB_DSN="$(DSN)" ROWLOCK_MARIADB_VERSION="$(VERSION)" $(BIN)/python -m tests.servers.given_server
	@ROWLOCK_MARIADB_DSN="$(DSN)" ROWLOCK_MARIADB_VERSION="$(VERSION)" $(BIN)/python -m pytest -n $(if $(DSN),0,2) --server mariadb $(GIVEN) $(ARGS)

lint: $(STAMP) ## ruff, mypy, and the layers of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo

docs: $(STAMP) ## the documentation as a site, build/site/index.html; a warning is an error
	@$(BIN)/python -m sphinx -W --keep-going -n -q -c docs -d build/doctrees . build/site

bench: $(STAMP) ## the measurements of docs/benchmarks.md
	@$(BIN)/python -m bench $(ARGS)

release: $(STAMP) ## wheel, source distribution, site and constraints of the last commit, tried elsewhere (ARGS=--untagged: before its tag is set)
	@$(BIN)/python -m tools.release $(ARGS)

clean: ## remove .venv and everything generated (not the download cache)
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis state
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
