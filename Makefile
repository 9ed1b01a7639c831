# warren: `make run` starts a broker on the default port, `make test` runs everything that must pass.
# Both need Python 3.11 or newer and nothing else; the environment they make is .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Worker processes of the test run.
JOBS   ?= 2
# More arguments for pytest: make test PYTEST_ARGS="-k pika"
PYTEST_ARGS ?=
# The benchmarks that fill a disk for minutes run only when asked for: make bench BENCH=backlog
LONG_BENCHMARKS := backlog durable_queues restart torture
BENCH ?= $(filter-out $(LONG_BENCHMARKS),$(basename $(notdir $(wildcard bench/*.py))))
# The packages of the tests with node's amqplib; without npm those tests are skipped, and say so.
NODE_PACKAGES := $(if $(shell command -v npm),tests/clients/node/node_modules/.package-lock.json)

.PHONY: help run env test lint types tests bench clean

help:
	@echo "make run     start a broker on 127.0.0.1:5672"
	@echo "make test    lint, types and all tests"
	@echo "make bench   the project's short benchmarks; the long ones by name: make bench BENCH='$(LONG_BENCHMARKS)'"
	@echo "make clean   remove the environment and all caches"

run: $(VENV)/.run
	$(BIN)/warren start

test: lint types tests

lint: $(VENV)/.test
	$(BIN)/ruff check .

# The type checker cannot follow an editable install whose package is the repository root, and the root's folder may have any
# name; a link named `warren` shows it the package as installed.
types: $(VENV)/.test
	mkdir -p $(VENV)/typing && ln -sfn ../.. $(VENV)/typing/warren
	MYPYPATH=$(VENV)/typing $(BIN)/mypy --config-file setup.cfg -p warren

# `pytest`, never `python -m pytest`: that would put this folder on the path, whose `amqp` is not the client library of that name.
tests: $(VENV)/.test $(NODE_PACKAGES)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -c tests/pytest.ini tests -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

tests/clients/node/node_modules/.package-lock.json: tests/clients/node/package-lock.json
	cd tests/clients/node && npm ci --silent --no-audit --no-fund
	touch $@

# From another folder, for the same reason.
bench: $(VENV)/.test
	@for name in $(BENCH); do echo "== $$name"; (cd / && "$(CURDIR)/$(BIN)/python" -m warren.bench.$$name) || exit 1; done

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("warren needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python setup.cfg
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.test: $(VENV)/bin/python setup.cfg
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[test]"
	touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache tests/.pytest_cache .ruff_cache .hypothesis tests/.hypothesis tests/clients/node/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
