"""What a test prints: a line for each interval, a summary with a chart, and JSON."""

from __future__ import annotations

from typing import Any

from .latencies import PERCENTILES, Latencies
from .options import Options
from .statistics import LoadCounts, Statistics

#: The share of one core from which the report names the test itself as the limit.
BUSY = 0.9

#: Columns of the longest bar of a chart, and the rows of a chart.
BAR, ROWS = 50, 12

NAMES = ("min", "median", "75th", "95th", "99th", "99.9th")


def interval_line(options: Options, counts: LoadCounts, seconds: float, elapsed: float) -> str:
    """One line in PerfTest's form."""
    parts = [f"id: {options.test_id}", f"time {elapsed:.3f} s"]
    if options.producers:
        parts.append(f"sent: {_rate(counts.sent, seconds)}")
        if options.confirm is not None:
            parts.append(f"confirmed: {_rate(counts.confirmed, seconds)}")
            if counts.nacked:
                parts.append(f"nacked: {_rate(counts.nacked, seconds)}")
        if options.mandatory:
            parts.append(f"returned: {_rate(counts.returned, seconds)}")
    if options.consumers:
        parts.append(f"received: {_rate(counts.received, seconds)}")
    for name, latencies in (("consumer", counts.consumer_latency), ("confirm", counts.confirm_latency)):
        if latencies.count:
            parts.append(_latency_text(name, latencies, PERCENTILES[:-1], NAMES[:-1]))
    return ", ".join(parts)


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.0f} msg/s" if seconds > 0 else f"{count} msg"


def _latency_text(kind: str, latencies: Latencies, shares: tuple[float, ...], names: tuple[str, ...]) -> str:
    values = "/".join(f"{value / 1000:.0f}" for value in latencies.percentiles(shares))
    return f"{'/'.join(names)} {kind} latency: {values} µs"


def summary(options: Options, statistics: Statistics, processor_seconds: float) -> str:
    """The averages, the latencies, a chart of the rates, and whether the test itself was the limit."""
    total, seconds = statistics.total, _seconds(statistics)
    lines = []
    if options.producers:
        lines.append(f"id: {options.test_id}, sending rate avg: {_rate(total.sent, seconds)}")
    if options.consumers:
        lines.append(f"id: {options.test_id}, receiving rate avg: {_rate(total.received, seconds)}")
    for name, latencies in (("consumer", total.consumer_latency), ("confirm", total.confirm_latency)):
        if latencies.count:
            lines.append(f"id: {options.test_id}, {_latency_text(name, latencies, PERCENTILES, NAMES)}")
    received = options.consumers > 0
    rates = [(end, in_rate if received else out_rate) for end, out_rate, in_rate in statistics.rates]
    if len(rates) > 1:
        lines += ["", f"{'received' if received else 'sent'}, messages a second"]
        lines += _bars([(f"{end:8.1f} s", rate, f"{rate:,.0f}") for end, rate in _thinned(rates)])
    latencies = total.consumer_latency if total.consumer_latency.count else total.confirm_latency
    if latencies.count:
        kind = "consumer" if latencies is total.consumer_latency else "confirm"
        lines += ["", f"{kind} latency, share of the messages"]
        lines += _bars(
            [
                (f"< {_duration(high):>8}", count, f"{100 * count / latencies.count:.2f} %")
                for _, high, count in latencies.buckets(ROWS)
            ]
        )
    share = processor_seconds / seconds if seconds else 0.0
    lines += ["", f"perf-test used {100 * share:.0f} % of one core."]
    if share >= BUSY:
        both = " Run producers (-y 0) and consumers (-x 0) as two processes." if options.producers and received else ""
        lines[-1] += f" So it was probably the limit itself, not the broker.{both}"
    return "\n".join(lines)


def _seconds(statistics: Statistics) -> float:
    return statistics.rates[-1][0] if statistics.rates else 0.0


def _thinned(rates: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `ROWS` rates: means of neighbours."""
    step = -(-len(rates) // ROWS)
    groups = [rates[at : at + step] for at in range(0, len(rates), step)]
    return [(group[-1][0], sum(rate for _, rate in group) / len(group)) for group in groups]


def _bars(rows: list[tuple[str, float, str]]) -> list[str]:
    largest = max((value for _, value, _ in rows), default=0) or 1
    return [f"{name} |{'#' * round(value / largest * BAR):<{BAR}} {text}" for name, value, text in rows]


def _duration(nanoseconds: int) -> str:
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.1f} {unit}"
    return f"{nanoseconds} ns"


def as_json(options: Options, statistics: Statistics, processor_seconds: float) -> dict[str, Any]:
    """The result for programs: rates in messages a second, latencies in microseconds, times in seconds."""
    total, seconds = statistics.total, _seconds(statistics)

    def latencies(found: Latencies) -> dict[str, float] | None:
        if not found.count:
            return None
        values = dict(zip(NAMES, (value / 1000 for value in found.percentiles())))
        return {**values, "max": found.largest / 1000, "count": found.count}

    return {
        "id": options.test_id,
        "seconds": seconds,
        "sent": total.sent,
        "confirmed": total.confirmed,
        "nacked": total.nacked,
        "returned": total.returned,
        "received": total.received,
        "sending_rate": total.sent / seconds if seconds else 0.0,
        "receiving_rate": total.received / seconds if seconds else 0.0,
        "consumer_latency": latencies(total.consumer_latency),
        "confirm_latency": latencies(total.confirm_latency),
        "processor_share": processor_seconds / seconds if seconds else 0.0,
        "intervals": [
            {"end": end, "sending_rate": sending, "receiving_rate": receiving}
            for end, sending, receiving in statistics.rates
        ],
    }
