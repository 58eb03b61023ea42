# Each target sets up .venv by itself. `make demo` and `make test` are all that a fresh machine needs (Python 3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
SELECTION ?= all

.PHONY: demo test test-all test-crash test-langgraph-min test-compat check bench clean

$(READY): pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## the main job, on SQLite: pause, answer from another process, refuse a second answer, expire into a default
	$(BIN)/python examples/refund_approval.py

test: $(READY)  ## between two changes: the gate, then the tests on fewer combinations (tests/selection.py); prints its total
	@begin=$$(date +%s); $(MAKE) --no-print-directory check && $(PYTEST) --selection=quick; done=$$?; \
	echo "make test: $$(($$(date +%s) - begin)) seconds"; exit $$done

test-all: $(READY) check  ## everything, also the crash and conformance suites; SELECTION=rest: what make test leaves
	$(PYTEST) --selection=$(SELECTION)

check: $(READY)  ## ruff, mypy strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-crash: $(READY)  ## processes killed at every step and at any instant, cancelled calls, several workers; LONG=1: the long form; prints counts
	SYMFONIC_LONG=$(LONG) $(PYTEST) tests/crash

test-langgraph-min:  ## the small suite with the oldest LangGraph that is supported, in an environment of its own
	test -d .venv-min || $(PYTHON) -m venv .venv-min
	.venv-min/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' 'langgraph==1.2.20'
	.venv-min/bin/python -m pytest -n auto --dist worksteal --selection=small tests/graph tests/unit

test-compat:  ## agents and savers of other packages, in an environment of its own; MariaDB where it is installed
	test -d .venv-compat || $(PYTHON) -m venv .venv-compat
	.venv-compat/bin/python -m pip install --quiet --disable-pip-version-check -e '.[compat]'
	.venv-compat/bin/python -m pytest -n auto --dist worksteal tests/compat tests/http/test_ag_ui.py

bench: $(READY)  ## speed against native LangGraph, side by side
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-min .venv-compat .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
