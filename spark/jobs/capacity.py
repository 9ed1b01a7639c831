"""The job `capacity`: advice for settings, computed from an archive, each with its formula and the numbers put in.

The archive shows when each message arrived and when it was archived; until then it was in its queue. A percentile,
say the 90th, is the smallest value that at least 90% of the values do not exceed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...runtime.machine.portable_memory import physical_memory
from ..archive.notes import noted_files
from ..errors import wrong_option, wrong_options
from .archive import read_archive
from .flow_table import read_consumed, read_flow
from .flow_windows import ConsumedRow

#: Bytes of memory that a broker needs for a message beside its body and properties.
OVERHEAD = 120
#: Above this part of a node's rate a queue is close to what one node can do.
CLOSE = 0.7
#: A backlog that needs more than this part of the machine's memory belongs on the disk.
LAZY_ABOVE = 1 / 3
#: Files of an archive below this average are worth merging.
SMALL_FILES = 16 << 20
#: The most that is advised as prefetch: above that a consumer has nothing more to gain.
MOST_PREFETCH = 2_000
#: An archive that spans less time than this is taken to span this long, so that a few minutes of traffic are not
#: multiplied to those of a day.
LEAST_SECONDS = 3600.0

_DAY = 86_400

#: One row for each queue.
QUEUES = """
    with timed as (select * from archived where arrived is not null),
         seconds as (
             select queue, date_trunc('second', arrived) as second, count(*) as messages from timed group by all
         ),
         busy as (
             select queue, bigint(percentile_disc(0.999) within group (order by messages)) as peak
             from seconds group by queue
         ),
         moments as (
             select queue, moment, sum(delta) as delta from (
                 select queue, arrived as moment, 1 as delta from timed
                 union all select queue, archived_at as moment, -1 as delta from timed
             ) group by queue, moment
         ),
         filled as (
             select queue, sum(delta) over (partition by queue order by moment rows unbounded preceding) as waiting
             from moments
         ),
         backlogs as (select queue, max(waiting) as backlog from filled group by queue)
    select queue, count(*) as messages, sum(size + length(properties)) as bytes,
           bigint(percentile_disc(0.5) within group (order by size)) as body,
           bigint(percentile_disc(0.5) within group (order by length(properties))) as properties,
           bigint(percentile_disc(0.999) within group (order by unix_micros(archived_at) - unix_micros(arrived)))
               as waited,
           unix_micros(min(arrived)) as first, unix_micros(max(arrived)) as last,
           max(busy.peak) as peak, max(backlogs.backlog) as backlog
    from timed join busy using (queue) join backlogs using (queue) group by queue order by queue
