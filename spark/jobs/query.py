"""The job `query`: messages by id, key, routing key or condition, wherever they are.

A message may be in an archive, in a queue of a running broker, and in a data directory at the same time. `queue_id` and
`seq` name it for ever, so it is found once: in the archive first, then in the broker.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..archive.chosen_queues import queues_in_archive, queues_in_directory
from ..archive.notes import ArchivedFile, last_committed, noted_files, require_archive
from ..errors import SparkSourceError, wrong_option, wrong_options
from ..offline.offline_plan import require_directory
from ..options import BatchOptions
from ..reading.batch_reader import unreadable_queues
from ..rows.columns import COLUMNS
from .archive import read_files
from .rows_in_utc import micros_of, rows_in_utc

#: The places where a message may be found. One that is in several of them is taken from the first.
PLACES = ("archive", "live", "offline")
#: Messages that are shown unless the caller asks for more.
LIMIT = 32
#: How often an archive and a broker are searched at most while messages move from one to the other.
TRIES = 5
#: The header in which publishers give a message its keys, the one that the broker's message index reads as well.
KEYS_HEADER = "x-keys"

#: Arguments of `find_messages` that neither choose queues of a broker nor reach it.
_NOT_FOR_THE_BROKER = {
    *("archive", "data_dir", "message_id", "key", "correlation_id", "routing_key", "where", "since", "until"),
    "with_body",
}


@dataclass(frozen=True)
class QueryResult:
    """What was found, the newest first.

    messages     a dict of the columns for each message, and beside them `place`, `file` and `came`
    has_more     whether there are more messages than the limit
    left_out     queues of the broker that cannot be searched, and why
    """

    messages: list[dict[str, Any]]
    has_more: bool
    left_out: dict[str, str]


def query(spark: Any, *, limit: int = LIMIT, **sought: Any) -> QueryResult:
    """Find at most `limit` messages; `sought` is what `find_messages` takes. Raises SparkSourceError, and what Spark
    raises.
    """
    if limit < 1:
        raise wrong_option("limit", str(limit), "a number above 0")
    left_out = check_query(**sought)
    archive = sought.get("archive")
    for _ in range(TRIES):
        noted = None if archive is None else last_committed(os.path.abspath(archive))
        rows = rows_in_utc(_collected(find_messages(spark, **sought).limit(limit + 1), sought.get("where")))
        # A message that the job `archive` has moved meanwhile may be in neither place at the time of its search.
        if archive is None or sought.get("url") is None or last_committed(os.path.abspath(archive)) == noted:
            break
    return QueryResult(rows[:limit], len(rows) > limit, left_out)


def _collected(found: Any, where: str | None) -> list[Any]:
    """The rows. Raises SparkSourceError E4 if Spark cannot compute the condition `where` for one of them."""
    from pyspark import errors

    of_values = errors.ArithmeticException, errors.DateTimeException, errors.NumberFormatException
    try:
        return list(found.collect())
    except (*of_values, errors.ArrayIndexOutOfBoundsException, errors.SparkRuntimeException) as error:
        if where is None or "SparkSourceError: " in str(error):
            raise
        raise _wrong_condition(where, error) from error


def _wrong_condition(where: str, error: Exception) -> SparkSourceError:
    reason = str(error).strip().partition("\n")[0]
    return wrong_option("where", where, f"a condition in Spark's SQL ({reason})")


def check_query(**sought: Any) -> dict[str, str]:
    """Check what `find_messages` is asked for as far as that needs no Spark, the connection to the broker included.

    Returns the queues of the broker that cannot be searched, and why. Raises SparkSourceError.
    """
    if all(sought.get(name) is None for name in ("archive", "url", "data_dir")):
        raise wrong_options("a query needs an archive, a broker's URL or a data directory, or several of them")
    if sought.get("queues") is not None and sought.get("pattern") is not None:
        raise wrong_options("a query takes either names of queues or a pattern for them")
    if sought.get("archive") is not None:
        require_archive(sought["archive"])
    if sought.get("data_dir") is not None:
        require_directory(sought["data_dir"])
    if sought.get("url") is None:
        return {}
    live = {name: value for name, value in sought.items() if name not in _NOT_FOR_THE_BROKER}
    return unreadable_queues(BatchOptions.parse(_live_options(**live)))


def find_messages(
    spark: Any,
    *,
    archive: str | None = None,
    url: str | None = None,
    data_dir: str | None = None,
    queues: str | None = None,
    pattern: str | None = None,
    message_id: str | None = None,
    key: str | None = None,
    correlation_id: str | None = None,
    routing_key: str | None = None,
    where: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    with_body: bool = False,
    **options: Any,
) -> Any:
    """A DataFrame of the messages that fit everything that is asked for, the newest first.

    archive, url, data_dir    where to look: any of them, and at least one
    queues, pattern           only these queues, several with commas, or those whose name fits `*` and `?`
    message_id, correlation_id, key, routing_key
                              the properties, one key of the header `x-keys`, and a pattern for the routing key
    where                     a condition in Spark's SQL over the columns
    since, until              when the message came: it arrived, or else was published, or else was archived
    with_body                 bring the column `body`; a condition that names `body` brings it too
    options                   how to reach the broker: `user`, `passwordFile` and others

    The columns are those of a queue, and `archived_at`, `came`, `place` and `file`. Raises SparkSourceError.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    since, until = _in_utc(since), _in_utc(until)
    chosen = None if queues is None else [name.strip() for name in queues.split(",")]
    with_body = with_body or "body" in (where or "").lower()
    names = [name for name in COLUMNS if with_body or name != "body"]
    places = []
    if archive is not None:
        places.append(_archived(spark, archive, names, chosen, pattern, since, until))
    if url is not None:
        # The broker chooses the queues, so the rows need no condition for that.
        given = _live_options(url=url, queues=queues, pattern=pattern, **options)
        reader = spark.read.format("warren").options(columns=",".join(names), **given)
        places.append(_placed(reader.load(), "live"))
    if data_dir is not None:
        bodies = "all" if with_body else "none"
        reader = spark.read.format("warren").options(path=data_dir, columns=",".join(names), bodies=bodies)
        rows = reader.load()
        if chosen is not None or pattern is not None:
            rows = rows.where(functions.col("queue").isin(queues_in_directory(data_dir, chosen, pattern)))
        places.append(_placed(rows, "offline"))
    found = functools.reduce(lambda one, other: one.unionByName(other), places)
    came = functions.coalesce("arrived", "timestamp", "archived_at")
    found = found.withColumn("came", came)
    for condition in _conditions(message_id, key, correlation_id, routing_key, since, until):
        found = found.where(condition)
    if where is not None:
        try:
            found = found.where(where)
        except PySparkException as error:
            raise _wrong_condition(where, error) from error
    if len(places) > 1:
        found = _each_once(found)
    return found.orderBy(functions.col("came").desc_nulls_last(), "queue", functions.col("seq").desc())


