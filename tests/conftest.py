"""The import path of the tests, their order, their temporary files, and how they draw examples.

**Import path.** `python -m pytest` puts the clone on the import path when it is started there. The clone's folder
`amqp` would then hide the client library of that name, which kombu and Celery import. The tests do not need the clone
on the path: they import the installed package `warren`.

**Order.** Workers take whole files. The files that take longest come first, so that no worker is left with one of them
while the others have nothing to do. One worker takes all files whose tests share something that takes long to start:
the browser of the management page, or Spark's Java process.

**Temporary files.** They are in memory where Linux has `/dev/shm` and enough room there. The tests wait for a disk
thousands of times, several workers for the same one, and they check what the broker writes and reads, which does not
depend on the medium. `make test-portable` leaves its files on the disk, so that each call of the operating system is
tried there.

**Examples.** A test run draws the same examples each time, so that a failure always comes from a change and never from
luck: Hypothesis is derandomized and draws no constants of warren's source, and `first_seed` of a simulation follows
from the test's name. `make search` sets `WARREN_SEARCH`, the time (seconds since the epoch) at which the search ends.
Only the tests that draw examples run then, in random order, with new examples, and a failure prints how to pin its
example.
"""

import contextlib
import functools
import gc
import os
import random
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from thespian.actors import ActorSystem, ActorSystemException
from thespian.test import get_free_admin_port

from warren.portable import IS_PORTABLE

ROOT = Path(__file__).resolve().parents[1]

#: The files that take 10 s and more, and folders of such files, with which workers begin.
LONGEST = (
    "spark/test_in_spark.py",
    "spark/test_jobs_in_spark.py",
    "spark/flow/test_flow_in_spark.py",
    "simulation/mutants",
    "management/page",
    "torture/test_torture.py",
    "docs/test_readme.py",
    "docs/test_simulation.py",
    "cluster_system",
    "spark/test_installed.py",
    "torture/test_lanes.py",
    "simulation/test_cluster_schedules.py",
    "simulation/test_schedules.py",
    "wire/parser/test_reader_fuzz.py",
    "disk_trouble/test_full_disk.py",
    "simulation/test_service.py",
    "flow/test_turn_work.py",
    "system/frames/test_range_reading.py",
    "store/verify/test_damage.py",
    "simulation/conversations/test_scenarios.py",
    "store/data_dir/test_crash_points.py",
    "system/frames/test_bad_input.py",
    "system_crash/test_nothing_left.py",
    "system/connection/test_many_connections.py",
    "wire/test_skimmer.py",
    "simulation/test_mended_faults.py",
    "simulation/test_shared_bodies.py",
    "docs/test_command_lines.py",
    "cli/programs/test_start.py",
    "simulation/test_dead_letter_graphs.py",
    "flow/test_turn_chains.py",
    "docs/test_cli.py",
    "disk_trouble/test_damaged.py",
    "wire/parser/test_reader_equivalence.py",
    "wire/test_large_content.py",
    "docs/test_cluster.py",
    "behaviour/queues/test_classic_queue_prop_suite.py",
    "packaging/test_wheel.py",
    "store/queue/test_backing_queues.py",
    "system/frames/test_fuzz.py",
    "cli/test_node_commands.py",
    "cli/programs/test_store_of_a_broker.py",
    "actors/test_turn_work.py",
    "docs/test_embedding.py",
    "simulation/cluster/test_partitions.py",
    "simulation/cluster/test_mirrored_deduplication.py",
    "system_crash/test_leaks.py",
    "system_crash/test_message_index.py",
    "system/connection/test_tls.py",
    "spark/archive/test_compact.py",
    "system/connection/test_heartbeats.py",
    "cli/programs/test_old_stores.py",
    "management/metrics/test_prometheus.py",
    "cli/programs/test_recovery.py",
    "clients/test_celery.py",
    "behaviour/publishing/test_conservation.py",
    "simulation/test_deduplication.py",
    "runtime/loop/test_timers.py",
    "cli/programs/test_log.py",
    "behaviour/publishing/test_split_runs.py",
    "simulation/test_mended_clusters.py",
    "cluster/links/test_messages.py",
    "simulation/test_drawn.py",
)

#: The files that one worker takes together, by what they share.
WHOLE = {"a browser": re.compile("management/page/"), "Spark": re.compile(r"spark/(\w+/)?test_(\w+_)?in_spark\.py")}

# Many containers set PYTHONDONTWRITEBYTECODE. With it, each of the hundreds of processes that the tests start would
# compile the broker anew, which takes half a second, and every run would compile the tests as well.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The tests start hundreds of brokers. Only those of `tests/management` have a management process beside them.
os.environ["WARREN_MANAGEMENT"] = "off"
sys.dont_write_bytecode = False

#: A file system in memory, and how many bytes must be free there. A test run needs 1.2 GB if it deletes nothing.
MEMORY, MEMORY_NEEDED = "/dev/shm", 4 << 30

if (
    "TMPDIR" not in os.environ
    and not IS_PORTABLE
    and os.access(MEMORY, os.W_OK)
    and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED
):
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY  # pytest may have asked `tempfile` for its folder already

_TESTS = f"{ROOT}/tests/"

