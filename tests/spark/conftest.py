"""Fixtures of the tests of warren.spark. Only `test_in_spark.py` starts Spark; the rest needs no Java.

All of it is skipped where the packages of the extra `spark` are not installed; CI installs them.
"""

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from warren import Broker
from warren.spark.columns import RowPlan, chosen, types_of
from warren.spark.options import DirectoryOptions

ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "struct<id bigint, total double>": pa.struct([("id", pa.int64()), ("total", pa.float64())]),
}
ARROW[types_of(DirectoryOptions())["x_death"]] = pa.list_(
    pa.struct(
        [
            *(("queue", pa.string()), ("reason", pa.string()), ("exchange", pa.string())),
            *(("routing_keys", pa.list_(pa.string())), ("count", pa.int64()), ("time", pa.timestamp("us", tz="UTC"))),
        ]
    )
)


def row_plan(options):
    """The rows that these options ask for, with the schema that Spark would declare."""
    with_vhost = isinstance(options, DirectoryOptions)
    types = types_of(options, with_vhost)
    return RowPlan(pa.schema([(name, ARROW[types[name]]) for name in chosen(options, with_vhost)]), options)


@pytest.fixture(scope="session", name="row_plan")
def _row_plan():
    return row_plan


@pytest.fixture(scope="module")
def broker():
    """A broker that the tests of a module share; each test has queues of its own."""
    with Broker(port=0) as running:
        yield running


@pytest.fixture
def queue(request):
    """The name of the test's own queue."""
    return f"{request.node.name}"
