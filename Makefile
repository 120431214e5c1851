# make setup | check | quick | test | proof | soak | demo | bench | docs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup check quick test proof soak demo bench docs clean

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "millrace needs Python 3.11 or newer; pass PYTHON=/path/to/it" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing millrace and what its tests need (PySpark makes this take a minute or two, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(BIN)/python -m compileall -q src
	@touch $(READY)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_english.py

PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The unit tests of every room, without Spark and Java: an answer in two minutes.
QUICK := $(filter-out tests/chaos tests/compat tests/crash tests/fuzz,$(patsubst %/,%,$(wildcard tests/*/))) $(wildcard tests/test_*.py)

quick: check
	$(PYTEST) -m "not slow and not java and not spark" $(QUICK)

test: check
	$(PYTEST) $(TESTS)

# Everything of `make test`, and the tests that are marked as proof.
proof: check
	$(PYTEST) --hypothesis-profile=random -m "proof or not soak" $(TESTS)

# Many seeds of the randomized tests.
soak: setup
	$(PYTEST) -m soak $(TESTS)

demo: setup
	@$(BIN)/python -m examples.demo

bench: setup
	$(BIN)/python -m benchmarks $(BENCH)

docs: setup
	$(BIN)/python -m millrace.config > docs/configuration.md

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