sys.path[:] = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != ROOT]

#: When a search ends, in seconds since the epoch; None in a test run.
SEARCH_END = float(os.environ["WARREN_SEARCH"]) if "WARREN_SEARCH" in os.environ else None

#: Seconds after which a test in a search counts as hanging, whatever lower limit it sets itself.
SEARCHED_SECONDS = 1_200

# Fewer than Hypothesis' 100, because a test run repeats them each time; a search draws new ones, and more.
settings.register_profile("repeated", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("search", derandomize=False, deadline=None, database=None, print_blob=True)
settings.load_profile("repeated" if SEARCH_END is None else "search")

# Hypothesis also draws numbers and texts that occur in the modules imported so far, so examples would depend on what
# the worker has run before, and a failure might not come again when its test runs alone. Each worker of a first run
# would parse all modules for that. Older versions of Hypothesis draw no such constants.
if SEARCH_END is None and hasattr(providers, "_get_local_constants"):
    _NO_CONSTANTS = providers.Constants()
    providers._get_local_constants = lambda: _NO_CONSTANTS


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect with the garbage collector off, and exempt modules and tests from it for the rest of the run.

    They live until the end, and looking at them would take the collector a quarter of each worker's collection time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if SEARCH_END is None:
        items.sort(key=lambda item: _place(str(item.path)))
        return
    drawing = [item for item in items if item.get_closest_marker("hypothesis") or "first_seed" in item.fixturenames]
    config.hook.pytest_deselected(items=[item for item in items if item not in drawing])
    for item in drawing:
        # A search runs in processor time that other programs leave, so a test that waits for it has not failed.
        item.add_marker(pytest.mark.timeout(SEARCHED_SECONDS), append=False)
    # All workers of a run must have the same order.
    random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).shuffle(drawing)
    items[:] = drawing


@functools.cache
def _place(file: str) -> int:
    """The position of the file in the order: its place in LONGEST, or the end of that for all other files."""
    places = [place for place, name in enumerate(LONGEST) if f"{file}/".startswith(f"{_TESTS}{name}/")]
    return places[0] if places else len(LONGEST)


def pytest_configure(config):
    if gone := [name for name in LONGEST if not (ROOT / "tests" / name).exists()]:
        raise pytest.UsageError(f"tests/conftest.py has files in LONGEST that do not exist: {', '.join(gone)}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A scheduler for `--dist loadfile` that also keeps the files of each entry of WHOLE together."""
    from xdist.scheduler import LoadFileScheduling

    class SharedStarts(LoadFileScheduling):
        def _split_scope(self, nodeid):
            shared = (what for what, files in WHOLE.items() if files.match(nodeid))
            return next(shared, super()._split_scope(nodeid))

    return SharedStarts(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_setup(item):
    if SEARCH_END is not None and time.time() > SEARCH_END:
        pytest.skip("the time of the search is over")


@pytest.fixture(scope="module")
def broker_url():
    """The URL of a broker for tests with client libraries: a new one, or RabbitMQ's if WARREN_TEST_URL names it."""
    oracle = os.environ.get("WARREN_TEST_URL")
    if oracle:
        yield oracle
        return
    from warren import Broker

    with Broker(port=0) as broker:
        yield broker.url


@pytest.fixture
def first_seed(request):
    """The first seed of a test of simulated schedules: always the same in test runs, a new one in each search."""
    return zlib.crc32(request.node.nodeid.encode()) << 8 if SEARCH_END is None else secrets.randbelow(1 << 40)


@contextlib.contextmanager
def _running_stock_system(base: str) -> Iterator[ActorSystem]:
    """Run one of Thespian's own system bases, and leave none of its operating-system processes behind.

    The free port for `multiprocTCPBase` may be taken by another test before Thespian listens there; then the next one
    is tried. Now and then Thespian's shutdown misses a process that was started a moment ago. Such a process would live
    for ever and keep the output of the test run open, so it is killed: each has inherited the write end of a pipe, by
    which it is found.
    """
    logs = {"version": 1, "disable_existing_loggers": False}
    if not base.startswith("multiproc"):
        system = ActorSystem(base, {}, logDefs=logs, transientUnique=True)
        yield system
        system.shutdown()
        return
    mark = os.pipe()
    try:
        for attempt in range(5):
            try:
                system = ActorSystem(base, {"Admin Port": get_free_admin_port()}, logDefs=logs, transientUnique=True)
                break
            except ActorSystemException:
                if attempt == 4:
                    raise
        yield system
        system.shutdown()
    finally:
        _kill_holders(mark[1])
        for end in mark:
            os.close(end)


def _kill_holders(fd: int) -> None:
    """Kill all other processes that have this pipe open. Only Linux lists them; elsewhere this does nothing."""
    pipe = os.fstat(fd).st_ino
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if any(entry.stat().st_ino == pipe for entry in (process / "fd").iterdir() if _is_pipe(entry)):
                os.kill(int(process.name), signal.SIGKILL)


def _is_pipe(entry: Path) -> bool:
    return os.readlink(entry).startswith("pipe:")


@pytest.fixture(scope="session")
def running_stock_system():
    """A context manager that runs the named system base of Thespian."""
    return _running_stock_system
