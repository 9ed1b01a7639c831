"""Members of a ring under random plans: they speak, die, join, lose connections and apply views late."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .world import ONLY, World

#: Letters for the members, of which later ones may join.
NAMES = "abcdefghi"


def played(rng, steps, everybody=False, is_storing=True):
    """Take a ring of random size through random steps, repair everything, and return it at rest."""
    size = rng.randint(1, 5)
    world = World(NAMES[:size], everybody)
    for _ in range(steps):
        if not world.living():
            return world
        _STEPS[rng.choice(_CHOICES)](world, rng)
    healed(world, rng)
    return world


def healed(world, rng):
    """Repair everything, and let the members come to rest, where the laws of rest must hold."""
    for _ in range(40):
        for pair in [*world.cut, *world.unnoticed]:
            world.mend(*pair)
        gone = [name for name in [*world.view.members, *world.view.learners] if not world.nodes[name].is_alive]
        if set(world.view.members) <= set(gone):
            return  # all members have died, and with them everything that was complete
        if gone:
            world.remove(*gone)
        for node in world.living():
            while world.apply(node):
                pass
        world.run()
        _store(world, rng, everything=True)
        world.run()
        if all(world.nodes[name].is_alive for name in (*world.view.members, *world.view.learners)) and not any(
            world.wires.values()
        ):
            break
    world.check_rest()


def _speak(world, rng):
    node = rng.choice(world.in_ring())
    streams = [stream for stream in world.view.speakers if node.is_alive and node.ring.speaks(stream)]
    if streams and node.ring.has_part:
        world.speak(node, rng.choice(streams), rng.randint(1, 3))


def _arrive(world, rng):
    for _ in range(rng.randint(1, 6)):
        pairs = sorted(pair for pair, wire in world.wires.items() if wire)
        if pairs:
            world.arrive(rng.choice(pairs))


def _store(world, rng, everything=False):
    for node in world.living() if everything else [rng.choice(list(world.nodes.values()))]:
        if node.is_alive and node.ring.has_part:
            for stream in list(node.known):
                known = node.known[stream]
                world.store(node, stream, None if everything else rng.choice([*known, 0]))


def _kill(world, rng):
    alive = [node for node in world.in_ring() if node.is_alive]
    if len(alive) > 1 and rng.random() < 0.5:
        world.kill(rng.choice(alive))


def _evict(world, rng):
    """Remove a dead member from the view, or, rarely, one that lives."""
    dead = [name for name in world.view.members if not world.nodes[name].is_alive]
    rest = [name for name in world.view.members if name not in dead]
    if dead and rest:
        world.remove(*dead)
    elif len(rest) > 1 and rng.random() < 0.2:
        world.remove(rng.choice(rest))


def _break(world, rng):
    names = list(world.nodes)
    if len(names) > 1:
        world.break_off(*rng.sample(names, 2))


def _mend(world, rng):
    broken = sorted(map(sorted, world.cut | world.unnoticed))
    if broken:
        pair = rng.choice(broken)
        if frozenset(pair) in world.cut and rng.random() < 0.5:
            world.connect(*pair)
        else:
            world.mend(*pair)


def _apply(world, rng):
    node = rng.choice(world.living())
    # A node that gets a snapshot of the log skips views.
    world.apply(node, len(world.log) - 1 if rng.random() < 0.2 else None)


def _transfer(world, rng):
    """Make another member the speaker, although none has died. The proposer may or may not wait for silence before."""
    if not world.everybody and len(world.view.members) > 1 and rng.random() < 0.5:
        world.transfer(rng.choice(world.view.members[1:]))


def _learn(world, rng):
    if len(world.view.members) < 6 and len(world.view.learners) < 2:
        world.add_learner(rng.choice(NAMES))


def _count_or_admit(world, rng):
    """Do what a master does with a learner: count it, and have it admitted when it has everything that is complete."""
    node = world.nodes[world.view.members[0]]
    learners = [name for name in world.view.learners if name in node.ring.view.learners]
    if not learners or not node.is_alive or node.ring.view.epoch != world.view.epoch:
        return
    learner = rng.choice(learners)
    if learner not in node.ring.view.counted:
        world.count(node, learner)
    elif world.everybody:
        _admit_in_silence(world, learner)
    elif ONLY in node.completed and node.completed[ONLY].serial == node.ring.view.serial:
        complete = world.complete.get(ONLY, {})
        if node.completed[ONLY].received >= max(complete, default=0) and ONLY in world.nodes[learner].told:
            world.admit(learner)


def _admit_in_silence(world, learner):
    """Where all members speak, a learner comes between two of them, so it may join only while all have the same."""
    nodes = [world.nodes[name] for name in (*world.view.members, learner)]
    if world.cut or any(not node.is_alive or node.applied < len(world.log) - 1 for node in nodes):
        return
    world.run()
    if all(len({node.ring.last(stream) for node in nodes}) == 1 for stream in world.view.speakers):
        world.admit(learner)
        for node in nodes:
            world.apply(node)
        world.run()


def _tell_done(world, rng):
    node = rng.choice(world.living())
    if node.ring.has_part and node.ring.owes_done:
        world.tell_done(node)


_STEPS = {
    "speak": _speak,
    "arrive": _arrive,
    "store": _store,
    "kill": _kill,
    "evict": _evict,
    "break": _break,
    "mend": _mend,
    "apply": _apply,
    "learn": _learn,
    "admit": _count_or_admit,
    "transfer": _transfer,
    "done": _tell_done,
}
_CHOICES = [
    *["speak"] * 6,
    *["arrive"] * 14,
    *["store"] * 4,
    *["apply"] * 6,
    *[
        "kill",
        "evict",
        "evict",
        "break",
        "mend",
        "mend",
        "learn",
        "admit",
        "admit",
        "admit",
        "done",
        "done",
        "transfer",
    ],
]


@pytest.mark.parametrize("everybody", [False, True], ids=["one speaks", "all speak"])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.integers(1, 150))
def test_the_laws_hold_under_every_plan(everybody, rng, steps):
    played(rng, steps, everybody)


@pytest.mark.parametrize("everybody", [False, True], ids=["one speaks", "all speak"])
def test_long_plans(everybody):
    for seed in range(40):
        played(random.Random(seed), 400, everybody)
