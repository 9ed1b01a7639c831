"""A session of Spark that works on this machine, and registering the format `warren` with any session."""

from __future__ import annotations

import os
import sys
from typing import Any

from .errors import no_pyspark
from .java import java_home
from .priority import NICE, lower_priority

#: The lowest version of PySpark whose Python sources have read limits and Arrow writers.
PYSPARK_LEAST = (4, 2)


def session(name: str = "warren", master: str = "local[*]", *, nice: int = NICE, **conf: Any) -> Any:
    """A `SparkSession` that has the format `warren`, with a Java found on this machine.

    If tasks run on this machine, Spark's processes have the niceness `nice`, so that a broker and its clients beside
    them go first; this program keeps its own. 0 is the usual one.

    `conf` are more settings of Spark, with `_` for `.` where the name has no `.`:
    `session(**{"spark.sql.shuffle.partitions": 4})`. Raises SparkSourceError: E1 without a Java, E2 without PySpark.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = java_home()
    # A worker of another minor version of Python fails only when the first task runs.
    if "spark.pyspark.python" not in conf:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, Any] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": 65_536,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": _cores(master),
        }
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (settings | conf).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if master.startswith("local"):
        # Java runs already if another program has started this one by spark-submit.
        java = getattr(spark.sparkContext._gateway, "proc", None)
        if java is not None:
            lower_priority(java.pid, nice)
    register(spark)
    return spark


def register(spark: Any) -> None:
    """Make the format `warren` known to a session. It may be called any number of times.

    A session finds the format by itself if warren was installed from a wheel. An editable install hides the module
    `pyspark_warren` from Spark's search.
    """
    from .source import WarrenDataSource

    spark.dataSource.register(WarrenDataSource)


def require_pyspark() -> None:
    """Raise SparkSourceError E2 unless the packages of the extra `spark` are installed."""
    try:
        import numpy  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark
    except ImportError as error:
        raise no_pyspark(f", and {error.name} is not installed") from None
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < PYSPARK_LEAST:
        raise no_pyspark(f", and this is {pyspark.__version__}")


def _cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1 if inside == "*" else 1)
