"""Spark imports every module whose name begins with `pyspark_` and registers its `DefaultSource`.

A module that raises at its import costs a session all its Python sources, so this one holds nothing but the name.
"""

from warren.spark.source import WarrenDataSource as DefaultSource

__all__ = ["DefaultSource"]
