"""`HeadersIndex` finds the bindings that a comparison with each of them finds (AB-71)."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warren.amqp.fields import Table, table_from
from warren.routing.exchanges.headers_index import HeadersIndex

MODES = [b"all", b"any", b"all-with-x", b"any-with-x"]

scalars = st.one_of(
    st.sampled_from([("I", 0), ("I", 1), ("l", 1), ("d", 1.0), ("d", float("nan")), ("t", True), ("t", False)]),
    st.sampled_from([("S", b"v"), ("x", b"v"), ("S", b""), ("V", None), ("D", (0, 1)), ("T", 1)]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda items: ("A", tuple(items))),
        st.lists(st.tuples(st.sampled_from("ab"), inner), max_size=2).map(
            lambda entries: ("F", Table((name, letter, value) for name, (letter, value) in entries))
        ),
    ),
    max_leaves=4,
)
entries = st.tuples(st.sampled_from(["a", "b", "c", "x-a"]), values).map(lambda pair: (pair[0], *pair[1]))
headers = st.lists(entries, max_size=5).map(Table)
x_match = st.one_of(
    st.just(()),
    st.sampled_from([(("x-match", "S", mode),) for mode in [*MODES, b"some"]]),
    st.just((("x-match", "I", 7),)),
)
arguments = st.builds(lambda match, rest: Table((*match, *rest)), x_match, headers)


def matches(arguments: Table, message: Table | None) -> bool:
    """Whether a binding with these arguments matches, by comparing every argument."""
    found = arguments.get("x-match")
    mode = found[1] if found is not None and found[1] in MODES else b"all"
    required = [
        entry
        for entry in arguments
        if entry[0] != "x-match" and (mode.endswith(b"with-x") or not entry[0].startswith("x-"))
    ]
    found_values: dict[str, Any] = {}
    for name, _, value in message or ():
        found_values.setdefault(name, value)
    results = [is_met(found_values, entry) for entry in required]
    return any(results) if mode.startswith(b"any") else all(results)


def is_met(found: dict[str, Any], entry: tuple[str, str, Any]) -> bool:
    name, letter, required = entry
    if name not in found or letter == "V":
        return name in found
    return bool(found[name] == required) and isinstance(found[name], bool) == isinstance(required, bool)


@given(
    st.lists(st.tuples(arguments, st.sampled_from("pqrs")), max_size=8),
    st.lists(st.integers(0, 7), max_size=6),
    st.lists(st.one_of(st.none(), headers), min_size=1, max_size=4),
)
def test_the_index_finds_what_comparing_with_each_binding_finds(bindings, removed, messages):
    """The index finds each matching destination once, also after bindings were removed."""
    index = HeadersIndex()
    for wanted, name in bindings:
        index.add(wanted, ("queue", name))
    left = list(bindings)
    for at in removed:
        if at < len(left):
            wanted, name = left.pop(at)
            index.remove(wanted, ("queue", name))
    for message in messages:
        found = index.find(message)
        assert len(found) == len(set(found))
        assert {name for _, name in found} == {name for wanted, name in left if matches(wanted, message)}


@given(arguments, st.lists(headers, max_size=2))
def test_an_index_without_bindings_is_empty(wanted, messages):
    index = HeadersIndex()
    index.add(wanted, ("queue", "q"))
    index.remove(wanted, ("queue", "q"))
    assert [index.find(message) for message in messages] == [()] * len(messages)


def test_the_cost_is_that_of_the_matches():
    """A lookup among five thousand bindings costs no more than among fifty, if as many match."""

    def index_of(count: int) -> HeadersIndex:
        index = HeadersIndex()
        for number in range(count):
            mode = "any" if number % 2 else "all"
            wanted = {"x-match": mode, "format": "pdf", "type": f"t{number}"} if mode == "all" else {"id": number}
            index.add(table_from({**wanted, "x-match": mode}), ("queue", f"q{number}"))
        return index

    def seconds(index: HeadersIndex) -> float:
        message = table_from({"format": "pdf", "type": "t2", "id": 3, "other": None})
        assert set(index.find(message)) == {("queue", "q2"), ("queue", "q3")}
        times = []
        for _ in range(50):
            start = time.perf_counter()
            index.find(message)
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(index_of(5_000)) < 5 * seconds(index_of(50))


def test_bindings_that_share_a_name_are_not_all_looked_at():
    """Bindings that require different sets of names, all with the name `kind`, are not all compared."""
    index = HeadersIndex()
    for number in range(5_000):
        index.add(table_from({"kind": "a", f"n{number}": 1}), ("queue", f"q{number}"))
    message = table_from({"kind": "a", "n7": 1})
    times = []
    for _ in range(20):
        start = time.perf_counter()
        assert index.find(message) == (("queue", "q7"),)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.0005


def test_deeply_nested_values_are_compared():
    """Nested values are compared without recursion, which would fail at a thousand levels."""

    def nested(levels: int) -> Table:
        value: tuple[str, Any] = ("I", 1)
        for _ in range(levels):
            value = ("A", (value,))
        return Table((("deep", *value),))

    index = HeadersIndex()
    index.add(nested(3_000), ("queue", "q"))
    assert index.find(nested(3_000)) == (("queue", "q"),)
    assert index.find(nested(2_999)) == ()
