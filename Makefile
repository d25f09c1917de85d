# Needs python3 (3.10 or later), make and a network to the package index. `make test` and `make demo` set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# uv does not read pip's settings: hand on where pip looks for wheels, from the environment or from pip's own files.
PIP_FIND_LINKS ?= $(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

.PHONY: demo test lint format docs clean

demo: $(READY)  ## review the pull request in examples/
	$(BIN)/ptopt review --diff examples/pull-request/change.patch --tree examples/pull-request/head

test: $(READY)  ## every test, the slow ones too
	$(BIN)/python -m pytest -q -n auto --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict ptopt
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## write docs/rules/*.md from the rules
	$(BIN)/ptopt rules --docs docs/rules

clean:
	rm -rf $(VENV) dist build .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check uv

$(READY): $(BIN)/uv pyproject.toml
	$(BIN)/uv pip install -q --python $(BIN)/python -e . --group test --group lint
	touch $@
