"""warren's queues as tables and streams of Spark.

    from warren.spark import session

    spark = session()
    orders = spark.read.format("warren").options(url="amqp://127.0.0.1/%2F", queue="orders").load()

docs/spark.md describes the format's options and what it guarantees.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import SparkSourceError
    from .java import java_home
    from .jobs.archive import read_archive, verify_archive
    from .sessions import register, session

__all__ = ["SparkSourceError", "java_home", "read_archive", "register", "session", "verify_archive"]

#: The module that defines each public name.
_HOMES = {
    "SparkSourceError": "errors",
    "java_home": "java",
    "read_archive": "jobs.archive",
    "register": "sessions",
    "session": "sessions",
    "verify_archive": "jobs.archive",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, because Spark's workers import this package for its source alone.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
