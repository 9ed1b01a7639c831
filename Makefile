# `make run` starts a broker on the default port, `make test` runs everything that must pass.
# Both need nothing but Python 3.11 or newer; they create the environment .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
#: Worker processes of a test run. They wait often: four left a quarter of two cores idle.
JOBS   ?= 5
#: More arguments for pytest: make test PYTEST_ARGS="-k pika"
PYTEST_ARGS ?=
#: The files or folders of tests that run, instead of all that the goal has: make tests TEST_FILES=tests/wire
TEST_FILES ?=
#: Tests of single parts, without the files of SLOW_TESTS: 76 s of CPU time, 12 s of them to start the workers. With 10 s
#: for the type checker, `make check` takes less than a minute on two cores. The rest of tests/store takes a minute more.
QUICK_TESTS := architecture wire routing runtime actors store/disk store/index store/journal store/messages \
	settings test_broker.py test_public_interface.py
#: Ends of names of files that draw many examples, start brokers, or do the same work for many sizes. They take as much
#: CPU time as all others together, and `make test` runs them.
SLOW_TESTS := any_order durable_metadata equivalence fuzz in_transit kill large_content lockstep on_disk skimmer store_dwell \
	turn_work
#: Tests of the code that has a portable twin for systems other than Linux: the twins themselves, the loop, sockets and
#: real disks. The tests with client libraries and the parts of tests/behaviour that have to do with much input, with
#: files or with the measured memory show that brokers run on the twins. The other tests would do the same again; those
#: of tests/store whose disk is in memory (`FaultyDisk`), or that have files in LMDB alone, call no twin.
PORTABLE_TESTS := test_broker.py clients \
	$(addprefix behaviour/,consuming node/test_monitor_suites.py publishing/test_conservation.py \
	publishing/test_message_size_limit_suite.py queues/test_backing_queue_suite.py \
	queues/test_restarted_durable_queues.py queues/types/test_streams_on_disk.py) \
	$(addprefix runtime/,loop machine system test_log_file.py test_process.py test_remote_systems.py) \
	$(addprefix store/bodies/test_message_store_,cases.py combine.py owner_lock.py threads.py) \
	$(addprefix store/data_dir/test_,data_dir.py vhost_dir.py vhost_recovery.py) \
	$(addprefix store/,disk journal/test_journal_engine.py queue/test_lazy_memory.py test_reset.py \
	verify/test_verify.py)
#: Benchmarks that take many minutes or fill a disk; they run only by name: make bench BENCH=backlog
LONG_BENCHMARKS := backlog cases churn durable_queues flow_samples management mirrored operators partitions remote replicas \
	restart rounds soak spark torture
BENCH ?= $(filter-out $(LONG_BENCHMARKS),$(basename $(notdir $(wildcard bench/*.py))))
#: Packages of the tests with node's amqplib; without npm these tests are skipped and say so.
NODE_PACKAGES := $(if $(shell command -v npm),tests/clients/node/node_modules/.package-lock.json)

PYTEST = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -c tests/pytest.ini -n $(JOBS) --dist loadfile \
	--no-loadscope-reorder $(PYTEST_ARGS)

#: How long `make search` looks for new examples that fail.
SECONDS ?= 180

.PHONY: help run check test lint format docs types quick-tests tests test-portable search bench clean

help:
	@echo "make run            start a broker on 127.0.0.1:5672"
	@echo "make check          lint, types and the quick tests, in under a minute"
	@echo "make test           lint, types and all tests"
	@echo "make test-portable  the tests of what differs on macOS and Windows"
	@echo "make search         new random examples for properties and simulation: make search SECONDS=600"
	@echo "make format         lay out the code as make lint requires"
	@echo "make docs           write the generated tables of the documents"
	@echo "make bench          the short benchmarks; a long one by name: make bench BENCH='$(LONG_BENCHMARKS)'"
	@echo "make clean          remove the environment and all caches"

run: $(VENV)/.run
	$(BIN)/warren start

check: lint types quick-tests

test: lint types tests

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.test
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

docs: $(VENV)/.test
	PYTHONSAFEPATH=1 $(BIN)/python docs/tables.py

# The type checker cannot follow an editable install whose package is the repository root, and that folder may have any
# name. A link named `warren` shows it the package as installed.
types: $(VENV)/.test
	mkdir -p $(VENV)/typing && ln -sfn ../.. $(VENV)/typing/warren
	MYPYPATH=$(VENV)/typing $(BIN)/mypy --config-file setup.cfg -p warren

quick-tests: $(VENV)/.test
	$(PYTEST) $(addprefix tests/,$(QUICK_TESTS)) $(SLOW_TESTS:%=--ignore-glob='*_%.py')

tests: $(VENV)/.test $(NODE_PACKAGES)
	$(PYTEST) $(or $(TEST_FILES),tests)

# With the portable twins (portable.py) of epoll, /proc, synchronous writes and other Linux features.
test-portable: $(VENV)/.test $(NODE_PACKAGES)
	WARREN_PORTABLE=1 $(PYTEST) $(or $(TEST_FILES),$(addprefix tests/,$(PORTABLE_TESTS)))

# `make test` draws the same examples each time; this draws new ones, again and again until the time is over. pytest's
# status 5 says that no test was left to run.
search: $(VENV)/.test
	@end=$$(($$(date +%s) + $(SECONDS))); status=0; \
	while [ $$status = 0 ] && [ $$(date +%s) -lt $$end ]; do \
		WARREN_SEARCH=$$end $(subst loadfile,worksteal,$(PYTEST)) -q -r f tests || status=$$?; \
	done; \
	[ $$status = 0 ] || { echo "The search has found a fault. Mend it, and pin its example: as @example in the test," \
	"or as a scenario in tests/testdata/simulation."; exit $$status; }

tests/clients/node/node_modules/.package-lock.json: tests/clients/node/package-lock.json
	cd tests/clients/node && npm ci --silent --no-audit --no-fund
	touch $@

# PYTHONSAFEPATH keeps this folder off the import path: its `amqp` is not the client library of that name.
bench: $(VENV)/.test
	@for name in $(BENCH); do \
		echo "== $$name"; PYTHONSAFEPATH=1 $(BIN)/python -m warren.bench.$$name || exit 1; \
	done

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "warren needs Python 3.11 or newer, this is \
	%d.%d" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python setup.cfg
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.test: $(VENV)/bin/python setup.cfg
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[test]"
	touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache tests/.pytest_cache .ruff_cache .hypothesis tests/.hypothesis
	rm -rf tests/clients/node/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
