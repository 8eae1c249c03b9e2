# Verbs. `make help` lists them; `make VENV=/elsewhere check` uses an environment at another place.

VENV ?= .venv
DIST ?= dist
GOOD_PYTHON = import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell $(p) -c '$(GOOD_PYTHON)' 2>/dev/null && echo $(p))) python3)

BIN := $(VENV)/bin
SETUP := $(VENV)/.installed
PROTO := $(VENV)-proto/.installed
OLDEST := $(VENV)-oldest/.installed
LOCK := $(BIN)/uv pip compile --python $(BIN)/python --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet

.DEFAULT_GOAL := help
.PHONY: help setup proto docs picture release-protos check format test test-behaviours test-e2e test-proto-range test-wheels coverage bench demo run build lock clean

help: ## List the verbs.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' Makefile

setup: $(SETUP) ## Make the environment from the hashed lock, with both distributions in editable form.

proto: $(SETUP) $(PROTO) ## Generate steprail.v1 from protos/, and the blocking client from the other one.
	$(BIN)/python scripts/generate.py
	$(BIN)/python clients/python/scripts/blocking.py

docs: $(SETUP) ## Write the pages that are generated, and the table of agents in README.md.
	$(BIN)/python -m steprail_daemon.config.document docs
	$(BIN)/python -m steprail_daemon.observability.document docs
	$(BIN)/python -m steprail_daemon.core.diagram >docs/run-states.md
	$(BIN)/python scripts/agents_page.py

picture: $(SETUP) ## Record the demonstration in a terminal and draw it: docs/picture.svg.
	$(BIN)/python scripts/picture.py docs/picture.svg

release-protos: $(SETUP) ## At a release: write its image of the protos, which later ones must not break. REWRITE=1: anew.
	$(BIN)/python scripts/released.py $(if $(REWRITE),--rewrite)

check: $(SETUP) $(PROTO) ## Lint, format, types, import contracts, protos, fresh generated code.
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint protos
	$(BIN)/buf format protos --diff --exit-code
	$(BIN)/python scripts/released.py --check
	$(BIN)/python scripts/generate.py --check
	$(BIN)/python clients/python/scripts/blocking.py --check
	$(BIN)/pytest -q tests/style

format: $(SETUP) ## Format Python and protos, and mend what ruff can mend.
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format --quiet
	$(BIN)/buf format protos --write

test: $(SETUP) ## Run every test except those that need the real CLIs, or look at the tree itself (check).
	$(BIN)/pytest $(wildcard tests/unit tests/integration tests/conformance)

test-behaviours: $(SETUP) ## Run the built daemon through what goes wrong in such systems, and kill it at each commit.
	$(BIN)/pytest $(wildcard tests/behaviours tests/chaos)

test-e2e: $(SETUP) ## Run the tests against the real CLIs.
	$(BIN)/pytest tests/e2e

test-proto-range: $(SETUP) $(OLDEST) ## Run the client package on the oldest and the newest protobuf and grpcio.
	$(VENV)-oldest/bin/python scripts/proto_range.py --floor
	$(BIN)/python scripts/proto_range.py

test-wheels: $(SETUP) ## Build the packages and try them, installed alone, with each Python 3.11 to 3.14 that is here.
	$(BIN)/pytest tests/packages

coverage: $(SETUP) $(PROTO) ## Run the tests and show which lines none of them reaches.
	$(BIN)/pytest --cov --cov-report=term $(wildcard tests/unit tests/integration tests/conformance)

bench: $(SETUP) ## Measure.
	$(BIN)/python -m steprail_daemon.testing.bench

demo: $(SETUP) ## Show one stopped run, from start to end, without any account.
	$(BIN)/steprail demo

run: $(SETUP) ## Serve.
	$(BIN)/steprail serve

build: $(SETUP) ## Build wheels and source archives of both distributions into dist/, or DIST=/elsewhere.
	cd clients/python && $(abspath $(BIN)/python) -m hatchling build --directory $(abspath $(DIST))
	$(BIN)/python -m hatchling build --directory $(abspath $(DIST))

lock: $(SETUP) ## Resolve requirements/ anew; pins that still fit stay.
	$(LOCK) pyproject.toml --group dev --no-emit-package steprail --output-file requirements/dev.txt
	$(LOCK) pyproject.toml --no-emit-package steprail --constraint requirements/dev.txt --output-file requirements/runtime.txt
	$(LOCK) clients/python/pyproject.toml --constraint requirements/dev.txt --output-file requirements/client.txt
	$(LOCK) --group pyproject.toml:proto --output-file requirements/proto.txt
	$(LOCK) clients/python/pyproject.toml --resolution lowest-direct --output-file requirements/oldest.txt

clean: ## Remove what was built, measured or cached, but no environment.
	rm -rf dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov
	find . -path './.venv*' -prune -o -name __pycache__ -type d -exec rm -rf {} +

# An environment is made once and again only filled; a changed lock fills it anew, a changed package is linked anew.
$(SETUP): $(VENV)/.locked pyproject.toml clients/python/pyproject.toml
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable clients/python --editable .
	@touch $@

$(VENV)/.locked: requirements/dev.txt

$(PROTO): requirements/proto.txt

$(OLDEST): requirements/oldest.txt

$(VENV)/.locked $(PROTO) $(OLDEST):
	@$(PYTHON) -c '$(GOOD_PYTHON)' || { echo "steprail needs Python 3.11 or newer, and $(PYTHON) is not; name one with make PYTHON=..." >&2; exit 1; }
	@test -x $(@D)/bin/pip || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@
