"""Replicas of a mirrored queue keep their laws under random plans: publishes, acks, and deaths of any member at any
step.
"""

import gc
import random
import tracemalloc

import pytest

from warren.mirror.replication import MirrorReplication

from .replicas import Group


def played(rng, steps):
    group = Group("abcd"[: rng.randint(1, 4)])
    # Only a queue that has no transient messages can be recovered completely from a disk.
    persistence = rng.choice([0.7, 1.0])
    for _ in range(steps):
        if not group.living():
            break
        master = group.master
        step = rng.choice(
            ["publish"] * 4
            + ["arrive"] * 8
            + ["sync"] * 3
            + ["take"] * 2
            + ["ack"] * 2
            + ["apply"] * 3
            + ["learn"] * 2
            + ["rare"]
        )
        if step == "arrive":
            pairs = sorted(pair for pair, wire in group.wires.items() if wire)
            if pairs:
                group.arrive(rng.choice(pairs))
        elif step == "sync":
            group.sync(rng.choice(group.living()))
        elif step == "apply":
            group.apply(rng.choice(group.living()))
        elif step == "rare":
            _rare(group, rng)
        elif step == "learn":
            _learn(group, rng)
        elif (
            master.is_alive
            and master.row is group.row
            and (master.has_promoted or group.row.group.epoch == 1 or master.member.node == "a")
        ):
            if step == "publish":
                group.publish(rng.randint(1, 3), rng.random() < persistence)
            elif step == "take":
                group.consume(rng.randint(1, 4), rng.choice(["ack", "requeue", "keep", "keep"]))
            else:
                pending = len(list(master.mirrored.pending_numbers()))
                start = rng.randint(0, pending)
                group.ack_pending(slice(start, start + rng.randint(0, 2)))
    for replica in list(group.replicas.values()):
        group.apply(replica)
    gone = [member for member in group.row.group.ring if not group.replicas[member].is_alive]
    if len(gone) == len(group.row.group.ring):
        return group
    if gone:
        group.remove(*gone)
    for replica in group.living():
        group.apply(replica)
    group.run()
    _finish_copy(group)
    group.check_rest()
    return group


def _finish_copy(group):
    """Let the learner, if there is one, copy everything and join the ring."""
    for _ in range(30):
        learner = group.learner
        if learner is None or not learner.is_alive:
            return
        if group.master.proposed == (group.row.group.epoch, learner.member):
            group.admit(learner)
            for replica in group.living():
                group.apply(replica)
        else:
            group.copy_chunk(learner)
        group.run()


def _rare(group, rng):
    ring = group.row.group.ring
    dead = [member for member in ring if not group.replicas[member].is_alive]
    if rng.random() < 0.3 and len(ring) - len(dead) > 1:
        group.kill(rng.choice([member for member in ring if member not in dead]))
    elif dead:
        group.remove(*dead)
    elif (
        rng.random() < 0.3 and group.master.is_alive and (group.master.has_promoted or group.master.member.node == "a")
    ):
        group.purge()


def _learn(group, rng):
    """Take the next step of a learner: it comes, copies a chunk, or is admitted if the master proposes it."""
    learner, master, ring = group.learner, group.master, group.row.group.ring
    if learner is None:
        if len(group.replicas) < 8 and master.is_alive and rng.random() < 0.3:
            left = [each for each in group.replicas.values() if not each.is_alive and each.member not in ring]
            earlier = rng.choice([None, *left])
            group.learn("abcdefgh"[len(group.replicas)], earlier)
    elif not learner.is_alive:
        group.forget_learner()
    elif master.proposed == (group.row.group.epoch, learner.member):
        group.admit(learner)
    else:
        group.copy_chunk(learner)


@pytest.mark.parametrize("part", range(4))
def test_nothing_confirmed_is_lost_and_all_replicas_are_equal(part):
    for seed in range(part * 60, part * 60 + 60):
        played(random.Random(seed), 150)


def test_an_idle_member_costs_little():
    """A replica needs at most 6 KiB besides its messages, because a node may have ten thousand mirrored queues, most of
    them idle (CL-73).
    """
    replica = Group("abc").master
    MirrorReplication(replica)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        members = [MirrorReplication(replica) for _ in range(100)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(members) < 6 * 1024
