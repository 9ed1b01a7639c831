"""The report of an analysis: one HTML file with plots, which loads nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .report_parts import label, line, new_figure, page, svg, table

#: Lines in a plot.
LINES = 8


def report_page(tables: dict[str, list[dict[str, Any]]], messages: int, bucket: str) -> str:
    """The whole page, of what `Analysis` has."""
    sections = [
        (
            "Rates",
            _rates_finding(tables["rates"], bucket),
            _rates_plot(tables["rates"], bucket),
            "rates",
        ),
        ("Sizes", _sizes_finding(tables["sizes"]), _sizes_plot(tables["sizes"]), "sizes"),
        ("Latency", _latency_finding(tables["latency"]), _latency_plot(tables["latency"], bucket), "latency"),
        ("Routing keys", _keys_finding(tables["keys"]), _keys_plot(tables["keys"]), "keys"),
        ("Dead letters", _dead_finding(tables["dead_letters"]), "", "dead_letters"),
        ("Redelivery", _redelivery_finding(tables["redelivery"]), "", "redelivery"),
        ("Holes", _holes_finding(tables["holes"]), "", "holes"),
    ]
    queues = len({row["queue"] for row in tables["sizes"]})
    return page(
        "Queues",
        f"{messages:,} messages of {queues:,} queues",
        [(title, finding, plot + table(tables[name])) for title, finding, plot, name in sections],
    )


# --- findings: a sentence above each plot -----------------------------------------------------------------------------


def _rates_finding(rows: Sequence[dict[str, Any]], bucket: str) -> str:
    if not rows:
        return "It is not known when these messages came: the broker recorded no times, and the publishers sent none."
    peak = max(rows, key=lambda row: row["peak_second"])
    return (
        f"The busiest second had {peak['peak_second']:,} messages, in queue {peak['queue']} in the {bucket} from "
        f"{peak['bucket']:%Y-%m-%d %H:%M:%S}."
    )


def _sizes_finding(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "There are no messages."
    largest = max(rows, key=lambda row: row["most"])
    embedded = sum(row["share_embedded"] * row["messages"] for row in rows) / sum(row["messages"] for row in rows)
    return (
        f"The largest body has {largest['most']:,} bytes, in queue {largest['queue']}. {embedded:.1%} of all bodies "
        "are below 4,096 bytes, so they are in the index of their queue and not in the message store."
    )


def _latency_finding(rows: Sequence[dict[str, Any]]) -> str:
    waits = [row for row in rows if row["in_queue_p99"] is not None]
    if not waits:
        return (
            "It is not known how long messages waited: the broker recorded no times of arrival, or this is no archive."
        )
    worst = max(waits, key=lambda row: row["in_queue_p99"])
    return (
        f"Messages waited longest in queue {worst['queue']} from {worst['bucket']:%Y-%m-%d %H:%M:%S}: 1% of them more "
        f"than {worst['in_queue_p99']:,.1f} s."
    )


def _keys_finding(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "There are no messages."
    first = rows[0]
    return (
        f"The key '{first['routing_key']}' of exchange '{first['exchange']}' has {first['share']:.1%} of all messages."
    )


def _dead_finding(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "No message is a dead letter."
    most = max(rows, key=lambda row: row["messages"])
    return (
        f"{most['messages']:,} messages in queue {most['queue']} are dead letters of queue {most['source']} for the "
        f"reason {most['reason']}."
    )


def _redelivery_finding(rows: Sequence[dict[str, Any]]) -> str:
    worst = max(rows, key=lambda row: row["share_redelivered"], default=None)
    if worst is None or not worst["share_redelivered"]:
        return "No message was delivered before."
    return f"{worst['share_redelivered']:.1%} of the messages of queue {worst['queue']} may have been delivered before."


def _holes_finding(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "Only an archive records which numbers have no message."
    gone = sum(row["gone"] for row in rows)
    broken = sum(bool(row["problems"]) for row in rows)
    text = f"{gone:,} messages had left their queue before they were archived." if gone else "No message is missing."
    return text + (f" The archive of {broken} queues is damaged." if broken else "")


# --- plots ------------------------------------------------------------------------------------------------------------


def _seconds(bucket: str) -> int:
    return int(bucket[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[bucket[-1]]


def _largest(rows: Sequence[dict[str, Any]], weight: str) -> list[str]:
    """The names of the queues with the largest sums of the column `weight`, at most `LINES`, the largest first."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["queue"]] = sums.get(row["queue"], 0) + (row[weight] or 0)
    return sorted(sums, key=lambda queue: -sums[queue])[:LINES]


def _rates_plot(rows: Sequence[dict[str, Any]], bucket: str) -> str:
    return _lines_plot(rows, "messages", bucket, 1 / _seconds(bucket), 0.0, "time (UTC)", "messages/s")


def _lines_plot(
    rows: Sequence[dict[str, Any]],
    column: str,
    bucket: str,
    factor: float,
    between: float,
    xlabel: str,
    ylabel: str,
) -> str:
    """A line for each of the queues with the most in this column, whose values are multiplied by `factor`."""
    if not rows:
        return ""
    figure, axes = new_figure()
    begin, end = min(row["bucket"] for row in rows), max(row["bucket"] for row in rows)
    for queue in _largest(rows, column):
        values = {row["bucket"]: row[column] * factor for row in rows if row["queue"] == queue}
        axes.plot(*line(values, begin, end, _seconds(bucket), between), label=label(queue), marker=".")
    axes.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    return svg(figure)


def _sizes_plot(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    chosen = sorted(rows, key=lambda row: -row["messages"])[:LINES]
    figure, axes = new_figure(1 + 0.4 * len(chosen))
    for name, colour in (("most", "0.85"), ("p99", "0.65"), ("p90", "0.45"), ("p50", "0.2")):
        axes.barh(range(len(chosen)), [max(1, row[name]) for row in chosen], color=colour, label=name)
    # By their places, because two long names may be shortened to the same text.
    axes.set_yticks(range(len(chosen)), [label(row["queue"]) for row in chosen])
    axes.set(xscale="log", xlabel="bytes of a body")
    axes.legend(frameon=False, fontsize=8)
    return svg(figure)


def _latency_plot(rows: Sequence[dict[str, Any]], bucket: str) -> str:
    waits = [row for row in rows if row["in_queue_p99"] is not None]
    xlabel, ylabel = "time of arrival (UTC)", "seconds in the queue, p99"
    return _lines_plot(waits, "in_queue_p99", bucket, 1.0, math.nan, xlabel, ylabel)


def _keys_plot(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    chosen = rows[:LINES][::-1]
    figure, axes = new_figure(1 + 0.3 * len(chosen))
    axes.barh(range(len(chosen)), [row["messages"] for row in chosen])
    names = [label(f"{row['exchange'] or '(default)'}: {row['routing_key']}") for row in chosen]
    axes.set_yticks(range(len(chosen)), names)
    axes.set(xlabel="messages")
    return svg(figure)
