"""Which nodes should have a replica: a table from RabbitMQ's suite `dynamic_ha`, and laws that hold for any nodes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.metadata.state.placement import Mode, policy_mode, suggested

ALL = Mode("all")
EXACTLY = [Mode("exactly", count) for count in range(8)]


def listed(*nodes: str) -> Mode:
    return Mode("nodes", nodes=nodes)


def test_the_mode_of_a_policy():
    assert policy_mode({"max-length": 5}) is None
    assert policy_mode({"ha-mode": "all"}) == ALL
    assert policy_mode({"ha-mode": "exactly", "ha-params": 2}) == EXACTLY[2]


@pytest.mark.parametrize(
    ("mode", "master", "mirrors", "synced", "running", "chosen"),
    [
        # all: adds the nodes that run
        (ALL, "a", "", "", "abc", "abc"),
        (ALL, "a", "c", "", "abc", "acb"),
        # nodes: adds the listed nodes, except those that do not run
        (listed("a", "b", "c"), "a", "", "", "abcd", "abc"),
        (listed("a", "b", "c", "d"), "a", "bc", "", "abc", "abc"),
        (listed("a", "b", "c"), "a", "bd", "", "abcd", "abc"),
        (listed("c", "b"), "b", "c", "c", "abc", "bc"),
        # nodes: no node on the list runs
        (listed("x", "y"), "a", "b", "b", "abc", "a"),
        # nodes: a master that is not on the list stays while no mirror has everything
        (listed("b", "c"), "a", "bc", "", "abcd", "abc"),
        (listed("b", "c"), "a", "", "", "abcd", "abc"),
        # nodes: the first node of the list that has everything takes over
        (listed("b", "c"), "a", "bc", "c", "abc", "cb"),
        (listed("c", "b"), "a", "bc", "bc", "abc", "cb"),
        # nodes: no listed node has everything, so the oldest other node that has takes over meanwhile
        (listed("c", "d"), "a", "eb", "be", "abcde", "ecd"),
        # exactly: keeps, adds and trims
        (EXACTLY[3], "a", "bc", "b", "abcd", "abc"),
        (EXACTLY[2], "a", "cb", "cb", "abcd", "ac"),
        (EXACTLY[1], "a", "bc", "bc", "abc", "a"),
        (EXACTLY[5], "a", "c", "", "abc", "acb"),
        (EXACTLY[2], "a", "x", "", "ab", "ab"),
    ],
)
def test_choices_of_nodes(mode, master, mirrors, synced, running, chosen):
    found = suggested(mode, "0" * 32, master, list(mirrors), set(synced), list(running))
    if mode.mode == "nodes":
        assert "".join(found) == chosen
    else:
        # The order of nodes that have no replica yet follows from the queue's id, so only the others are compared in
        # order.
        kept = 1 + sum(node in running for node in mirrors)
        assert "".join(found[:kept]) == chosen[:kept] and sorted(found) == sorted(chosen)


NODES = st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True)
MODES = st.one_of(st.just(ALL), st.sampled_from(EXACTLY[1:]), NODES.map(lambda nodes: listed(*nodes)))


@given(MODES, NODES, st.data())
def test_a_choice_has_a_master_and_each_node_once(mode, running, data):
    master = data.draw(st.sampled_from(running))
    mirrors = data.draw(st.lists(st.sampled_from(running).filter(lambda node: node != master), unique=True))
    if len(running) == 1:
        mirrors = []
    synced = set(data.draw(st.lists(st.sampled_from(mirrors)))) if mirrors else set()
    found = suggested(mode, "id", master, mirrors, synced, running)
    assert len(set(found)) == len(found) and set(found) <= set(running)
    assert found[0] == master or (found[0] in synced and mode.mode == "nodes")
    again = suggested(mode, "id", master, mirrors, synced, running[::-1])
    assert again == found, "the order in which a node lists the others decides nothing"
    if mode.mode == "exactly":
        assert len(found) == min(mode.replicas, len(running))


def test_queues_are_spread_over_the_nodes():
    mirrors = Counter(suggested(EXACTLY[2], f"{number:032x}", "a", (), (), "abcde")[1] for number in range(400))
    assert sorted(mirrors) == list("bcde") and min(mirrors.values()) > 60
