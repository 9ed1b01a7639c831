"""`Cascade`: removing in steps what goes with a queue, exchange or binding has the same result as removing it at once
(AB-77).
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.amqp.fields import Table
from warren.routing.cascade import Cascade
from warren.routing.rows import Binding, ExchangeRow, QueueRow
from warren.routing.vhost_rows import VhostRows

EXCHANGES = [f"x{number}" for number in range(8)]

GRAPHS = st.lists(
    st.tuples(
        st.sampled_from(EXCHANGES),
        st.sampled_from([*(("exchange", name) for name in EXCHANGES), ("queue", "q"), ("queue", "other")]),
        st.sampled_from(["", "k"]),
    ),
    max_size=30,
)


def rows_of(graph, lasting) -> VhostRows:
    """Exchanges, which are auto-delete unless they are `lasting`, two queues, and these bindings."""
    rows = VhostRows("/")
    for name in EXCHANGES:
        rows.put_exchange(ExchangeRow("/", name, "direct", auto_delete=name not in lasting))
    for name in ("q", "other"):
        rows.put_queue(QueueRow("/", name, None, name))
    for source, (kind, name), key in dict.fromkeys(graph):
        rows.add_binding(Binding.of(source, kind, name, key, Table()), False)
    return rows


def contents(rows: VhostRows):
    return set(rows.exchanges), set(rows.queues), set(rows.bindings())


def outgoing(rows: VhostRows, name: str) -> set[Binding]:
    return set(rows.some_bindings(name, 1000))


def in_steps(rows: VhostRows, lost, but: str | None, looked_at: int, step: int) -> None:
    """Remove everything that goes with these bindings, in steps."""
    before = {name: outgoing(rows, name) for name in rows.exchanges}
    found: list[str] = []
    cascade = Cascade(rows, lost, but, found.append)
    while not cascade.run(looked_at):
        pass
    for bindings in cascade.from_far_end(step):
        rows.trim(bindings)
        left = [name for name in found if name in rows.exchanges]
        assert all(outgoing(rows, name) for name in left), "nothing would remove an exchange without bindings"
        partly = [name for name in left if outgoing(rows, name) != before[name]]
        assert len(partly) <= 1, "more than one exchange has lost some of its bindings"


@given(GRAPHS, st.sets(st.sampled_from(EXCHANGES)), st.integers(1, 5), st.integers(1, 5))
def test_the_steps_before_a_queue_goes_change_nothing_in_the_end(graph, lasting, looked_at, step):
    rows, others = rows_of(graph, lasting), rows_of(graph, lasting)
    others.remove_queue("q")
    in_steps(rows, rows.some_bindings(("queue", "q"), 1000), None, looked_at, step)
    rows.remove_queue("q")
    assert contents(rows) == contents(others)


@given(GRAPHS, st.sets(st.sampled_from(EXCHANGES)), st.integers(1, 5), st.integers(1, 5))
def test_the_steps_before_an_exchange_goes_change_nothing_in_the_end(graph, lasting, looked_at, step):
    rows, others = rows_of(graph, lasting), rows_of(graph, lasting)
    others.remove_exchange("x0")
    in_steps(rows, rows.some_bindings(("exchange", "x0"), 1000), "x0", looked_at, step)
    assert "x0" in rows.exchanges
    rows.remove_exchange("x0")
    assert contents(rows) == contents(others)


@given(GRAPHS.filter(len), st.sets(st.sampled_from(EXCHANGES)), st.integers(1, 5), st.integers(1, 5))
def test_the_steps_before_a_binding_goes_change_nothing_in_the_end(graph, lasting, looked_at, step):
    rows, others = rows_of(graph, lasting), rows_of(graph, lasting)
    binding, _ = next(rows.bindings())
    others.remove_binding(binding)
    in_steps(rows, [binding], None, looked_at, step)
    rows.trim([binding])
    assert contents(rows) == contents(others)


def test_a_chain_goes_from_its_far_end():
    graph = [("x0", ("exchange", "x1"), ""), ("x1", ("exchange", "x2"), ""), ("x2", ("queue", "q"), "")]
    rows = rows_of(graph, ())
    cascade = Cascade(rows, rows.some_bindings(("queue", "q"), 1))
    assert cascade.run(3)
    assert [[binding.source for binding in step] for step in cascade.from_far_end(1)] == [["x0"], ["x1"]]
