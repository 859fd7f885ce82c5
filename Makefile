# Every task of the project. CI runs `make check`, `make test-slow` and the demo.
#
#   make demo                         the guided tour, from nothing but Python 3.11, Java 17 and make
#   make demo ARGS="--json"           the same, with arguments for the command
#   make test ARGS="-k checkpoint"    a part of the tests

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
ARGS ?=
# Tests at once: three in `make test`, which waits for servers, disks and the JVM; else two, or as many as you say.
WORKERS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[.a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: env
env: $(INSTALLED) ## Create .venv from the lock file (uv if it is there, else pip).

# A folder's own time changes whenever something is written into it, so the stamp stands for it.
.PHONY: .venv
.venv: $(INSTALLED)

# The lock holds the build backend too: the last step resolves nothing and fetches nothing.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	@if command -v uv >/dev/null; then \
	    test -x $(BIN)/python || uv venv --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv; \
	    uv pip sync --python $(BIN)/python --require-hashes requirements.lock; \
	    uv pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .; \
	else \
	    test -x $(BIN)/python || $(PYTHON) -m venv .venv; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; \
	fi
	@touch $@

.PHONY: demo
demo: $(INSTALLED) ## Run the guided tour.
	@$(BIN)/spark-pages demo $(ARGS)

.PHONY: test
test: $(INSTALLED) ## Run the tests of every rule, Spark included, three at a time (WORKERS=0: one).
	$(BIN)/python -m pytest -n $(or $(WORKERS),3) --dist worksteal -m "not slow" $(ARGS)

.PHONY: test-slow
test-slow: $(INSTALLED) ## Run what is slow by nature, and the property tests with all their examples.
	SPARK_PAGES_TESTS=$${SPARK_PAGES_TESTS:-slow} \
	    $(BIN)/python -m pytest -n $(or $(WORKERS),2) --dist worksteal -m "slow or hypothesis or sampled" $(ARGS)

.PHONY: coverage
coverage: $(INSTALLED) ## Say how many of the lines that all tests run `make test` runs, and how long both take.
	$(BIN)/python -m tests.coverage --workers $(or $(WORKERS),2) $(ARGS)

.PHONY: quick
quick: $(INSTALLED) ## Run the tests of `make test` that need no Java, in one process.
	$(BIN)/python -m pytest -m "not spark and not slow" $(ARGS)

# Atheris is no part of the lock: there is one wheel for each version of Python, of 35 MB, for Linux alone.
ATHERIS := .tools/atheris
SECONDS ?= 60

.PHONY: fuzz
fuzz: $(INSTALLED) $(ATHERIS) ## Fuzz every decoder, a minute in all (SECONDS=600 for more).
	PYTHONPATH=$(ATHERIS) $(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

$(ATHERIS):
	if command -v uv >/dev/null; then \
	    uv pip install --python $(BIN)/python --no-deps --target $@.part atheris==3.0.0; \
	else \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@.part atheris==3.0.0; \
	fi
	mv $@.part $@

# A real S3 server for tests/s3 and tests/crash, which skip where it is missing. Nothing else needs Go.
VERSITYGW := .tools/bin/versitygw

.PHONY: versitygw
versitygw: $(VERSITYGW) ## Install the S3 server of the tests (needs Go).

$(VERSITYGW):
	GOBIN="$(CURDIR)/.tools/bin" go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

# Azure Blob Storage as its makers emulate it, for tests/azure, which skips where it is missing.
AZURITE := .tools/azurite

.PHONY: azurite
azurite: $(AZURITE) ## Install the Azure server of the tests (needs Node).

$(AZURITE):
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix $@.part azurite@3.35.0
	mv $@.part $@

# DuckDB's own `delta` extension, and the release that it is for; one test reads by it, and skips where it is missing.
DUCKDB_DELTA := .tools/duckdb-delta

.PHONY: duckdb-delta
duckdb-delta: $(DUCKDB_DELTA) ## Install a DuckDB that reads Delta tables, for a test.

$(DUCKDB_DELTA): | $(INSTALLED)
	if command -v uv >/dev/null; then \
	    uv pip install --python $(BIN)/python --no-deps --target $@.part duckdb==1.5.5 duckdb-extension-delta==1.5.5; \
	else \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@.part \
	        duckdb==1.5.5 duckdb-extension-delta==1.5.5; \
	fi
	mv $@.part $@

# The tools of the site have an environment of their own: they need nothing of the project but its source.
DOCS := .tools/docs

.PHONY: docs
docs: $(INSTALLED) $(DOCS) ## Build the documentation site in site/.
	$(BIN)/python docs/reference/command_line.py
	$(DOCS)/bin/python -m zensical build --clean --strict

$(DOCS): docs/requirements.txt
	rm -rf $@
	$(PYTHON) -m venv $@.part
	$@.part/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r docs/requirements.txt
	rm -rf $@ && mv $@.part $@ && touch $@

.PHONY: lint
lint: $(INSTALLED) ## Check style and formatting.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: $(INSTALLED) ## Check types.
	$(BIN)/mypy

.PHONY: imports
imports: $(INSTALLED) ## Check that imports point one way.
	$(BIN)/lint-imports

.PHONY: fmt
fmt: $(INSTALLED) ## Format, and fix what can be fixed.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The lock names no index and no machine, so that pip and uv read it anywhere.
.PHONY: lock
lock: ## Resolve requirements.lock anew (needs uv).
	env -u PIP_FIND_LINKS -u UV_FIND_LINKS uv pip compile --universal --python-version 3.11 --all-extras \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet $(ARGS) \
	    pyproject.toml -o requirements.lock

.PHONY: check
check: lint types imports test ## What a change must pass before CI runs the rest.

.PHONY: clean
clean: ## Remove the environment and what the tools leave behind.
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage \
	    build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
