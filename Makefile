# The one door: every target sets up what it needs, on a machine where nothing was prepared (Debian, root, Python 3.11, make).
SHELL := /bin/bash
.DEFAULT_GOAL := help
CACHE := $(or $(HUMMINGBIRD_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hummingbird)
VENV := .venv
PYTHON := $(VENV)/bin/python
PAYLOADS := $(CACHE)/gitlab-payloads
PAYLOADS_PACKAGE := golang-github-xanzy-go-gitlab-dev
SERVERS := $(CACHE)/servers-$(shell sha256sum requirements/servers.txt | cut -c1-12)
export UV_CACHE_DIR := $(CACHE)/uv
export UV_NO_PROGRESS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HUMMINGBIRD_SERVERS := $(SERVERS)
# Where it is set, each of the hundreds of processes of a test run would compile all its libraries anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-unit test-e2e coverage endurance lint crds requirements cluster-up cluster-down bench payloads clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready $(SERVERS)/.ready ## Make the environments from the pinned requirements

$(VENV)/.ready: requirements/dev.txt requirements/uv.txt pyproject.toml
	@echo "setup: Python environment ($(VENV))"
	@python3 -c 'import sys; assert sys.version_info >= (3, 11), sys.version' || { echo "setup: Python 3.11 or newer is needed as python3"; exit 1; }
	@test -x $(VENV)/bin/uv || { python3 -m venv $(VENV) || { apt-get update -qq && apt-get install -y -qq python3-venv && python3 -m venv $(VENV); }; }
	@$(VENV)/bin/pip install -q --require-hashes -r requirements/uv.txt
	@$(VENV)/bin/uv pip sync -q --require-hashes requirements/dev.txt requirements/uv.txt
	@$(VENV)/bin/uv pip install -q --no-deps --no-build-isolation -e .
	@touch $@

$(SERVERS)/.ready: requirements/servers.txt $(VENV)/.ready
	@echo "setup: stand-in servers for S3 and SQS"
	@$(VENV)/bin/uv venv -q --allow-existing $(SERVERS)
	@$(VENV)/bin/uv pip sync -q --python $(SERVERS)/bin/python --require-hashes requirements/servers.txt
	@touch $@

demo: setup ## From GitLab's event to the note, a question, a reply and a refusal, on a real Kubernetes
	@$(PYTHON) -m demo

test: lint test-unit test-e2e ## Everything that CI runs

payloads: $(PAYLOADS)/.ready ## Fetch GitLab's sample webhook payloads for the tests

# Into the cache, for they are another project's: Debian's package, unpacked and never installed.
$(PAYLOADS)/.ready:
	@echo "setup: GitLab's sample payloads ($(PAYLOADS_PACKAGE))"
	@rm -rf $(PAYLOADS) $(PAYLOADS).new && mkdir -p $(PAYLOADS).new
	@cd $(PAYLOADS).new && fetch() { apt-get -qq -o APT::Sandbox::User=root download $(PAYLOADS_PACKAGE); } && \
		{ fetch 2>/dev/null || { apt-get update -qq && fetch; }; } && dpkg -x $(PAYLOADS_PACKAGE)_*.deb .
	@touch $(PAYLOADS).new/.ready && mv $(PAYLOADS).new $(PAYLOADS)

test-unit: $(VENV)/.ready $(PAYLOADS)/.ready ## Fast tests, no network
	$(PYTHON) -m pytest tests/unit -q -n 3

coverage: $(VENV)/.ready ## Branches of what translates, stores, classifies and prices; less than all of them fails
	$(PYTHON) -m pytest tests/unit/hummingbird_ai -q -n 2 --cov --cov-report=term-missing:skip-covered

test-e2e: setup cluster-up ## Tests on a real API server, a real node, real pods
	$(PYTHON) -m pytest tests/e2e -q -m "not alone" -n 4 --dist loadfile --no-loadscope-reorder
	$(PYTHON) -m pytest tests/e2e -q -m alone

endurance: setup cluster-up ## The long ones: 100 kills over 30 runs, each service away for a minute, an evening of 500 events
	$(PYTHON) -m pytest tests/e2e/test_chaos.py tests/e2e/test_outages.py tests/e2e/test_ingest_outage.py -q -s --kills=100 --outage-seconds=60
	$(PYTHON) -m pytest tests/e2e/test_evening.py -q -s --evening-events=500 --evening-kills=12

lint: $(VENV)/.ready ## Style, types, import contracts, generated files
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) -m hummingbird_operator.api.schema --check

crds: $(VENV)/.ready ## Write crds/*.yaml from the models
	$(PYTHON) -m hummingbird_operator.api.schema --write

requirements: $(VENV)/.ready ## Pin the newest versions that pyproject.toml allows
	$(VENV)/bin/uv pip compile -q -U --generate-hashes --no-header --universal --python-version 3.11 pyproject.toml -o requirements/run.txt
	$(VENV)/bin/uv pip compile -q -U --generate-hashes --no-header --universal --python-version 3.11 pyproject.toml --group dev -o requirements/dev.txt
	$(VENV)/bin/uv pip compile -q -U --generate-hashes --no-header --universal --python-version 3.11 --group servers -o requirements/servers.txt

cluster-up: $(VENV)/.ready ## Start (or find) the Kubernetes for tests and demo; prints its kubeconfig
	@$(PYTHON) -m cluster up

cluster-down: $(VENV)/.ready ## End it, with everything it started
	@$(PYTHON) -m cluster down

bench: setup ## Figures, not verdicts; NAMES="waiting claims" for some of them
	@$(PYTHON) -m bench $(NAMES)

clean: ## Remove the environment of this checkout (caches stay in $(CACHE))
	rm -rf $(VENV)
