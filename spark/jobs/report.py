"""The report of an analysis: one HTML file with plots, which loads nothing from elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analyse import Analysis

#: Lines in a plot, and rows of a table that are shown.
LINES, ROWS = 8, 20

_STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --back: #ffffff; --faint: #888888; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --back: #161616; }
  svg { filter: invert(1) hue-rotate(180deg); }
}
@media print { :root { --text: #000000; --back: #ffffff; } svg { filter: none; } section { break-inside: avoid; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 60rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
table { border-collapse: collapse; font-size: 13px; margin-top: 1rem; display: block; overflow-x: auto; }
th, td { padding: 0.2rem 0.7rem; text-align: right; border-bottom: 1px solid var(--faint); }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
"""


def report_page(analysis: Analysis) -> str:
    """The whole page."""
    tables = analysis.tables
    sections = [
        (
            "Rates",
            _rates_finding(tables["rates"], analysis.bucket),
            _rates_plot(tables["rates"], analysis.bucket),
            "rates",
        ),
        ("Sizes", _sizes_finding(tables["sizes"]), _sizes_plot(tables["sizes"]), "sizes"),
        ("Latency", _latency_finding(tables["latency"]), _latency_plot(tables["latency"]), "latency"),
        ("Routing keys", _keys_finding(tables["keys"]), _keys_plot(tables["keys"]), "keys"),
        ("Dead letters", _dead_finding(tables["dead_letters"]), "", "dead_letters"),
        ("Redelivery", _redelivery_finding(tables["redelivery"]), "", "redelivery"),
        ("Holes", _holes_finding(tables["holes"]), "", "holes"),
    ]
    body = "".join(
        f"<section><h2>{title}</h2><p>{escape(finding)}</p>{plot}{_table(tables[name])}</section>"
        for title, finding, plot, name in sections
    )
    queues = len({row["queue"] for row in tables["sizes"]})
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Queues</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{analysis.messages:,} messages of {queues:,} queues</h1>"
        f"<p>Made {made}. All times are UTC.</p>{body}</body></html>\n"
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


def _figure(height: float = 3.0) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    # Keep only the <svg> element, because the XML head before it refers to a document type on a server.
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)


def _seconds(bucket: str) -> int:
    return int(bucket[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[bucket[-1]]


def _largest(rows: Sequence[dict[str, Any]], weight: str) -> list[str]:
    """The queues with the most of something."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["queue"]] = sums.get(row["queue"], 0) + (row[weight] or 0)
    return sorted(sums, key=lambda queue: -sums[queue])[:LINES]


def _rates_plot(rows: Sequence[dict[str, Any]], bucket: str) -> str:
    if not rows:
        return ""
    figure, axes = _figure()
    for queue in _largest(rows, "messages"):
        points = [row for row in rows if row["queue"] == queue]
        values = [row["messages"] / _seconds(bucket) for row in points]
        axes.plot([row["bucket"] for row in points], values, label=queue, marker=".")
    axes.set(xlabel="time (UTC)", ylabel="messages/s", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def _sizes_plot(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    chosen = sorted(rows, key=lambda row: -row["messages"])[:LINES]
    figure, axes = _figure(1 + 0.4 * len(chosen))
    for name, colour in (("most", "0.85"), ("p99", "0.65"), ("p90", "0.45"), ("p50", "0.2")):
        axes.barh([row["queue"] for row in chosen], [max(1, row[name]) for row in chosen], color=colour, label=name)
    axes.set(xscale="log", xlabel="bytes of a body")
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def _latency_plot(rows: Sequence[dict[str, Any]]) -> str:
    waits = [row for row in rows if row["in_queue_p99"] is not None]
    if not waits:
        return ""
    figure, axes = _figure()
    for queue in _largest(waits, "in_queue_p99"):
        points = [row for row in waits if row["queue"] == queue]
        axes.plot([row["bucket"] for row in points], [row["in_queue_p99"] for row in points], label=queue, marker=".")
    axes.set(xlabel="time of arrival (UTC)", ylabel="seconds in the queue, p99", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def _keys_plot(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    chosen = rows[:LINES][::-1]
    figure, axes = _figure(1 + 0.3 * len(chosen))
    axes.barh(
        [f"{row['exchange'] or '(default)'}: {row['routing_key']}" for row in chosen], [r["messages"] for r in chosen]
    )
    axes.set(xlabel="messages")
    return _svg(figure)


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in rows[0])
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(name, value))}</td>" for name, value in row.items()) + "</tr>"
        for row in rows[:ROWS]
    )
    more = f"<p>and {len(rows) - ROWS:,} more rows</p>" if len(rows) > ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}"


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name.startswith("share"):
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)
