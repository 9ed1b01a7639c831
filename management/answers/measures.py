"""Measured values of an object as JSON: each counter with its `_details`, and samples if they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...actors.statistics.counts import MESSAGE_COUNTERS
from ..call import Range
from ..copy.history import History, Track

#: The counters that `deliver_get` adds up.
DELIVER_GET = ("deliver", "deliver_no_ack", "get", "get_no_ack")


#: The details of a value that did not change in the last interval. Many answers share this object: do not modify it.
QUIET: dict[str, Any] = {"rate": 0.0}


def details(history: History, track: Track | None, columns: Sequence[int], wanted: Range | None) -> dict[str, Any]:
    """The rate of the sum of these columns, and its samples over the wanted range (CM-249)."""
    if track is None:
        rate = 0.0
    else:
        rate = sum([track.rate(column, history.tick) for column in columns])
    found: dict[str, Any] = {"rate": round(rate, 6)}
    if wanted is None or track is None:
        return found
    ranges = [track.range(column, *wanted, history.time) for column in columns]
    samples = [(point[0][0], sum(value for _, value in point)) for point in zip(*ranges)]
    if samples:
        first, last = samples[-1], samples[0]
        seconds = (last[0] - first[0]) / 1000
        found["avg_rate"] = (last[1] - first[1]) / seconds if seconds else 0.0
        found["avg"] = sum(value for _, value in samples) / len(samples)
        found["samples"] = [{"sample": _number(value), "timestamp": time} for time, value in samples]
    return found


def measured(
    history: History,
    track: Track | None,
    names: Sequence[str],
    values: Sequence[float],
    wanted: Range | None,
    first_column: int = 0,
) -> dict[str, Any]:
    """These values with their details; `first_column` is the column of the first one in the track."""
    found: dict[str, Any] = {}
    if wanted is None and (track is None or track.tick != history.tick):
        # Most objects of a long list have done nothing in the last interval.
        for name, value in zip(names, values):
            found[name] = value
            found[f"{name}_details"] = QUIET
        return found
    for at, (name, value) in enumerate(zip(names, values)):
        found[name] = _number(value)
        found[f"{name}_details"] = details(history, track, (first_column + at,), wanted)
    return found


def message_stats(
    history: History,
    track: Track | None,
    counts: Sequence[float],
    wanted: Range | None,
    first_column: int = 0,
) -> dict[str, Any]:
    """The counters of messages; empty without any activity."""
    if not any(counts):
        return {}
    found = measured(history, track, MESSAGE_COUNTERS, counts, wanted, first_column)
    columns = [first_column + MESSAGE_COUNTERS.index(name) for name in DELIVER_GET]
    found["deliver_get"] = sum(int(found[name]) for name in DELIVER_GET)
    found["deliver_get_details"] = details(history, track, columns, wanted)
    return found


def _number(value: float) -> float:
    return int(value) if value == int(value) else value
