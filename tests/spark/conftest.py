"""Fixtures of the tests of warren.spark. Only the files `test_*in_spark.py` start Spark; the others need no Java.

Without the packages of the extra `spark` no test here is collected, except in CI, which installs them: there it is an
error.
"""

import os
import signal
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

# Options for every Java of these tests, which lives for less than a minute. The slower of Java's two compilers would
# take more time than its code saves, a garbage collector with threads has no work, and verifying Spark's classes takes
# a twelfth of the time.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

HAS_SPARK = all(find_spec(name) for name in ("pyspark", "pyarrow", "numpy"))
if not HAS_SPARK and "CI" in os.environ:
    raise pytest.UsageError("the packages of the extra `spark` are not installed: pip install -e '.[test]'")
collect_ignore_glob = [] if HAS_SPARK else ["test_*.py", "*/test_*.py"]

if HAS_SPARK:
    import pyarrow as pa

    from warren import Broker
    from warren.spark import session
    from warren.spark.errors import SparkSourceError
    from warren.spark.options import DirectoryOptions
    from warren.spark.rows.columns import RowPlan, chosen, types_of


def arrow_types():
    """The Arrow type for each type of a column in DDL."""
    moment = pa.timestamp("us", tz="UTC")
    texts = pa.list_(pa.string())
    death = {"queue": pa.string(), "reason": pa.string(), "exchange": pa.string(), "routing_keys": texts}
    return {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": moment,
        "array<string>": texts,
        "map<string,string>": pa.map_(pa.string(), pa.string()),
        "variant": pa.struct([pa.field(part, pa.binary(), nullable=False) for part in ("value", "metadata")]),
        "struct<id bigint, total double>": pa.struct([("id", pa.int64()), ("total", pa.float64())]),
        types_of(DirectoryOptions())["x_death"]: pa.list_(
            pa.struct([*death.items(), ("count", pa.int64()), ("time", moment)])
        ),
    }


def row_plan(options):
    """The plan for the rows that these options ask for, with the schema that Spark would declare."""
    with_vhost = isinstance(options, DirectoryOptions)
    types, arrow = types_of(options, with_vhost), arrow_types()
    return RowPlan(pa.schema([(name, arrow[types[name]]) for name in chosen(options, with_vhost)]), options)


@pytest.fixture(scope="session", name="row_plan")
def _row_plan():
    return row_plan


@pytest.fixture(scope="module")
def broker():
    """A broker for all tests of a module; each test has queues of its own."""
    with Broker(port=0) as running:
        yield running


@pytest.fixture
def queue(request):
    """The name of a queue that no other test uses."""
    return f"{request.node.name}"


SETTINGS = {
    "spark.log.level": "ERROR",
    # On a busy machine a worker may take long to start.
    "spark.python.authenticate.socketTimeout": "5m",
}


@pytest.fixture(scope="module")
def spark():
    """One session for all tests of a file, because Java takes seconds to start."""
    try:
        # With a lower priority the tests of other files, which run at the same time, would go first.
        found = session("tests", "local[2]", nice=0, **SETTINGS)
    except SparkSourceError as error:
        if error.code != "E1" or "CI" in os.environ:
            raise
        pytest.skip(str(error))
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def usual_priority(monkeypatch):
    """Commands that run in the process of the tests do not lower its priority."""
    lowered = []
    monkeypatch.setattr("warren.runtime.machine.priority.lower_priority", lambda process: lowered.append(process))
    return lowered


class _Kept:
    """The session of the tests, which a command must not stop when it ends."""

    def __init__(self, spark):
        self._spark = spark

    def __getattr__(self, name):
        return getattr(self._spark, name)

    def stop(self):
        pass


@pytest.fixture
def own_session(spark, monkeypatch):
    """Commands run in the session of the tests instead of one of their own."""
    monkeypatch.setattr("warren.spark.sessions.session", lambda *_, **settings: _Kept(spark))


@pytest.fixture
def interrupt_when():
    """`with interrupt_when(condition):` sends Ctrl-C as soon as the condition holds; the block must handle it."""

    @contextmanager
    def interrupt(condition):
        is_over = threading.Event()

        def watch():
            while not is_over.wait(0.05):
                if condition():
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    return interrupt
