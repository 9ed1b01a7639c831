"""The import path of the tests, and how they draw examples.

**Import path.** `python -m pytest` puts the clone on the import path when it is started there. The clone's folder
`amqp` would then hide the client library of that name, which kombu and Celery import. The tests do not need the clone
on the path: they import the installed package `warren`.

**Examples.** A test run draws the same examples each time, so that a failure always comes from a change and never from
luck: Hypothesis is derandomized, and `first_seed` of a simulation follows from the test's name. `make search` sets
`WARREN_SEARCH`, the time (seconds since the epoch) at which the search ends. Only the tests that draw examples run
then, in random order, with new examples, and a failure prints how to pin its example.
"""

import os
import random
import secrets
import sys
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

sys.path[:] = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != ROOT]

#: When a search ends, in seconds since the epoch; None in a test run.
SEARCH_END = float(os.environ["WARREN_SEARCH"]) if "WARREN_SEARCH" in os.environ else None

settings.register_profile("repeated", derandomize=True)
settings.register_profile("search", derandomize=False, database=None, print_blob=True)
settings.load_profile("repeated" if SEARCH_END is None else "search")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if SEARCH_END is None:
        return
    drawing = [item for item in items if item.get_closest_marker("hypothesis") or "first_seed" in item.fixturenames]
    config.hook.pytest_deselected(items=[item for item in items if item not in drawing])
    # All workers of a run must have the same order.
    random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).shuffle(drawing)
    items[:] = drawing


def pytest_runtest_setup(item):
    if SEARCH_END is not None and time.time() > SEARCH_END:
        pytest.skip("the time of the search is over")


@pytest.fixture
def first_seed(request):
    """The first seed of a test of simulated schedules: always the same in test runs, a new one in each search."""
    return zlib.crc32(request.node.nodeid.encode()) << 8 if SEARCH_END is None else secrets.randbelow(1 << 40)
