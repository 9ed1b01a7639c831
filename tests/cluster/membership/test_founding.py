"""Nodes that start with a list found one cluster, never two, in whatever order they start (CL-38)."""

import random

import pytest

from warren.cluster.membership.founding import AskAgain, Found, Founding, Join, Report, Stop, hash_of
from warren.tests.planting import replaced

from .founding_world import World

LIST = ("a", "b", "c")
HASH = hash_of(LIST)


def fresh(node, promised="", nodes=HASH):
    return Report(node, f"{node}-id", "", nodes, promised)


def member(node, cluster):
    return Report(node, f"{node}-id", cluster, "", "")


def test_a_node_without_a_list_founds_at_once():
    assert Founding("a", "id", ()).decide() == Found()
    assert Founding("a", "id", ("a",)).decide() == Found()


def test_the_lowest_name_founds_when_a_majority_has_promised():
    a = Founding("a", "a-id", LIST)
    assert a.decide() == AskAgain("1 of 3 nodes agree that there is no cluster yet, and 2 are needed; missing b, c")
    a.heard(fresh("b"))
    assert isinstance(a.decide(), AskAgain), "b has not promised yet"
    a.heard(fresh("b", promised="a-id"))
    assert a.decide() == Found()


def test_others_wait_for_the_lowest_name():
    b = Founding("b", "b-id", LIST)
    for node in ("a", "c"):
        b.heard(fresh(node))
    assert b.decide() == AskAgain("a has the lowest name of the list, and founds the cluster; it has not yet")


def test_a_node_joins_whoever_has_a_cluster():
    c = Founding("c", "c-id", LIST)
    c.heard(member("b", "X"))
    assert c.decide() == Join("b", "X")
    a = Founding("a", "a-id", LIST)
    a.heard(fresh("c", promised="a-id"))
    a.heard(member("b", "X"))
    assert a.decide() == Join("b", "X"), "the lowest name joins too"


def test_two_clusters_stop_it_and_are_named():
    c = Founding("c", "c-id", LIST)
    c.heard(member("a", "X"))
    c.heard(member("b", "Y"))
    decision = c.decide()
    assert isinstance(decision, Stop)
    assert "belong to 2 clusters: X (a); Y (b)" in decision.text


def test_lists_that_differ_stop_both():
    a, b = Founding("a", "a-id", LIST), Founding("b", "b-id", ("b", "c"))
    a.heard(b.report())
    b.listed(("a", "b"))
    b.heard(a.report())
    for node in (a, b):
        assert isinstance(node.decide(), Stop)
        assert "the lists of" in node.decide().text


def test_the_order_of_the_names_in_a_list_does_not_matter():
    assert hash_of(("b", "a")) == hash_of(("a", "b", "a"))


def test_another_member_is_asked_to_admit_if_one_does_not_answer():
    """The app of a member may be stopped. A node that asked the same member again and again never joined."""
    c = Founding("c", "c-id", LIST)
    c.heard(member("a", "X"))
    c.heard(member("b", "X"))
    assert c.decide() == Join("a", "X")
    c.not_admitted("a")
    assert c.decide() == Join("b", "X")
    c.not_admitted("b")
    assert c.decide() == Join("a", "X")


def test_a_promise_is_reported_when_it_is_on_the_disk():
    """While the disk refuses to store a node's promise, its reports do not contain it, because a crash could undo it.
    The node tries to store it again at the next question.
    """
    c = Founding("c", "c-id", LIST)
    assert c.asked(fresh("a"))
    assert c.report().promised == ""
    assert c.asked(fresh("a")), "it is still to be written"
    c.stored()
    assert c.report().promised == "a-id"
    assert not c.asked(fresh("a"))


def test_only_the_lowest_name_is_promised_anything_and_once():
    c = Founding("c", "c-id", LIST)
    assert not c.asked(fresh("b"))
    assert not c.asked(Report("a", "a-id", "", hash_of(("a", "c")), ""))
    assert c.asked(fresh("a"))
    assert c.promised == "a-id"
    c.stored()
    assert not c.asked(Report("a", "another", "", HASH, ""))
    assert c.promised == "a-id"


