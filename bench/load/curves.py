"""The curves of a backlog that fills and drains: rows of CSV, and a plot of rate and memory over messages.

    python -m warren.bench.load.curves lazy.csv default.csv rabbitmq.csv docs/backlog.svg      one plot of several files

The plot needs matplotlib: pip install 'warren-mq[bench]', or from a checkout pip install -e '.[bench]'.
"""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path

PHASES = {"fill": "filling: messages in", "drain": "draining: messages out"}
INSTALL_HINT = "a plot needs matplotlib: pip install 'warren-mq[bench]', or from a checkout pip install -e '.[bench]'"


@dataclass(frozen=True, slots=True)
class CurveSample:
    """One sample of the measurement named `run`.

    seconds                       since the first progress report of the phase
    messages                      published so far, or consumed so far in the phase `drain`
    rate                          messages a second since the sample before
    resident, anonymous, disk     bytes
    """

    run: str
    phase: str
    seconds: float
    messages: int
    rate: float
    resident: int
    anonymous: int
    disk: int


def write_csv(path: Path, rows: Iterable[CurveSample]) -> None:
    names = [field.name for field in fields(CurveSample)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in rows:
            writer.writerow(
                [
                    f"{row.seconds:.2f}"
                    if name == "seconds"
                    else f"{row.rate:.0f}"
                    if name == "rate"
                    else getattr(row, name)
                    for name in names
                ]
            )


def read_csv(path: Path) -> Iterator[CurveSample]:
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            yield CurveSample(
                line["run"],
                line["phase"],
                float(line["seconds"]),
                int(line["messages"]),
                float(line["rate"]),
                int(line["resident"]),
                int(line["anonymous"]),
                int(line["disk"]),
            )


def can_plot() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def plot(path: Path, rows: Iterable[CurveSample], rate_bar: float) -> None:
    """Plot rate above memory, and filling beside draining. A dotted line marks `rate_bar`, in messages a second.

    The suffix of the file selects its format.
    """
    import matplotlib

    matplotlib.use("Agg")
    # Without a date and random ids, equal figures give equal files.
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "warren",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 5.2), sharex="col", sharey="row", layout="constrained")
    ordered = sorted(rows, key=lambda row: (row.run, row.phase, row.seconds))
    colours: dict[str, str] = {}
    for (run, phase), found in groupby(ordered, key=lambda row: (row.run, row.phase)):
        points = list(found)
        colour = colours.setdefault(run, f"C{len(colours)}")
        column = list(PHASES).index(phase)
        millions = [row.messages / 1e6 for row in points]
        axes[0][column].plot(millions, [row.rate / 1e3 for row in points], label=run, color=colour, linewidth=1)
        axes[1][column].plot(millions, [row.resident / 1e6 for row in points], label=run, color=colour, linewidth=1)
    for column, title in enumerate(PHASES.values()):
        axes[0][column].axhline(rate_bar / 1e3, color="grey", linestyle=":", linewidth=1)
        axes[0][column].set_title(title)
        axes[1][column].set_xlabel("messages, millions")
        # A lazy queue uses megabytes, another queue gigabytes.
        axes[1][column].set_yscale("log")
        axes[1][column].yaxis.set_major_formatter(ticker.ScalarFormatter())
        axes[1][column].yaxis.set_minor_formatter(ticker.NullFormatter())
        for row in axes:
            row[column].grid(alpha=0.25)
    axes[0][0].set_ylabel("thousand messages/s")
    axes[0][0].set_ylim(bottom=0)
    axes[1][0].set_ylabel("resident memory, MB")
    axes[1][0].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    pyplot.close(figure)


def main() -> int:
    *sources, target = [Path(name) for name in sys.argv[1:]] or [Path()]
    if not sources or "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    if not can_plot():
        print(INSTALL_HINT, file=sys.stderr)
        return 1
    plot(target, [row for source in sources for row in read_csv(source)], 100_000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
