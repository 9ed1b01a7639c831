"""What the modules import: executors must load theirs fast, and need neither the broker nor the command line."""

import subprocess
import sys

import pytest

HEAVY = {"thespian", "click", "warren.actors", "warren.runtime", "warren.broker"}


def loaded_by(statement):
    code = f"{statement}; import sys; print('\\n'.join(sys.modules))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120, cwd="/"
    )
    return set(shown.stdout.split("\n"))


@pytest.mark.parametrize(
    "module", ["source", "reading.batch_reader", "reading.stream_reader", "rows.columns", "offline.offline_plan"]
)
def test_what_executors_import(module):
    loaded = loaded_by(f"import warren.spark.{module}")
    assert not HEAVY & loaded
    assert ("lmdb" in loaded) == module.startswith("offline")


def test_what_spark_finds_by_itself_is_light():
    """This module imports little, because a session imports it at the first use of any Python source."""
    loaded = loaded_by("import warren.spark.source")
    assert (
        not {"lmdb", "warren.store", "warren.spark.reading.stream_reader", "warren.spark.offline.offline_plan"} & loaded
    )


def test_importing_warren_imports_nothing_of_spark():
    loaded = loaded_by("import warren, warren.broker, warren.cli.main")
    assert not {"pyspark", "pyarrow", "numpy", "warren.spark"} & loaded
