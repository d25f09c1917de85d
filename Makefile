# Needs python3 (3.10 or later), make and a network to the package index. Each target sets up what it needs; only the
# tests need torch, and node with npm.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTABLE := $(VENV)/.testable
DESCRIBED := $(VENV)/.described
PRISM := $(VENV)/prism/.ready

# uv does not read pip's settings: hand on where pip looks for wheels, from the environment or from pip's own files.
PIP_FIND_LINKS ?= $(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

.PHONY: demo test lint format docs clean

demo: $(READY)  ## review the pull request in examples/
	$(BIN)/ptopt review --diff examples/pull-request/change.patch --tree examples/pull-request/head

test: $(TESTABLE) $(DESCRIBED) $(PRISM)  ## every test, the slow ones too
	$(BIN)/python -m pytest -q -n auto --dist loadfile

lint: $(TESTABLE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

format: $(TESTABLE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## write what is generated: docs/rules/*.md from the rules, docs/commands.md, docs/review.svg from the example
	$(BIN)/ptopt rules --docs docs/rules
	$(BIN)/python -m bot.commands --docs docs/commands.md
	$(BIN)/python docs/picture.py

clean:
	rm -rf $(VENV) dist build .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check uv

$(READY): $(BIN)/uv pyproject.toml
	$(BIN)/uv pip install -q --python $(BIN)/python -e .
	touch $@

$(TESTABLE): $(READY) pyproject.toml
	$(BIN)/uv pip install -q --python $(BIN)/python -e . --group test --group lint
	touch $@

$(DESCRIBED): $(TESTABLE) tests/standin/descriptions.py  # what GitHub says of its own API, from npm
	$(BIN)/python -m tests.standin.descriptions
	touch $@

$(PRISM): tests/conformance/package.json tests/conformance/package-lock.json
	mkdir -p $(@D)
	cp $^ $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@
