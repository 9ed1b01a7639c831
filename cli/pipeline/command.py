"""The group `warren pipeline`, and what its commands share: options, exit codes, and how results are printed.

The packages of the extra `spark` are imported when a command runs.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..failure import EX_CONFIG, EX_DATAERR, EX_SOFTWARE, EX_TEMPFAIL, EX_UNAVAILABLE, EX_USAGE, CommandFailure
from .interrupt import INTERRUPTED, ended_at_once
from .java_output import JavaOutput
from .progress import note

#: The exit code of a command by the code of the error that ended it. An error that is not here is a fault of warren,
#: and the command ends with 70 (`EX_SOFTWARE`).
EXITS = {
    **{"E1": EX_CONFIG, "E2": EX_CONFIG, "E4": EX_USAGE, "E3": EX_UNAVAILABLE, "E5": EX_UNAVAILABLE, "E6": EX_CONFIG},
    **{"E7": EX_TEMPFAIL, "E8": EX_DATAERR, "E11": EX_DATAERR, "E12": EX_UNAVAILABLE, "E13": EX_UNAVAILABLE},
    "E14": EX_TEMPFAIL,
}

#: Seconds of the longest time that an option takes.
LONGEST = 100 * 365 * 86400

Command = Callable[..., None]


@click.group()
def pipeline() -> None:
    """Archive, replay and analyse queues. It needs the packages of `pip install 'warren-mq[spark]'`."""


def output(command: Command) -> Command:
    """The option that chooses how a result is printed."""
    return click.option(
        "--formatter",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Print the result for people, or as JSON.",
    )(command)


def progress(command: Command) -> Command:
    """The option of jobs that show their progress."""
    return click.option("--quiet", is_flag=True, help="Show no progress.")(command)


def period(command: Command) -> Command:
    """The options for messages that arrived within a time."""
    for make in (
        click.option("--until", type=click.DateTime(), help="Only messages that arrived then or earlier, in UTC."),
        click.option("--since", type=click.DateTime(), help="Only messages that arrived then or later, in UTC."),
    ):
        command = make(command)
    return command


def login(command: Command) -> Command:
    """The options for who logs in to a broker."""
    for make in (
        click.option("--password-file", type=click.Path(), help="A file whose first line is the password."),
        click.option("--user", help="The user, instead of the URL's."),
    ):
        command = make(command)
    return command


def connection(command: Command) -> Command:
    """The options of all jobs that need a broker."""
    for make in (
        progress,
        output,
        login,
        click.option(
            "--url", default="amqp://127.0.0.1/%2F", show_default=True, help="The broker; several with commas."
        ),
    ):
        command = make(command)
    return command


def print_result(formatter: str, result: Any, text: str) -> None:
    click.echo(json.dumps(dataclasses.asdict(result), default=str) if formatter == "json" else text)


def counted(count: int, what: str) -> str:
    """`1 file`, or `2 files`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


@contextmanager
def failures() -> Iterator[None]:
    """Check that PySpark is there, and turn errors of jobs into exit codes. Spark may have wrapped a job's own error
    into an exception of its own.
    """
    from ...spark.errors import SparkSourceError
    from ...spark.sessions import require_pyspark

    try:
        require_pyspark()
        yield
    except SparkSourceError as error:
        raise CommandFailure(str(error), _exit_for(error.code, str(error))) from error
    except (CommandFailure, click.exceptions.Exit):
        raise
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:
        last = [line for line in str(error).splitlines() if "SparkSourceError: " in line]
        if last:
            text = last[-1].partition("SparkSourceError: ")[2]
            raise CommandFailure(text, _exit_of(text)) from error
        if isinstance(error, OSError):
            raise CommandFailure(_without_number(error), _exit_of_system(error)) from error
        reason = _reason_of_spark(error)
        if reason is None:
            raise
        raise CommandFailure(f"Spark failed: {reason}", EX_SOFTWARE) from error


def _without_number(error: OSError) -> str:
    """The text of an error of the operating system, such as a folder that the user may not write."""
    place = "" if error.filename is None else f"{error.filename}: "
    return f"{place}{error.strerror or error}"


def _exit_of_system(error: OSError) -> int:
    """The exit code: most errors are about a path that the command was given, and a full disk may have room later."""
    from ...spark.errors import is_full

    if is_full(error):
        return EX_TEMPFAIL
    return EX_USAGE if error.filename is not None else EX_SOFTWARE


