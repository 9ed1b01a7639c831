"""The report of the job `flow`: stages as rows, time as columns, the blocked share as colour, and the bottlenecks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from .flow_windows import STAGES, Bottleneck, FlowRow, counted
from .report_parts import label, line, new_figure, page, svg, table

#: Columns of a picture at most: with more windows, each column shows the worst of several.
COLUMNS = 240
#: Nodes that have a picture.
NODES = 8


def flow_page(rows: Sequence[FlowRow], bottlenecks: Sequence[Bottleneck], width: int) -> str:
    """The whole page; `bottlenecks` are those of a `FlowResult`, `width` is that of a window in seconds."""
    nodes = sorted({row.node for row in rows})
    sections = [
        ("Bottlenecks", _finding(rows, bottlenecks), table([dataclasses.asdict(each) for each in bottlenecks])),
        *(
            (f"Stages of {node}", _how_to_read(), flow_picture([row for row in rows if row.node == node], width))
            for node in nodes[:NODES]
        ),
        ("Messages", _rates_finding(rows), _rates_plot(rows, nodes, width)),
    ]
    if len(nodes) > NODES:
        sections.insert(NODES + 1, ("Other nodes", f"{len(nodes) - NODES} more nodes are in the table alone.", ""))
    windows = len({(row.start, row.node) for row in rows})
    return page("Flow", f"{windows:,} windows of {width} s on {len(nodes):,} nodes", sections)


def _finding(rows: Sequence[FlowRow], bottlenecks: Sequence[Bottleneck]) -> str:
    if not rows:
        return "No sample has come."
    if not bottlenecks:
        return "Nothing held connections back."
    first = bottlenecks[0]
    windows = len({(row.start, row.node) for row in rows})
    return (
        f"Most often {first.place} held connections back: up to {counted(first.connections)} in "
        f"{first.windows:,} of {windows:,} windows. {first.advice}"
    )


def _how_to_read() -> str:
    return (
        "The darker a cell is, the longer the stage was blocked by the one below it. A dot marks the bottleneck, which "
        "nobody blocks."
    )


def flow_picture(rows: Sequence[FlowRow], width: int) -> str:
    """One node's picture as SVG."""
    import numpy
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    if not rows:
        return ""
    begin, end = min(row.start for row in rows), max(row.end for row in rows)
    each = width * max(1, math.ceil((end - begin).total_seconds() / width / COLUMNS))
    cells = numpy.full((len(STAGES), math.ceil((end - begin).total_seconds() / each)), numpy.nan)
    dots = set()
    for row in rows:
        place = STAGES.index(row.stage), int((row.start - begin).total_seconds() // each)
        cells[place] = numpy.nanmax([cells[place], row.blocked_share])
        if row.verdict is not None:
            dots.add(place)
    figure, axes = new_figure(3.0)
    axes.grid(False)
    right = begin + timedelta(seconds=each * cells.shape[1])
    extent = (date2num(begin), date2num(right), len(STAGES) - 0.5, -0.5)
    image = axes.imshow(cells, aspect="auto", extent=extent, vmin=0, vmax=1, cmap="Oranges", interpolation="nearest")
    middles = [begin + timedelta(seconds=each * (column + 0.5)) for _, column in sorted(dots)]
    axes.scatter(middles, [stage for stage, _ in sorted(dots)], s=14, color="black", zorder=3)
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_yticks(range(len(STAGES)), STAGES)
    axes.set(xlabel="time (UTC)", xlim=extent[:2])
    figure.colorbar(image, ax=axes, label="blocked share", format="{x:.0%}")
    return svg(figure)


def _rates_finding(rows: Sequence[FlowRow]) -> str:
    if not rows:
        return "There are no messages."
    busiest = max(rows, key=lambda row: row.published)
    return (
        f"The busiest window began at {busiest.start:%Y-%m-%d %H:%M:%S} on {busiest.node}: {busiest.published:,.0f} "
        f"messages a second published and {busiest.delivered:,.0f} delivered."
    )


def _rates_plot(rows: Sequence[FlowRow], nodes: Sequence[str], width: int) -> str:
    if not rows:
        return ""
    figure, axes = new_figure()
    begin, end = min(row.start for row in rows), max(row.start for row in rows)
    for node in nodes[:NODES]:
        windows: dict[datetime, FlowRow] = {row.start: row for row in rows if row.node == node}
        for name in ("published", "delivered"):
            text = f"{name} on {node}" if len(nodes) > 1 else name
            # A window without a sample interrupts the line: nobody knows how many messages it had.
            values = {at: getattr(row, name) for at, row in windows.items()}
            axes.plot(*line(values, begin, end, width, math.nan), label=label(text), marker=".")
    axes.set(xlabel="time (UTC)", ylabel="messages/s", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    return svg(figure)
