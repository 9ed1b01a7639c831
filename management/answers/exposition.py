"""The text format of Prometheus: families of metrics, their series, and how labels and values are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

Labels = tuple[tuple[str, str], ...]
Samples = Iterable[tuple[Labels, float]]


class Family(NamedTuple):
    """Metrics of one name. `value` reads the metric from an object, such as a queue, or from the node."""

    name: str
    type: str
    help: str
    value: Callable[[Any], float]
    labels: Labels = ()


def counter(name: str, text: str, value: Callable[[Any], float], labels: Labels = ()) -> Family:
    return Family(name, "counter", text, value, labels)


def gauge(name: str, text: str, value: Callable[[Any], float], labels: Labels = ()) -> Family:
    return Family(name, "gauge", text, value, labels)


def histogram(name: str, text: str, row: dict[str, Any]) -> Iterator[str]:
    """The lines of a histogram of a node: for each bound the number of values up to it, then their sum and number."""
    yield head(name, Family(name, "histogram", text, float))
    values = 0
    for bound, count in zip([*row["bounds"], float("inf")], row["counts"]):
        values += count
        yield f'{name}_bucket{{le="{"+Inf" if bound == float("inf") else shown(bound)}"}} {values}'
    yield f"{name}_sum {shown(row['sum'])}"
    yield f"{name}_count {values}"


def label_text(labels: Labels) -> str:
    return "{" + ",".join([f'{key}="{_escaped(text)}"' for key, text in labels]) + "}" if labels else ""


def head(name: str, family: Family) -> str:
    return f"# TYPE {name} {family.type}\n# HELP {name} {family.help}"


def lines(name: str, family: Family, samples: Samples) -> Iterator[str]:
    yield head(name, family)
    for labels, value in samples:
        yield f"{name}{label_text(labels)} {shown(value)}"


def shown(value: float) -> str:
    return repr(value) if isinstance(value, float) and not value.is_integer() else str(int(value))


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text
