# Every target sets up what it needs first, so any of them can be the first command after a clone.

PYTHON ?= python3
# A uv on PATH that really runs (a version manager may leave a shim that does not), or else our own in .tools/.
UV ?= $(shell uv --version >/dev/null 2>&1 && echo uv || echo .tools/bin/uv)
UV := $(UV)
OWN_UV := $(filter .tools/bin/uv,$(UV))
RUN := $(UV) run --locked

.DEFAULT_GOAL := help
.PHONY: help setup libsubak demo test test-long e2e check bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: libsubak | $(OWN_UV) ## install everything into .venv, exactly as uv.lock says; build libsubak
	$(UV) sync --locked
	@echo "Ready. Try: $(or $(OWN_UV),uv) run subak --help"

# An editable install finds it in native/build.  uv installs from its cache what it has built before, so it is made here.
libsubak:
	@command -v $(firstword $(CC)) >/dev/null || { \
	  echo "error: libsubak is built with a C compiler, and there is no '$(firstword $(CC))'"; \
	  echo "       (Debian and Ubuntu: apt install gcc; Fedora: dnf install gcc), or name one: make CC=clang"; \
	  exit 1; } >&2
	@$(MAKE) --no-print-directory -s -C native all

demo: libsubak | $(OWN_UV) ## start a cluster of simulated cards, run examples/ on it, show who shares which card
	$(RUN) --no-default-groups subak demo

# uv takes from its cache what it has built of a folder before, unless it is told not to.
.PHONY: install
install: | $(OWN_UV) ## install the commands subak and kubectl-subak for this user
	$(UV) tool install --force --refresh-package subak .
	@bin="$$($(UV) tool dir --bin)"; case ":$$PATH:" in *":$$bin:"*) ;; *) \
	  echo "subak is in $$bin, which is not on your PATH. In this shell and in ~/.profile: export PATH=\"$$bin:\$$PATH\"";; esac

# Python may keep what it compiles: else each of the many commands that tests start would compile Subak anew.
test test-long: export PYTHONDONTWRITEBYTECODE :=

# A module's tests stay together, for they share a cluster; whoever has none left takes from another.
PYTEST := python -m pytest --numprocesses auto --dist worksteal
# These take all of the machine, so they run one after the other.
STORMS := tests/scenarios/storms

test: libsubak | $(OWN_UV) ## run the tests, in parallel
	$(RUN) $(PYTEST)

test-long: libsubak | $(OWN_UV) ## run them with many more examples; storms; libsubak's at full length, and under sanitizers
	$(RUN) $(PYTEST) --hypothesis-profile=ci --ignore=$(STORMS)
	$(RUN) python -m pytest --hypothesis-profile=ci --durations=0 --durations-min=1 $(STORMS)
	$(MAKE) --no-print-directory -C native test memcheck

e2e: | $(OWN_UV) ## run the tests that need a real Kubernetes; builds it with Go when it is run for the first time
	$(RUN) python -m tests.e2e

check: | $(OWN_UV) ## lint, format, types, import layers
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) python -m mypy
	$(RUN) lint-imports --no-logo

bench: | $(OWN_UV) ## run all benchmarks of docs/benchmarks.md
	$(RUN) python -m bench

clean: ## remove everything that the other targets made
	rm -rf .venv .tools build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis bench/out
	rm -rf native/build
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# In a venv of its own, because pip refuses to install into a Python that the distribution manages.
.tools/bin/uv:
	@echo "No working uv on PATH: installing one into .tools/"
	@$(PYTHON) -m venv .tools || { \
	  rm -rf .tools; \
	  echo "error: '$(PYTHON) -m venv' failed. Install Python 3 with its venv module"; \
	  echo "       (Debian and Ubuntu: apt install python3-venv), or put uv on PATH, then try again."; \
	  exit 1; } >&2
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check uv || { \
	  echo "error: pip could not install uv into .tools/ (its message is above)."; exit 1; } >&2
