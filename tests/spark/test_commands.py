"""Mistakes that the commands of `warren pipeline` find before Spark takes seconds to start, and how they
show progress.
"""

import errno
import json
import os
from unittest.mock import MagicMock

import click
import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException, PythonException, UnknownException

from warren import Broker
from warren.cli.failure import (
    EX_CONFIG,
    EX_DATAERR,
    EX_SOFTWARE,
    EX_TEMPFAIL,
    EX_UNAVAILABLE,
    EX_USAGE,
    CommandFailure,
)
from warren.cli.main import root
from warren.cli.pipeline.archive_commands import _written
from warren.cli.pipeline.command import failures
from warren.spark.archive.through_spark import SparkRun
from warren.spark.errors import SparkSourceError
from warren.spark.jobs.archive import ArchiveProgress
from warren.spark.jobs.capacity import capacity


class Started(Exception):
    """Raised where Spark would start."""


@pytest.fixture
def no_spark(monkeypatch):
    def start(*_):
        raise Started

    monkeypatch.setattr("warren.cli.pipeline.command._started", start)


def failure(*command):
    result = CliRunner().invoke(root, ["pipeline", *map(str, command)], standalone_mode=False)
    return result.exception, result.stderr


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (["archive", "--to", "to"], EX_USAGE, "needs one of the options 'queue'"),
        (["archive", "--to", "to", "--queue", "nowhere"], EX_UNAVAILABLE, "there is no such queue"),
        (["archive", "--to", "to", "--queue", "q", "--user", "nobody"], EX_UNAVAILABLE, "ACCESS_REFUSED"),
        (["analyse", "--report", "r"], EX_USAGE, "needs one of an archive, a data directory, and a broker's URL"),
        (["analyse", "--report", "r", "--archive", "."], EX_USAGE, "is no archive: it has no folder '_warren'"),
        (["analyse", "--report", "r", "--url", "amqp://x", "--bucket", "1"], EX_USAGE, "give a time such as 10s"),
        (["analyse", "--report", "r", "--url", "amqp://x", "--since", "May"], EX_USAGE, "a date such as 2026-11-23"),
        (["analyse", "--report", ".", "--url", "amqp://x"], EX_USAGE, ".: Is a directory"),
        (["analyse", "--report", "/proc/r", "--url", "amqp://x"], EX_USAGE, "/proc/r: "),
        (["capacity", "--archive", "."], EX_USAGE, "is no archive"),
        (["query", "--archive", "."], EX_USAGE, "is no archive"),
        (["replay", "--from", ".", "--to-queue", "q"], EX_USAGE, "is no archive"),
    ],
)
def test_a_mistake_is_shown_before_spark_starts(no_spark, broker, tmp_path, monkeypatch, command, code, text):
    monkeypatch.chdir(tmp_path)
    broker.declare_queue("q")
    if command[0] == "archive":
        command = [*command, "--url", broker.url]
    found, _ = failure(*command)
    assert isinstance(found, CommandFailure) and found.code == code and text in str(found)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/archive"), EX_USAGE, "/archive: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device", "/a"), EX_TEMPFAIL, "/a: No space left on device"),
        (AnalysisException("[DATA_SOURCE_NOT_FOUND] no such format\nfoo"), EX_SOFTWARE, "Spark failed: [DATA_SOURCE_"),
        (UnknownException("Job aborted: [E] SparkSourceError: queue 'q' is not warren"), EX_UNAVAILABLE, "queue 'q'"),
    ],
)
def test_an_error_of_the_system_or_of_spark_is_one_line(error, code, text):
    with pytest.raises(CommandFailure) as caught, failures():
        raise error
    assert caught.value.code == code and caught.value.message.startswith(text) and "\n" not in caught.value.message


def test_a_fault_keeps_its_traceback():
    for error in (ValueError("a fault"), PythonException("Traceback (most recent call last):")):
        with pytest.raises(type(error)), failures():
            raise error


def test_a_time_without_an_end_is_refused():
    found, _ = failure("compact", "--at", ".", "--older-than", "999999999999d")
    assert isinstance(found, click.BadParameter) and "is longer than a hundred years" in str(found)
    for growth in (float("nan"), float("inf"), 0.0):
        with pytest.raises(SparkSourceError, match="'growth'.*give a number above 0"):
            capacity(None, ".", growth=growth)


