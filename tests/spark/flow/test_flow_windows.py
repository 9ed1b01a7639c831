"""The job `flow` without Spark: how sums of samples become rows, a table and a report (SP-99)."""

import dataclasses
import re
from datetime import UTC, datetime, timedelta

import pyarrow.dataset
import pytest

from warren.actors.node.operations.observing.bottlenecks import ADVICE
from warren.spark.errors import SparkSourceError
from warren.spark.jobs.flow_report import flow_page
from warren.spark.jobs.flow_table import FlowTable, read_consumed, read_flow
from warren.spark.jobs.flow_windows import (
    LATE,
    STAGES,
    ConsumedRow,
    Sums,
    WindowKey,
    Windows,
    bottleneck,
    consumed_rows,
    summary,
)

START = int(datetime(2026, 11, 24, 12, 59, 30, tzinfo=UTC).timestamp())


def node(start, seconds=10.0, samples=10, name="a@a", **counts):
    each = [counts.get(count, 0) for count in ("published", "confirmed", "delivered", "acked")]
    return WindowKey(start, name, "node", "", ""), Sums(samples, seconds, 0, "", "", *each)


def blocked(start, stage, label, seconds, name="a@a"):
    return WindowKey(start, name, "object", stage, label), Sums(10, seconds, 0, "", "", 0, 0, 0, 0)


def held(start, stage, label, shares, connections=1, name="a@a"):
    """A cause of blocking, with the sum of its shares."""
    return WindowKey(start, name, "verdict", stage, label), Sums(
        10, shares, connections, "so", f"do {stage}", 0, 0, 0, 0
    )


def consumed(start, queue, held, acked, consumers, name="a@a"):
    return WindowKey(start, name, "consumed", "/", queue), Sums(10, held, consumers, "", "", 0, 0, 0, acked)


def put(table, windows):
    sums = list(windows.sums())
    table.put(windows.rows(), consumed_rows(windows.width, sums))


def rows_of(windows, start, name="a@a"):
    return {row.stage: row for row in windows.rows()[start, name]}


def test_a_window_has_a_row_for_each_stage():
    windows = Windows(10)
    windows.update(
        [
            node(START, published=1000, delivered=500),
            *(
                blocked(START, "connection", f"connection {name}", seconds)
                for name, seconds in (("x", 4.0), ("y", 6.0))
            ),
            blocked(START, "channel", "channel y (1)", 5.0),
            held(START, "queue", "queue 'q' in vhost '/'", 5.5, connections=2),
        ]
    )
    rows = rows_of(windows, START)
    assert list(rows) == list(STAGES)
    assert (rows["connection"].object, rows["connection"].blocked_share) == ("connection y", 0.6)
    assert (rows["channel"].blocked_share, rows["link"].blocked_share, rows["link"].object) == (0.5, 0.0, None)
    slow = bottleneck(rows.values())
    assert slow.stage == "queue" and slow.verdict == "queue 'q' in vhost '/' holds back 2 connections"
    assert (slow.evidence, slow.advice, slow.since, slow.blocked_share) == ("so", "do queue", slow.start, 0.0)
    assert {(row.published, row.delivered, row.end - row.start) for row in rows.values()} == {
        (100.0, 50.0, timedelta(seconds=10))
    }


def test_there_is_a_row_for_each_verdict_of_the_broker():
    """A verdict without a row would be lost, as that of slow mirrors once was (SP-99)."""
    assert {"alarm" if stage == "resource alarm" else stage for stage in ADVICE} <= set(STAGES)


@pytest.mark.parametrize(("shares", "is_named"), [(0.4, False), (0.6, True)])
def test_a_block_of_a_moment_is_no_bottleneck(shares, is_named):
    """A cause is named only if it blocks for at least 5% of the window, because a connection that was blocked once is
    shown as `flow` for seconds.
    """
    windows = Windows(10)
    windows.update([node(START), held(START, "channel", "channel 1", shares)])
    assert (bottleneck(rows_of(windows, START).values()) is not None) == is_named


def test_the_cause_that_blocks_the_most_is_the_bottleneck_and_keeps_its_beginning():
    windows = Windows(10)
    for at, queue, store in ((0, 3.0, 2.0), (10, 2.0, 3.0), (20, 1.0, 3.0)):
        windows.update(
            [
                node(START + at),
                held(START + at, "queue", "queue q", queue),
                held(START + at, "message store", "disk", store),
            ]
        )
    found = [bottleneck(rows) for rows in windows.rows().values()]
    assert [row.object for row in found] == ["queue q", "disk", "disk"]
    assert [row.since.timestamp() - START for row in found] == [0, 10, 10]
    # More samples of the first window arrive, by which the bottleneck of the later windows began in the first.
    windows.update([held(START, "message store", "disk", 4.0)])
    assert [bottleneck(rows).since.timestamp() - START for rows in windows.rows().values()] == [0, 0, 0]


