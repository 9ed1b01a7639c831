"""What the reports of jobs are made of: a page of HTML that loads nothing from elsewhere, plots, and tables."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

#: Rows of a table that are shown.
ROWS = 20
#: Points of a line in a plot at most.
POINTS = 300
#: Characters of a name in a plot at most; longer ones would leave no room for the plot itself.
LABEL = 48

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


def page(title: str, heading: str, sections: Iterable[tuple[str, str, str]]) -> str:
    """The whole page. A section has a title, a sentence with what was found, and the HTML below that sentence."""
    body = "".join(
        f"<section><h2>{escape(name)}</h2><p>{escape(finding)}</p>{inside}</section>"
        for name, finding, inside in sections
    )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(heading)}</h1>"
        f"<p>Made {made}. All times are UTC.</p>{body}</body></html>\n"
    )


def new_figure(height: float = 3.0) -> tuple[Any, Any]:
    """A figure with one plot, and the plot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def label(name: str) -> str:
    """A name as a text in a plot. Clients choose names, and matplotlib gives some characters a meaning of its own."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in name)
    if len(shown) > LABEL:
        shown = shown[: LABEL - 1] + "…"
    # Matplotlib takes text between two dollar signs for a formula, and no legend has a line whose name begins with an
    # underscore.
    return (" " if shown.startswith("_") else "") + shown.replace("$", r"\$")


def line(
    values: Mapping[datetime, float], begin: datetime, end: datetime, width: int, between: float
) -> tuple[list[datetime], list[float]]:
    """The points of a line in a plot, evenly from `begin` to `end`, both included: their times and their values.

    values     by the beginning of a bucket of time
    width      seconds of a bucket; with too many buckets, a point shows the greatest value of several
    between    the value of buckets that are not there: 0 for a rate, NaN where the line is to be interrupted
    """
    spans = int((end - begin).total_seconds()) // width + 1
    each = width * math.ceil(spans / POINTS)
    points = [between] * math.ceil(spans * width / each)
    for moment, value in values.items():
        at = int((moment - begin).total_seconds()) // each
        points[at] = value if math.isnan(points[at]) else max(points[at], value)
    return [begin + timedelta(seconds=each * at) for at in range(len(points))], points


def svg(figure: Any) -> str:
    """The figure as an element of HTML."""
    from matplotlib import rc_context

    out = io.StringIO()
    # Texts stay texts, so that the browser draws names in every script. As outlines they would have only the characters
    # of one font.
    with rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    # Keep only the <svg> element, because the XML head before it refers to a document type on a server.
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The first rows as a table of HTML; an empty text if there are no rows."""
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
