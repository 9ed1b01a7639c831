"""Dead letters among four queues, in chains and cycles, while the node is killed and loses power (AB-145 to AB-153)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from warren.simulation.service import Sim

from .dead_letter_graph import Graph, GraphQueue, run_graph
from .mutants import more_mutants  # noqa: F401  # its bugs are added to MUTANTS
from .mutants.one_node import MUTANTS

NAMES = ("a", "b", "c", "d")
drawing = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


@st.composite
def graph_queues(draw: st.DrawFn, name: str) -> GraphQueue:
    """A queue whose dead letters go to any queue. It never has both a consumer and a TTL, so that no message expires
    while a consumer has it.
    """
    cause = draw(st.sampled_from(["none", "ttl", "reject", "length", "ttl and length", "reject and length"]))
    return GraphQueue(
        name,
        draw(st.sampled_from([*NAMES, *NAMES, None])),
        draw(st.sampled_from([5, 40, 300])) if "ttl" in cause else None,
        draw(st.integers(1, 4)) if "length" in cause else None,
        draw(st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"])),
        "reject" in cause,
    )


graphs = st.tuples(*map(graph_queues, NAMES)).map(lambda queues: Graph({queue.name: queue for queue in queues}))
step = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(NAMES), st.integers(1, 8), st.sampled_from([20, 4200])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.002, 0.01, 0.05, 0.4])),
    st.sampled_from([("kill",), ("lose power",)]),
)


def play(graph: Graph, steps: list[tuple[Any, ...]], seed: int) -> None:
    sim = Sim(seed)
    try:
        run_graph(sim, graph, steps).check()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{sim.story()}") from error
    finally:
        sim.close()


@settings(drawing, max_examples=40)
@given(graphs, st.lists(step, min_size=2, max_size=10), st.integers(0, 1 << 16))
def test_every_confirmed_message_is_at_one_place(graph: Graph, steps: list[tuple[Any, ...]], seed: int) -> None:
    """Every confirmed message is at one place, also dead letters of refused publishes (`reject-publish-dlx`) and
    messages in a cycle (AB-153).
    """
    play(graph, steps, seed)


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("dead_letter_lost", "is nowhere"),
        ("dead_letters_reversed", "have come to"),
        ("dead_letter_taken_without_record", "is at"),
    ],
)
def test_a_planted_bug_is_found(name: str, finding: str) -> None:
    @settings(drawing, max_examples=600, phases=[Phase.generate])
    @given(graphs, st.lists(step, min_size=2, max_size=10), st.integers(0, 1 << 16))
    def look(graph: Graph, steps: list[tuple[Any, ...]], seed: int) -> None:
        play(graph, steps, seed)

    with MUTANTS[name](), pytest.raises(AssertionError, match=finding):
        look()
