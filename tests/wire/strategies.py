"""Hypothesis strategies for field values, tables, properties and methods."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from warren.amqp.fields import Table
from warren.amqp.method import Method
from warren.amqp.methods import METHODS
from warren.amqp.properties import Properties

#: No time limit for an example, because the machine may be loaded.
steady = settings(deadline=None, max_examples=100)

names = st.text(max_size=20).map(lambda s: s.encode("utf-8", "replace").decode("utf-8"))
short_strings = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


def _letter(letter: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return values.map(lambda value: (letter, value))


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


scalars = st.one_of(
    _letter("t", st.booleans()),
    _letter("b", _integers(8, True)),
    _letter("B", _integers(8, False)),
    _letter("s", _integers(16, True)),
    _letter("u", _integers(16, False)),
    _letter("I", _integers(32, True)),
    _letter("i", _integers(32, False)),
    _letter("l", _integers(64, True)),
    _letter("f", st.floats(width=32, allow_nan=False)),
    _letter("d", st.floats(allow_nan=False)),
    _letter("D", st.tuples(_integers(8, False), _integers(32, False))),
    _letter("S", st.binary(max_size=30)),
    _letter("x", st.binary(max_size=30)),
    _letter("T", _integers(64, False)),
    _letter("V", st.none()),
)


def _nested(values: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.one_of(
        _letter("A", st.lists(values, max_size=4).map(tuple)),
        _letter("F", tables_of(values)),
    )


def tables_of(values: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[Table]:
    """Tables with these values, in which names may repeat."""
    return st.lists(st.tuples(names, values).map(lambda entry: (entry[0], *entry[1])), max_size=4).map(Table)


values = st.recursive(scalars, _nested, max_leaves=8)
tables = tables_of(values)

_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "o": _integers(8, False),
    "s": _integers(16, False),
    "l": _integers(32, False),
    "L": _integers(64, False),
    "b": st.booleans(),
    "S": short_strings,
    "X": st.binary(max_size=60),
    "T": tables,
}


def methods_of(method_class: type[Method]) -> st.SearchStrategy[Method]:
    """Methods of one class with any field values."""
    return st.builds(method_class, *[_KINDS[kind] for kind in method_class.SIGNATURE])


methods = st.sampled_from(sorted(METHODS)).flatmap(lambda ids: methods_of(METHODS[ids]))

_PROPERTY_KINDS = {"headers": tables, "delivery_mode": _KINDS["o"], "priority": _KINDS["o"], "timestamp": _KINDS["L"]}
properties = st.builds(
    Properties,
    **{  # type: ignore[arg-type]
        field.name: st.none() | _PROPERTY_KINDS.get(field.name, short_strings) for field in fields(Properties)
    },
)