def _in_utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _live_options(*, url: str, queues: str | None = None, pattern: str | None = None, **options: Any) -> dict[str, str]:
    chosen = {"queues": queues} if queues else {"pattern": pattern or "*", "skipUnreadable": "true"}
    return {"url": url, **chosen, **{name: str(value) for name, value in options.items() if value is not None}}


def _archived(
    spark: Any,
    target: str,
    names: list[str],
    queues: list[str] | None,
    pattern: str | None,
    since: datetime | None,
    until: datetime | None,
) -> Any:
    """The messages of the chosen queues in an archive.

    Files whose messages all arrived at another time are not opened.
    """
    from pyspark.sql import functions

    target = os.path.abspath(target)
    noted = noted_files(target)
    here = queues_in_archive(noted, queues, pattern)
    files = [file for file in noted if file.path is not None and file.queue in here and _may_have(file, since, until)]
    place = functions.lit("archive").alias("place")
    if not files:
        types = {name: COLUMNS[name].type for name in names} | {"archived_at": "timestamp"}
        schema = ", ".join(f"`{name}` {type}" for name, type in types.items())
        return spark.createDataFrame([], schema).select("*", place, functions.lit(None).cast("string").alias("file"))
    found = read_files(spark, target, files)
    return found.select(*names, "archived_at", place, functions.col("_metadata.file_path").alias("file"))


def _may_have(file: ArchivedFile, since: datetime | None, until: datetime | None) -> bool:
    """Whether a file may have a message that came between `since` and `until`.

    Every file whose messages have no known time of arrival may: a message's other times are compared once it is read.
    """
    least, most = file.arrived_least, file.arrived_most
    return (since is None or most is None or most >= since) and (until is None or least is None or least <= until)


def _placed(found: Any, place: str) -> Any:
    """Messages of another place than an archive, with the columns that an archive adds: null, but for `place`."""
    from pyspark.sql import functions

    return found.select(
        "*",
        functions.lit(None).cast("timestamp").alias("archived_at"),
        functions.lit(place).alias("place"),
        functions.lit(None).cast("string").alias("file"),
    )


def _conditions(
    message_id: str | None,
    key: str | None,
    correlation_id: str | None,
    routing_key: str | None,
    since: datetime | None,
    until: datetime | None,
) -> list[Any]:
    from pyspark.sql import functions

    found = []
    if routing_key is not None:
        found.append(functions.col("routing_key").like(_like(routing_key)))
    for column, value in (("message_id", message_id), ("correlation_id", correlation_id)):
        if value is not None:
            found.append(functions.col(column) == value)
    if key is not None:
        # Rows have an array of a header as JSON, and a text as it is.
        keys = functions.col("headers")[KEYS_HEADER]
        is_one = functions.array_contains(functions.split(keys, r"\s+"), key)
        is_listed = functions.array_contains(functions.from_json(keys, "array<string>"), key)
        either = [functions.coalesce(each, functions.lit(False)) for each in (is_one, is_listed)]
        found.append(either[0] | either[1])
    for moment, is_after in ((since, True), (until, False)):
        if moment is not None:
            border = functions.timestamp_micros(functions.lit(micros_of(moment)))
            found.append(functions.col("came") >= border if is_after else functions.col("came") <= border)
    return found


def _like(glob: str) -> str:
    """A glob of `*` and `?` as a pattern of SQL's LIKE."""
    translated = {"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"}
    return "".join(translated.get(each, each) for each in glob)


def _each_once(found: Any) -> Any:
    """Each message in the first of its places. One place may have several messages of a queue with one number, because
    each priority of a queue numbers its messages by itself.
    """
    from pyspark.sql import Window, functions

    rank = functions.array_position(functions.array(*map(functions.lit, PLACES)), functions.col("place"))
    first = functions.min(rank).over(Window.partitionBy("queue", "queue_id", "seq"))
    return found.withColumn("_rank", rank).withColumn("_first", first).where("_rank = _first").drop("_rank", "_first")
