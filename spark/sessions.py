"""A session of Spark that works on this machine, and registering the format `warren` with any session."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runtime.machine.priority import NICE, lower_priority
from .errors import no_pyspark
from .java import java_home

#: The lowest version of PySpark whose Python sources have read limits and Arrow writers.
PYSPARK_LEAST = (4, 2)


#: Spark compresses files of Parquet by zstd at level 3. At level 1, that of an archive, it is faster, and the files
#: hardly get larger.
_ZSTD = {"spark.hadoop.parquet.compression.codec.zstd.level": "1"}
#: The most bytes of the path of a socket, and those of the name that Spark gives it.
_SOCKET_PATH, _SOCKET_NAME = 100, 42
#: Environment variables with options for Java.
_JAVA_OPTIONS = "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"


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
        settings |= (
            {
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.sql.shuffle.partitions": _cores(master),
            }
            | _ZSTD
            | _sockets()
        )
        if not _is_collector_chosen(conf):
            settings["spark.driver.defaultJavaOptions"] = "-XX:+UseParallelGC"
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


def _sockets() -> dict[str, str]:
    """Settings by which messages go between Java and Python without the network's protocols: through sockets in a
    folder that only this user may enter, because Spark asks for no secret there.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "warren", "sockets")
    if os.name != "posix" or len(os.fsencode(folder)) + 1 + _SOCKET_NAME > _SOCKET_PATH:
        return {}
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError:
        return {}
    domain = "spark.python.unix.domain.socket"
    return {f"{domain}.enabled": "true", f"{domain}.dir": str(folder)}


def _is_collector_chosen(conf: Mapping[str, Any]) -> bool:
    """Whether Java's options name a garbage collector. Java does not start if they name two.

    Java's usual collector works beside the program, for which a session has no spare processor: Spark's Java needs a
    fifth more time with it.
    """
    options = [str(conf.get(f"spark.driver.{name}JavaOptions", "")) for name in ("extra", "default")]
    options += [os.environ.get(name, "") for name in _JAVA_OPTIONS]
    home = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    with contextlib.suppress(OSError):
        options.append(Path(home, "spark-defaults.conf").read_text("utf-8", "replace"))
    return any("GC" in each for each in options)


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