def test_a_founder_whose_directory_was_lost_cannot_found_again():
    a = Founding("a", "new", LIST)
    for node in ("b", "c"):
        a.heard(fresh(node, promised="old"))
    decision = a.decide()
    assert isinstance(decision, Stop)
    assert "b, c let another data directory of a found the cluster" in decision.text
    assert "--found" in decision.text
    assert Founding("a", "new", LIST, is_forced=True).decide() == Found()


def test_a_node_that_is_not_in_its_list_only_joins():
    d = Founding("d", "d-id", LIST)
    for node in LIST:
        d.heard(fresh(node))
    assert isinstance(d.decide(), AskAgain)
    d.heard(member("a", "X"))
    assert d.decide() == Join("a", "X")


def test_what_a_node_had_said_is_forgotten_with_its_link_except_for_its_promise():
    a = Founding("a", "a-id", LIST)
    a.heard(member("c", "X"))
    a.lost("c")
    assert isinstance(a.decide(), AskAgain)
    a.heard(fresh("b", promised="a-id"))
    a.lost("b")
    assert a.decide() == Found()


def searched(seed, steps=160):
    """A world after `steps` random steps."""
    draw = random.Random(seed)
    names = ("a", "b", "c", "d", "e")[: draw.choice((2, 3, 3, 4, 5))]
    lists = dict.fromkeys(names, names)
    is_wiping = draw.random() < 0.7
    if not is_wiping and draw.random() < 0.4:
        lists[draw.choice(names)] = tuple(draw.sample(names, draw.randint(2, len(names))))
    world = World(lists)
    for _ in range(steps):
        play(world, draw, names, is_wiping)
    return world


def play(world, draw, names, is_wiping):
    """Have one thing happen to one of these nodes. Only the founder's disk may be wiped."""
    kind = draw.random()
    if kind < 0.15:
        node = draw.choice(names)
        if node not in world.running:
            world.start(node)
    elif kind < 0.2:
        world.kill(draw.choice(names))
    elif kind < 0.24 and is_wiping:
        world.wipe(names[0])
    elif kind < 0.3 and world.in_flight:
        world.in_flight.pop(draw.randrange(len(world.in_flight)))
    elif kind < 0.45:
        world.ask(draw.choice(names))
    elif kind < 0.8 and world.in_flight:
        world.deliver(draw.randrange(len(world.in_flight)))
    else:
        world.decide(draw.choice(names))


def first_seed_with_two_clusters(count):
    return next((seed for seed in range(count) if len({*searched(seed).members.values()}) > 1), None)


def test_never_two_clusters():
    assert first_seed_with_two_clusters(3_000) is None


@pytest.mark.parametrize(
    ("decision", "wrong"),
    [
        ("founding: whom a node lets found a cluster", lambda may_found, self, report: True),
        ("founding: how many promises are needed", lambda suffices, self, count: True),
    ],
)
def test_the_search_finds_a_planted_bug(decision, wrong):
    with replaced(wrong, decision):
        assert first_seed_with_two_clusters(3_000) is not None


def test_in_every_order_of_starts_all_end_in_one_cluster():
    for seed in range(300):
        draw = random.Random(seed)
        names = ("a", "b", "c", "d", "e")[: draw.choice((2, 3, 5))]
        world = World(dict.fromkeys(names, names))
        for node in draw.sample(names, len(names)):
            world.start(node)
            for _ in range(draw.randrange(6)):
                play(world, draw, names, False)
        for node in names:
            if node not in world.running:
                world.start(node)
        for _ in range(4):
            for node in names:
                world.ask(node)
            while world.in_flight:
                world.deliver(draw.randrange(len(world.in_flight)))
            for node in names:
                world.decide(node)
        assert set(world.members) == set(names), seed
        assert len({*world.members.values()}) == 1, seed
        assert world.stopped == {}