def _reason_of_spark(error: Exception) -> str | None:
    """The reason that Spark gives, such as a format that it does not have; None if the error is not Spark's, or comes
    from Python code that Spark ran.
    """
    from pyspark import errors

    if not isinstance(error, errors.PySparkException) or isinstance(error, errors.PythonException):
        return None
    return str(error).strip().partition("\n")[0]


def _exit_for(code: str, text: str) -> int:
    """The exit code for an error of this code. A data directory that is in use can be read when its broker stops."""
    return EX_TEMPFAIL if code == "E11" and "is in use" in text else EXITS.get(code, EX_SOFTWARE)


def _exit_of(text: str) -> int:
    """The exit code for the text of an error that has lost its code on the way through Spark."""
    for part, code in (
        ("left unread", "E8"),
        ("it was deleted", "E8"),
        ("already has a query", "E7"),
        ("no space left", "E14"),
        ("is not warren", "E3"),
        ("the checkpoint's offset has version", "E6"),
        ("data directory '", "E11"),
        ("the metadata in '", "E11"),
        ("of format 'warren'", "E4"),
        ("the query again when the broker is back", "E5"),
        ("the broker refused", "E5"),
        ("there is no such queue", "E5"),
    ):
        if part in text:
            return _exit_for(code, text)
    return EX_SOFTWARE


def yield_processors() -> None:
    """Lower the priority of this program, so that a broker and its clients on the same machine go first. Spark's
    processes get theirs from their session.
    """
    from ...runtime.machine.priority import lower_priority

    lower_priority(os.getpid())


def spark_options(command: Command) -> Command:
    """The options of all jobs that start Spark."""
    for make in (
        click.option("--memory", help="Memory of Spark's Java, such as 2g."),
        click.option("--conf", multiple=True, metavar="K=V", help="A setting of Spark; may be given several times."),
        click.option("--master", default="local[*]", show_default=True, help="Where Spark runs."),
    ):
        command = make(command)
    return command


@contextmanager
def spark_session(job: str, master: str, conf: tuple[str, ...], memory: str | None) -> Iterator[Any]:
    """A session of Spark that ends with the job; errors of the job become exit codes.

    Ctrl-C ends the job at once, unless the block has a job that can be `ended_in_order`.
    """
    settings: dict[str, Any] = dict(pair.partition("=")[::2] for pair in conf) | (
        {"spark.driver.memory": memory} if memory else {}
    )
    with failures():
        with ended_at_once():
            with note("Starting Spark …"):
                spark = _started(f"warren pipeline {job}", master, settings)
            # PySpark has set a handler of its own for Ctrl-C.
            with ended_at_once():
                try:
                    yield spark
                finally:
                    spark.stop()


def _started(name: str, master: str, settings: dict[str, Any]) -> Any:
    """A new session. Spark's log and Java's words about itself are not shown, unless a setting asks for a log."""
    from ...spark.sessions import session

    if "spark.log.level" in settings:
        return session(name, master, **settings)
    java = JavaOutput()
    try:
        with java.inherited():
            return session(name, master, **{"spark.log.level": "OFF", **settings})
    except Exception as error:
        if type(error).__name__ != "PySparkRuntimeError":
            raise
        reason = (java.reason() or str(error)).rstrip(".")
        text = f"Spark's Java did not start: {reason}. Look at --memory, --conf and --master"
        raise CommandFailure(text, EX_CONFIG) from error


def duration(example: str) -> Callable[..., float | None]:
    """A callback of click for a time such as 12h; gives seconds, and None for an option that is not given."""

    def parsed(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
        from ...spark.option_values import Wrong, parse_seconds

        try:
            found = None if text is None else parse_seconds(text)
        except Wrong:
            raise click.BadParameter(f"'{text}' is not a time such as {example}") from None
        if found is not None and found > LONGEST:
            raise click.BadParameter(f"'{text}' is longer than a hundred years")
        return found

    return parsed


def times(example: str) -> Callable[..., float | None]:
    """A callback of click for how many times as fast something is, such as 2x; gives a number."""

    def parsed(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
        if text is None:
            return None
        try:
            found = float(text.removesuffix("x"))
        except ValueError:
            found = 0.0
        if not 0 < found < math.inf:
            raise click.BadParameter(f"'{text}' is not a speed such as {example}")
        return found

    return parsed


def size(example: str) -> Callable[..., int | None]:
    """A callback of click for a size such as 256m; gives bytes."""

    def parsed(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
        from ...spark.option_values import Wrong, parse_bytes

        try:
            found = None if text is None else parse_bytes(text)
        except Wrong:
            found = None
        if found is None and text is not None:
            raise click.BadParameter(f"'{text}' is not a size such as {example}")
        return found

    return parsed