"""


@dataclass(frozen=True)
class Advice:
    """One setting.

    queue      the queue that it is for; empty for a setting of the node or of the archive
    setting    the argument or the setting, or `disk` and `archive` for the space that they need
    value      what it should be
    because    the formula with the numbers put in
    """

    queue: str
    setting: str
    value: str
    because: str


@dataclass(frozen=True)
class CapacityResult:
    """The advice, the messages that it was computed from, and the days between the first and the last of them."""

    advice: list[Advice]
    messages: int
    days: float


def capacity(
    spark: Any,
    archive: str,
    *,
    node_rate: int = 300_000,
    growth: float = 2.0,
    keep_for: float = 3 * _DAY,
    memory: int | None = None,
    flow: str | None = None,
) -> CapacityResult:
    """Advise on shards, memory, limits and disk for the queues of an archive.

    node_rate    messages that a node passes on in a second
    growth       how many times today's traffic there will be
    keep_for     seconds for which messages, and files of the archive, are kept
    memory       bytes of memory of the broker's machine; this machine's if it is not given
    flow         the folder of a table of the job `flow`, for advice on prefetch, and on queues that were the bottleneck

    Raises SparkSourceError E4: there is no message, or none whose time of arrival is known.
    """
    for name, value in (("node_rate", node_rate), ("growth", growth), ("keep_for", keep_for)):
        if not 0 < value < math.inf:
            raise wrong_option(name, str(value), "a number above 0")
    columns = ["queue", "size", "properties", "arrived", "archived_at"]
    read_archive(spark, archive, columns).createOrReplaceTempView("archived")
    rows = spark.sql(QUEUES).collect()
    if not rows:
        raise wrong_options(
            f"the archive '{archive}' has no message whose time of arrival is known, so nothing can be advised"
        )
    memory = memory or physical_memory()
    slow = {} if flow is None else _bottlenecks(flow)
    advice = [each for row in rows for each in _of_queue(row, node_rate, growth, slow.get(row.queue))]
    if flow is not None:
        advice += _prefetches(read_consumed(flow))
    needed = sum(_memory(row) for row in rows)
    share = needed / memory
    advice.append(
        Advice(
            *("", "x-queue-mode", "lazy" if share > LAZY_ABOVE else "default"),
            f"peak backlogs × (median body + properties + {OVERHEAD} B) × 2 = {needed:,} B, which is {share:.1%} of "
            f"{memory:,} B of memory; lazy above a third",
        )
    )
    # From the first message of all queues to the last one: each queue may have had its messages at another time.
    span = max(row.last for row in rows) - min(row.first for row in rows)
    days = max(span / 1e6, LEAST_SECONDS) / _DAY
    kept = keep_for / _DAY
    daily = sum(row.bytes + OVERHEAD * row.messages for row in rows) / days
    files = [file for file in noted_files(archive) if file.path is not None]
    archived = sum(file.bytes for file in files) / days
    for setting, size, what in (
        ("disk", daily, f"bodies, properties and {OVERHEAD} B a message"),
        ("archive", archived, "files of the archive"),
    ):
        advice.append(
            Advice(
                *("", setting, f"{math.ceil(growth * size * kept):,} B"),
                f"growth {growth:g} × {size:,.0f} B a day ({what}) × {kept:g} days",
            )
        )
    average = sum(file.bytes for file in files) // len(files)
    if average < SMALL_FILES:
        advice.append(
            Advice(
                *("", "files", "warren pipeline compact"),
                f"{len(files):,} files have {average:,} B each on average; below {SMALL_FILES:,} B merging them pays",
            )
        )
    return CapacityResult(advice, sum(row.messages for row in rows), days)


def _memory(row: Any) -> int:
    return int(row.backlog * (row.body + row.properties + OVERHEAD) * 2)


def _bottlenecks(flow: str) -> dict[str, tuple[int, int]]:
    """By queue: in how many windows it was the bottleneck, and how many windows of its node there are."""
    rows = read_flow(flow)
    if not rows:
        raise wrong_options(f"'{flow}' has no table of `warren pipeline flow`, or an empty one")
    windows = Counter(node for node, _ in {(row.node, row.start) for row in rows})
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.verdict is not None and row.stage == "queue":
            for name in re.findall(r"'([^']*)'", (row.object or "").partition(" in vhost ")[0]):
                found[name] = found.get(name, (0, 0))[0] + 1, windows[row.node]
    return found


def _prefetches(rows: Iterable[ConsumedRow]) -> list[Advice]:
    """The prefetch of the consumers of each queue, by Little's law: as many messages as a consumer acknowledges in the
    time for which it holds one.
    """
    by_queue: dict[tuple[str, str], list[ConsumedRow]] = {}
    for row in rows:
        if row.acked:
            by_queue.setdefault((row.vhost, row.queue), []).append(row)
    found = []
    for (_, queue), some in sorted(by_queue.items()):
        rate = _most([row.acked / row.consumers for row in some])
        held = _most([row.unacked / row.acked for row in some])
        needed = rate * held
        advised = min(MOST_PREFETCH, 1 << max(0, math.ceil(needed) - 1).bit_length())
        limit = f", at most {MOST_PREFETCH:,}" if needed > MOST_PREFETCH else ""
        found.append(
            Advice(
                *(queue, "prefetch", f"{advised}"),
                f"{rate:,.1f} messages/s of a consumer × {held:,.4g} s from delivery to acknowledgement (99% of "
                f"{len(some):,} windows have no more) = {needed:,.1f}, up to the next power of 2{limit}",
            )
        )
    return found


def _most(values: Iterable[float]) -> float:
    """The smallest of the values that 99% of them do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def _of_queue(row: Any, node_rate: int, growth: float, slow: tuple[int, int] | None) -> list[Advice]:
    ratio = growth * row.peak / node_rate
    close = ", which is close to what one node can do" if CLOSE < ratio <= 1 else ""
    shards = max(1, math.ceil(ratio))
    if slow is not None and shards == 1:
        shards = 2
        close = f"; but the queue was the bottleneck in {slow[0]:,} of {slow[1]:,} windows, so two shards at least"
    waited = row.waited / 1000
    found = [
        Advice(
            *(row.queue, "x-warren-shards", str(shards)),
            f"growth {growth:g} × {row.peak:,} messages/s (99.9% of the seconds with messages have no more) ÷ "
            f"{node_rate:,} messages/s of a node = {ratio:.3g}{close}",
        ),
        Advice(
            *(row.queue, "x-message-ttl", str(math.ceil(growth * waited))),
            f"growth {growth:g} × {waited:,.0f} ms (99.9% of the messages waited no longer), so that only messages "
            "expire that nobody comes for",
        ),
        Advice(
            *(row.queue, "x-max-length", str(math.ceil(growth * row.backlog))),
            f"growth {growth:g} × {row.backlog:,} messages, the longest backlog",
        ),
    ]
    # With clocks that differ, messages seem to be archived before they arrive. Such a wait is no advice: with a time to
    # live of 0 a queue drops what it cannot deliver at once.
    return [each for each in found if each.setting != "x-message-ttl" or waited > 0]