@pytest.mark.parametrize("command", [["query"], ["analyse", "--report", "r"]])
def test_a_data_directory_that_cannot_be_read_is_named_before_spark_starts(no_spark, tmp_path, command):
    """A directory in use can be read when its broker has stopped; what is no data directory is no fault of warren."""
    with Broker(port=0, data_dir=tmp_path / "data"):
        found, _ = failure(*command, "--data-dir", tmp_path / "data")
        assert found.code == EX_TEMPFAIL and "Stop it, read a copy" in str(found)
    assert isinstance(failure(*command, "--data-dir", tmp_path / "data")[0], Started)
    found, _ = failure(*command, "--data-dir", tmp_path)
    assert found.code == EX_DATAERR and "is not a data directory of warren" in str(found)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("data directory '/d' is in use by a broker (process 812). Stop it, read a copy", EX_TEMPFAIL),
        ("the metadata in '/d' is damaged: no format. Restore that directory", EX_DATAERR),
        ("the checkpoint's offset has version 2, this warren (1.0) knows 1. Use the newer warren", EX_CONFIG),
        ("queue 'q': 4 messages left unread (numbers 1 to 4); it has 1 consumer", EX_DATAERR),
        ("division by zero", EX_SOFTWARE),
    ],
)
def test_exit_codes_of_errors_that_come_through_spark(text, code):
    """Spark wraps an error of a task or the planner, and only its text is left."""
    with pytest.raises(CommandFailure) as caught, failures():
        raise RuntimeError(f"An exception was thrown\nTraceback\nwarren.spark.errors.SparkSourceError: {text}")
    assert caught.value.code == code


def test_an_archive_waits_for_a_broker_that_is_away_and_says_so(no_spark, tmp_path):
    with Broker(port=0) as broker:
        url = broker.url
    found, error = failure("archive", "--url", url, "--queue", "orders", "--to", tmp_path)
    assert isinstance(found, Started)
    assert error.endswith("refused connections; the broker has a minute to come back.\n")


def test_a_later_run_leaves_it_to_the_checkpoint_what_a_missing_queue_means(no_spark, broker, tmp_path):
    (tmp_path / "_warren" / "checkpoint").mkdir(parents=True)
    found, _ = failure("archive", "--url", broker.url, "--queue", "nowhere", "--to", tmp_path)
    assert isinstance(found, Started)


def test_a_pyspark_that_is_too_old_is_explained(no_spark, monkeypatch, tmp_path):
    monkeypatch.setattr("pyspark.__version__", "4.1.2")
    found, _ = failure("archive", "--queue", "q", "--to", tmp_path)
    assert isinstance(found, CommandFailure) and found.code == EX_CONFIG
    assert str(found) == (
        "'warren pipeline' needs PySpark 4.2 or newer, and this is 4.1.2. pip install 'warren-mq[spark]'"
    )


def test_a_java_that_does_not_start_is_explained(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho "Invalid maximum heap size: -Xmxlots" >&2\nexit 1\n')
    java.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"')
    (tmp_path / "archive" / "_warren").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    # Earlier tests may have left a Java running, which Spark would use.
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    found, _ = failure("capacity", "--archive", tmp_path / "archive", "--memory", "lots")
    assert isinstance(found, CommandFailure) and found.code == EX_CONFIG
    assert "did not start: Invalid maximum heap size: -Xmxlots" in str(found) and "Look at --memory" in str(found)


def test_progress_tells_what_is_in_hand(tmp_path):
    """Progress counts the micro-batch being written: the checkpoint has the end of each before it is written, and the
    beginning of the first.
    """
    for log in "offsets", "commits":
        os.makedirs(tmp_path / "_warren" / "checkpoint" / log)

    def place(**numbers):
        return {name: {"id": "", "life": 0, "next": number} for name, number in numbers.items()}

    def offset(number, **value):
        path = tmp_path / "_warren" / "checkpoint" / "offsets" / str(number)
        path.write_text("v1\n{}\n" + json.dumps(value))

    writer = MagicMock()
    run = SparkRun(writer, str(tmp_path), None)
    assert run.in_hand() == 0
    offset(0, queues=place(a=130, b=20), **{"from": place(a=100, b=20)})
    assert (run.in_hand(), run.end()) == (30, False)
    (tmp_path / "_warren" / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    assert (run.in_hand(), run.end()) == (0, True)
    offset(1, queues=place(a=130, b=25, c=7), **{"from": place(c=3)})
    assert run.in_hand() == 9


def test_the_line_of_progress():
    assert _written(2.0, ArchiveProgress()) == "0 messages in files, 0/s, 0 bytes"
    found = ArchiveProgress(200, 2048, {"a": (200, 500)}, in_hand=100, parts=4, ended=1)
    assert _written(2.0, found) == (
        "200 messages in files, 100/s, 2 KiB; writing 100 more, 1 of 4 parts done; 3 s left"
    )
