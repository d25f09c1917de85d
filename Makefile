# Needs python3 (3.10 or later), make and a network to the package index. Each target sets up what it needs; only the
# tests of the model need torch (in an environment of their own), and only the tests node with npm.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SERVABLE := $(VENV)/.servable
TESTABLE := $(VENV)/.testable
MODEL_VENV := .venv-model
MODEL_TESTABLE := $(MODEL_VENV)/.testable
DESCRIBED := $(VENV)/.described
PRISM := $(VENV)/prism/.ready
CHART := $(VENV)/chart/.ready

# uv does not read pip's settings: hand on where pip looks for wheels, from the environment or from pip's own files.
PIP_FIND_LINKS ?= $(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

# One more than cores: a test waits for servers and processes about half of its time.
WORKERS := $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
PARALLEL := --dist loadfile --no-loadscope-reorder

# Each test has a core at most; threads of BLAS that wait for each other on tiny matrices triple the work.
check test-light test-model: export OMP_NUM_THREADS = 1
check test-light test-model: export OMP_WAIT_POLICY = PASSIVE

# Else each process compiles all that it imports, a model stack among it, anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-setup demo-review check test test-light test-model versions lint format docs site dist version action-requirements service-requirements \
	image-requirements clean

# Ports of both, else free ones: make demo-setup PORT=8000 GITHUB_PORT=8001
PORTS := $(if $(PORT),--port $(PORT)) $(if $(GITHUB_PORT),--github-port $(GITHUB_PORT))

demo: $(SERVABLE)  ## the service, start to end, beside a fake GitHub
	$(BIN)/python -m examples.service $(PORTS)

demo-setup: $(SERVABLE)  ## the App from its creation to the dashboard, in your browser, with a fake GitHub
	$(BIN)/python -m examples.service setup $(PORTS)

demo-review: $(READY)  ## the same pull request in the terminal
	$(BIN)/ptopt review --diff examples/pull-request/change.patch --tree examples/pull-request/head

check: lint $(DESCRIBED) $(CHART)  ## lint, types, and the tests that are fast
	$(BIN)/python -m pytest -q -n $(WORKERS) $(PARALLEL) -m "not slow and not model"

test: test-light test-model  ## every test, the slow ones too

test-light: $(TESTABLE) $(DESCRIBED) $(PRISM) $(CHART)  ## what runs without torch: nearly everything
	$(BIN)/python -m pytest -q -n $(WORKERS) $(PARALLEL) -m "not model"

test-model: $(MODEL_TESTABLE) $(DESCRIBED)  ## what needs torch, with real weights and a real vLLM server
	$(MODEL_VENV)/bin/python -m pytest -q -n auto $(PARALLEL) -m model

VERSIONS := $(VENV)/versions

versions: $(TESTABLE)  ## is what the rules say of torch, transformers, trl, lightning and accelerate true of the oldest and newest?
	$(BIN)/uv venv -q --clear --python 3.10 $(VERSIONS)/oldest
	$(BIN)/uv pip install -q --python $(VERSIONS)/oldest/bin/python -r benchmarks/versions/oldest.txt
	$(BIN)/uv venv -q --clear --python 3.12 $(VERSIONS)/newest
	$(BIN)/uv pip install -q --python $(VERSIONS)/newest/bin/python -r benchmarks/versions/newest.txt
	$(BIN)/python -m benchmarks.versions $(VERSIONS)/oldest/bin/python $(VERSIONS)/newest/bin/python

lint: $(TESTABLE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

format: $(TESTABLE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(TESTABLE)  ## write what is generated from the code
	$(BIN)/ptopt rules --docs docs/rules
	$(BIN)/python -m service settings --docs > docs/settings.md
	$(BIN)/python -m bot.commands --docs docs/commands.md
	$(BIN)/python docs/pages.py
	$(BIN)/python docs/picture.py
	$(BIN)/python -m helm.generate

site: $(TESTABLE)  ## the documentation site, in site/; a link that leads nowhere is an error
	$(BIN)/zensical build --clean --strict

DIST := dist

dist: $(TESTABLE)  ## wheel and sdist, and what the wheel depends on as an SBOM
	rm -rf $(DIST)
	$(BIN)/hatchling build --directory $(DIST)
	$(BIN)/cyclonedx-py requirements action-requirements.txt --pyproject pyproject.toml --output-file $(DIST)/ptopt.cdx.json

version: $(TESTABLE) $(CHART)  ## of the next release, with VERSION=X.Y.Z: docs/releasing.md
	$(BIN)/python .github/release.py set $(VERSION)
	$(BIN)/python -m tests.helm.snapshot

PIN := env -u UV_FIND_LINKS $(BIN)/uv pip compile pyproject.toml --universal --generate-hashes \
	--no-emit-package ptopt --upgrade --quiet --custom-compile-command

IMAGE_PIN = $(filter-out --universal,$(PIN)) "make $@" --only-binary :all: \
	--python-platform x86_64-manylinux_2_39 --python-version 3.12

action-requirements: $(BIN)/uv  ## pin what the Action installs, with hashes
	$(PIN) "make $@" --extra github --python-version 3.12 --output-file action-requirements.txt

service-requirements: $(BIN)/uv  ## pin what the service and its workers install, with hashes
	$(PIN) "make $@" --extra service --python-version 3.10 --output-file service-requirements.txt
	$(PIN) "make $@" --extra service --extra model-client --python-version 3.10 --output-file worker-requirements.txt

# The wheels of one platform alone: what of CUDA they bring differs.
image-requirements: $(BIN)/uv  ## pin what the GPU images install, with hashes
	$(IMAGE_PIN) --extra service --extra gpu --output-file docker/gpu-requirements.txt
	$(IMAGE_PIN) --extra service --extra training --output-file docker/training-requirements.txt

clean:
	rm -rf $(VENV) $(MODEL_VENV) dist build site .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check uv

$(READY): $(BIN)/uv pyproject.toml
	$(BIN)/uv pip install -q --python $(BIN)/python -e .
	touch $@

$(SERVABLE): $(READY) pyproject.toml fake_github/descriptions.py
	$(BIN)/uv pip install -q --python $(BIN)/python -e '.[service]' --group fake-github
	$(BIN)/python -m fake_github.descriptions webhooks-examples
	touch $@

$(TESTABLE): $(READY) pyproject.toml
	$(BIN)/uv pip install -q --python $(BIN)/python -e '.[service,training-data]' --group test --group lint
	touch $@

$(MODEL_TESTABLE): $(BIN)/uv pyproject.toml
	$(PYTHON) -m venv $(MODEL_VENV)
	$(BIN)/uv pip install -q --python $(MODEL_VENV)/bin/python -e '.[service,training]' --group model-test \
		--overrides tests/model/overrides.txt
	touch $@

$(DESCRIBED): $(TESTABLE) fake_github/descriptions.py  # what GitHub says of its own API, from npm
	$(BIN)/python -m fake_github.descriptions
	touch $@

$(CHART): $(TESTABLE) tests/helm/tools.py  # Helm and checkov
	$(BIN)/python -m tests.helm.tools
	touch $@

$(PRISM): tests/conformance/package.json tests/conformance/package-lock.json
	mkdir -p $(@D)
	cp $^ $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@