def test_windows_that_cannot_change_are_forgotten():
    windows = Windows(10)
    windows.update([node(START), held(START, "queue", "queue q", 3.0)])
    assert len(windows.rows()) == 1
    later = START + 10 + LATE
    windows.update([node(later)])
    assert len(windows.rows()) == 2
    assert {key.start for key, _ in windows.sums()} == {later}


def test_a_window_without_the_nodes_own_sum_waits_for_it():
    windows = Windows(10)
    windows.update([held(START, "queue", "queue q", 3.0)])
    assert windows.rows() == {}


def test_the_table_has_a_file_for_each_hour_and_a_run_goes_on(tmp_path):
    folder = str(tmp_path / "flow")
    table, windows = FlowTable(folder), Windows(10)
    windows.update(table.begin(10))
    for at in range(0, 60, 10):
        windows.update([node(START + at), held(START + at, "queue", "queue q", 3.0)])
        put(table, windows)
    table.keep(10, windows.sums())
    first = read_flow(folder)
    assert sorted(path.name for path in (tmp_path / "flow").glob("flow-*.parquet")) == [
        "flow-2026-11-24T12.parquet",
        "flow-2026-11-24T13.parquet",
    ]
    assert len(first) == 6 * len(STAGES)
    assert {row.since for row in first if row.verdict} == {datetime.fromtimestamp(START, UTC)}
    # The job is killed here. The next run loads the sums from the table and replaces the windows that change.
    table, windows = FlowTable(folder), Windows(10)
    windows.update(table.begin(10))
    windows.remember(table.rows_from(datetime.fromtimestamp(START, UTC)))
    windows.update([node(START + 50, published=50), node(START + 60), held(START + 60, "queue", "queue q", 3.0)])
    put(table, windows)
    again = read_flow(folder)
    assert len(again) == 7 * len(STAGES)
    assert {row.since for row in again if row.verdict} == {datetime.fromtimestamp(START, UTC)}
    changed = [row for row in again if row.start.timestamp() == START + 50]
    assert {row.published for row in changed} == {5.0} and bottleneck(changed).object == "queue q"
    assert read_flow(folder, datetime.fromtimestamp(START + 60, UTC)) == again[-len(STAGES) :]
    # Any other reader of Parquet finds the same rows.
    assert pyarrow.dataset.dataset(folder, exclude_invalid_files=True).count_rows() == len(again)
    with pytest.raises(SparkSourceError, match="'window' of format 'warren' cannot be '60s': give 10s"):
        FlowTable(folder).begin(60)


def test_queues_with_consumers_have_rows_of_their_own(tmp_path):
    folder = str(tmp_path / "flow")
    table, windows = FlowTable(folder), Windows(10)
    table.begin(10)
    windows.update([node(START, seconds=8.0), consumed(START, "q", 160.0, 400, 2), consumed(START, "r", 8.0, 0, 1)])
    put(table, windows)
    windows.update([consumed(START, "r", 16.0, 8, 3)])
    put(table, windows)
    start, end = (datetime.fromtimestamp(START + at, UTC) for at in (0, 10))
    assert read_consumed(folder) == [
        ConsumedRow(start, end, "a@a", "/", "q", 2, 50.0, 20.0),
        ConsumedRow(start, end, "a@a", "/", "r", 3, 1.0, 2.0),
    ]


def test_the_summary_counts_windows():
    windows = Windows(10)
    for at in range(0, 40, 10):
        windows.update([node(START + at), node(START + at, name="b@b")])
        if at:
            windows.update([held(START + at, "queue", "queue q", 3.0, connections=at)])
    windows.update([held(START, "message store", "disk", 1.0, name="b@b")])
    rows = [row for some in windows.rows().values() for row in some]
    found = summary(rows)
    assert (found.windows, found.quiet, found.is_interrupted) == (8, 4, False)
    assert [(each.object, each.node, each.windows, each.connections) for each in found.bottlenecks] == [
        ("queue q", "a@a", 3, 30),
        ("disk", "b@b", 1, 1),
    ]
    first = found.bottlenecks[0]
    assert [moment.timestamp() - START for moment in (first.first, first.last)] == [10, 40]
    assert summary([]) == dataclasses.replace(found, windows=0, quiet=0, bottlenecks=[])


def test_the_report_loads_nothing_and_names_the_bottleneck():
    windows = Windows(10)
    for at in range(0, 4000, 10):
        windows.update([node(START + at, published=10), blocked(START + at, "connection", "connection <x>", 5.0)])
        windows.update([held(START + at, "queue", "queue <q>", 3.0)])
    rows = [row for some in windows.rows().values() for row in some]
    text = flow_page(rows, summary(rows).bottlenecks, 10)
    assert "Most often queue &lt;q&gt; on a@a held connections back: up to 1 connection in 400 of 400 windows" in text
    assert not re.search(r'(src|href)="(https?:)?//', text) and "<script" not in text and len(text) < 2_000_000
    assert text.count("<svg") == 2 and "blocked share" in text
    assert "No sample has come." in flow_page([], [], 10)
    assert "Nothing held connections back." in flow_page(rows[:1], [], 10)
