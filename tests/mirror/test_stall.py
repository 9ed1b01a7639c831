"""When a ring counts as stalled, and which replica has to leave then (CL-69, CL-80)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from warren.actors.context import replica_limits
from warren.actors.queue.mirroring import DONE_TIMER, RING_PEER, STALL_TIMER
from warren.amqp.errors import AmqpError
from warren.gm_ring.ring import KEPT_FOR_SLOW_LEARNERS
from warren.gm_ring.wire import ONLY
from warren.mirror import ring_credit, stall
from warren.mirror.stall import StallWatch, Standing, victim
from warren.routing.rows import Member
from warren.runtime.errors import ProcessTimeout
from warren.settings import Settings
from warren.store.messages.message import Origin

from .replicas import FakeReplica, Group

SIZE = 1 << 20

#: The defaults of the settings.
WINDOW_BYTES, ACK_TIMEOUT = Settings().mirror_window, Settings().mirror_ack_timeout

A, B, C = (Member(f"warren@{name}", "1", at) for at, name in enumerate("abc", 1))


def test_numbers_that_stand_still_while_something_is_outstanding():
    watch = StallWatch()
    assert not watch.is_stalled(0.0, True, (1, 0), 5.0)
    assert not watch.is_stalled(4.9, True, (1, 0), 5.0)
    assert watch.is_stalled(5.0, True, (1, 0), 5.0)
    assert not watch.is_stalled(6.0, True, (1, 1), 5.0), "they have risen"
    assert not watch.is_stalled(12.0, False, (1, 1), 5.0)
    assert not watch.is_stalled(13.0, True, (1, 1), 5.0), "nothing was outstanding a moment ago"
    assert watch.is_stalled(18.0, True, (1, 1), 5.0)


@pytest.mark.parametrize(
    ("standings", "found"),
    [
        ({A: (9, 0, 0), B: (9, 9, 0), C: (9, 9, 0)}, None),
        ({A: (9, 0, 0), C: (9, 9, 0)}, B),
        ({A: (9, 0, 0), B: (9, 9, 3)}, C),
        ({A: (9, 0, 4), B: (5, 5, 0), C: (5, 5, 0)}, B),
        ({A: (9, 0, 0), B: (9, 9, 4), C: (5, 5, 0)}, C),
        ({A: (9, 0, 0), B: (9, 9, 0), C: (5, 5, 0)}, C),
        ({A: (9, 0, 0), B: (9, 4, 0), C: (9, 9, 0)}, B),
        ({A: (9, 0, 0), B: (9, 9, 0), C: (9, 4, 0)}, C),
        ({A: (9, 0, 0), B: (9, 4, 0), C: (9, 4, 0)}, None),
    ],
)
def test_who_holds_up_the_ring(standings, found):
    result = victim((A, B, C), {member: Standing(*each) for member, each in standings.items()})
    assert (None if result is None else result[0]) == found


def test_of_two_members_the_mirror_whose_disk_stands_still_leaves():
    assert victim((A, B), {A: Standing(9, 0, 0), B: Standing(9, 4, 0)})[0] == B
    assert victim((A, B), {A: Standing(9, 0, 0), B: Standing(9, 9, 0)}) is None
    assert victim((A,), {A: Standing(9, 0, 0)}) is None


@pytest.fixture(autouse=True)
def spawned(monkeypatch):
    """What replicas have begun: the name of each coroutine, and the learners that it is to remove."""
    found, spawn = [], FakeReplica.spawn

    def note(self, coroutine):
        if coroutine.__name__ in ("_evict", "_evict_itself", "_remove"):
            found.append((coroutine.__name__, coroutine.cr_frame.f_locals.get("learners")))
        spawn(self, coroutine)

    monkeypatch.setattr(FakeReplica, "spawn", note)
    return found


def publish(group, count):
    """Publish large messages without asking for confirms."""
    for _ in range(count):
        group.master.mirrored.publish(Origin("", ("orders",), True), [bytes(SIZE)], SIZE, None, False)
        group.end_turn(group.master)


def fill(group):
    """Publish more than the master may retain."""
    publish(group, WINDOW_BYTES // SIZE + 1)
    assert RING_PEER in group.master.credit.credit_blocked


def arrive(group, *pairs):
    """Deliver all frames in flight, or only those between these pairs of replicas."""
    while any([group.arrive(pair) for pair in pairs or list(group.wires)]):
        pass


def wait(group):
    """Let time pass until a ring that stands still has stalled."""
    replication = group.master.replication
    for _ in range(2):
        assert replication._eviction.is_outstanding
        replication.timer_fired(STALL_TIMER)
        group.now += ACK_TIMEOUT / 1000
    replication.timer_fired(STALL_TIMER)


def test_the_window_of_a_master_is_set_by_its_node():
    """Publishers wait while the master retains more than `mirror_window` for its mirrors, until it retains half of
    that (CL-69).
    """
    group = Group("ab")
    master, mirror = (group.replicas[member] for member in group.row.group.ring)
    group.run()
    master.context.settings = replace(master.context.settings, mirror_window=4 * SIZE + SIZE // 2)
    publish(group, 4)
    assert not master.credit.blocked
    publish(group, 1)
    assert RING_PEER in master.credit.credit_blocked
    for pair in ((master.member, mirror.member), (mirror.member, master.member)) * 2:
        group.arrive(pair)  # the mirror gets two of the messages, and answers
    assert RING_PEER in master.credit.credit_blocked
    arrive(group)
    assert not master.credit.blocked


def test_a_master_bounds_the_number_of_instructions_too(monkeypatch):
    """Small messages take more memory than their bytes (CL-69)."""
    monkeypatch.setattr(ring_credit, "WINDOW_INSTRUCTIONS", 8)
    group = Group("ab")
    group.run()
    for _ in range(8):
        group.publish(persistent=False)
    assert not group.master.credit.blocked
    group.publish(persistent=False)
    assert RING_PEER in group.master.credit.credit_blocked
    arrive(group)
    assert not group.master.credit.blocked


def test_the_masters_of_a_node_share_their_windows(monkeypatch):
    """A node with many masters whose mirrors are slow retains a bounded number of bytes (CL-69)."""
    monkeypatch.setattr(replica_limits, "RETAINED_MOST", 5 * SIZE)
    groups = [Group("ab") for _ in range(4)]
    limits = groups[0].master.context.replica_limits
    for group in groups:
        group.run()
        group.master.context.replica_limits = limits
        publish(group, 1)
    assert not any(group.master.credit.blocked for group in groups)
    publish(groups[0], 1)
    assert [bool(group.master.credit.blocked) for group in groups] == [True, False, False, False]
    publish(groups[1], 1)
    assert [bool(group.master.credit.blocked) for group in groups] == [True, True, False, False]
    for group in groups[:3]:
        group.run()
    assert not groups[0].master.credit.blocked and not groups[1].master.credit.blocked
    groups[3].master.replication.process_ended()
    assert (limits.retained.bytes, limits.retained.masters) == (0, 0)


def test_the_members_of_a_stalled_ring_are_asked_at_once(monkeypatch):
    """Publishers wait meanwhile. The members were asked one after the other, so two that did not answer took twice as
    long (CL-80).
    """
    group = Group("abcd")
    master = group.master
    asked = []

    async def no_answer():
        assert len(asked) == 3, "all are asked before an answer is awaited"
        raise ProcessTimeout

    def ask(address, message, timeout=None):
        if message[0] == "standing":
            asked.append(address)
            return no_answer()
        return asyncio.sleep(0, 0)

    monkeypatch.setattr(master, "ask", ask)
    group.publish()
    asyncio.run(master.replication._eviction._evict())
    assert asked == list(group.row.group.ring[1:])


def test_a_member_that_takes_nothing_does_not_block_publishers_that_want_no_confirms(spawned):
    group = Group("abc")
    group.run()
    fill(group)
    wait(group)
    assert ("_evict", None) in spawned


def test_a_node_may_be_set_to_wait_longer_for_its_mirrors(spawned, monkeypatch):
    """`mirror_ack_timeout` applies if the policy has no `ha-ack-timeout` (CL-80)."""
    group = Group("ab")
    group.run()
    master = group.master
    master.context.settings = replace(master.context.settings, mirror_ack_timeout=20_000)
    group.publish()
    for _ in range(4):
        master.replication.timer_fired(STALL_TIMER)
        assert not spawned
        group.now += 5.0
    master.replication.timer_fired(STALL_TIMER)
    assert [name for name, _ in spawned] == ["_evict"]
    monkeypatch.setattr(stall, "policy_of", lambda replica: {"ha-ack-timeout": 30_000})
    master.replication.timer_fired(STALL_TIMER)
    assert len(spawned) == 1


def test_a_channel_that_asks_a_new_master_is_not_kept_waiting_by_a_member_that_takes_nothing(spawned):
    """The channel publishes nothing else before it has its answer, so no publish awaits a confirm."""
    group = Group("abc")
    group.run()
    first, second, _ = group.replicas
    group.publish()
    arrive(group, (first, second))
    group.kill(first)
    group.remove(first)
    group.apply(group.replicas[second])
    group.master.replication.reclaim(None, "c1", [(1, 1)])
    group.sync(group.master)
    assert group.master.replies == [] and not group.master.mirrored.confirming.is_waiting
    wait(group)
    assert ("_evict", None) in spawned


@pytest.mark.parametrize("is_slow", [True, False], ids=["the master's disk takes nothing", "it takes little"])
def test_a_master_evicts_itself_if_only_its_own_disk_takes_nothing(spawned, is_slow):
    """The other members have stored what its publishers wait for, so one of them can confirm that (CL-81)."""
    group = Group("abc")
    group.run()
    first, *others = group.row.group.ring
    for _ in range(4):
        group.publish()
        arrive(group)
        for name in others:
            group.sync(group.replicas[name])
        arrive(group)
        if not is_slow:
            group.sync(group.master)
            group.publish()
            arrive(group)
        group.master.replication.timer_fired(STALL_TIMER)
        assert group.master.replication._eviction.is_outstanding
        group.now += ACK_TIMEOUT / 2000
    assert [name for name, _ in spawned] == (["_evict_itself"] * 2 if is_slow else [])


def test_a_learner_that_takes_nothing_does_not_block_publishers(spawned):
    """The master is alone in its ring, and removes the learner that it cannot reach. Acknowledgements go on, so its
    stream does not stand still.
    """
    group = Group("a")
    group.publish(3)
    group.run()
    lost, well = group.learn("b"), group.learn("c")
    arrive(group)
    fill(group)
    replication = group.master.replication
    replication.timer_fired(STALL_TIMER)
    for _ in range(3):
        arrive(group, *((group.master.member, well.member), (well.member, group.master.member)))
        group.now += ACK_TIMEOUT / 3000
        group.consume(1, "ack")
        assert RING_PEER in group.master.credit.credit_blocked and not spawned
    replication.timer_fired(STALL_TIMER)
    assert spawned == [("_remove", [lost.member])]
    group.forget_learner()
    group.apply(group.master)
    assert RING_PEER not in group.master.credit.credit_blocked


def test_a_learner_that_comes_nearer_is_not_removed_though_publishers_are_blocked(spawned):
    group = Group("a")
    group.run()
    learner = group.learn("b")
    arrive(group)
    fill(group)
    for _ in range(4):
        group.master.replication.timer_fired(STALL_TIMER)
        group.now += ACK_TIMEOUT / 1000
        group.arrive((group.master.member, learner.member))
        arrive(group, (learner.member, group.master.member))
        publish(group, 1)
        assert RING_PEER in group.master.credit.credit_blocked
    assert spawned == []


def test_the_last_member_retains_a_bounded_part_of_the_stream_for_a_learner_that_it_cannot_reach():
    """The learner leaves when the connection is back, since it lacks what the last member has forgotten."""
    group = Group("ab")
    group.run()
    learner = group.learn("c")
    arrive(group)
    first, last = group.row.group.ring
    ring = group.replicas[last].replication._ring
    for _ in range(2 * KEPT_FOR_SLOW_LEARNERS // SIZE):
        publish(group, 1)
        for member in (first, last):
            group.sync(group.replicas[member])
        arrive(group, (first, last), (last, first))
        group.master.replication.timer_fired(DONE_TIMER)
        group.end_turn(group.master)
        arrive(group, (first, last), (last, first))
        assert ring.owed(ONLY)[0] <= KEPT_FOR_SLOW_LEARNERS + 2 * SIZE
    assert ring.owed(ONLY)[0] > KEPT_FOR_SLOW_LEARNERS // 2, "a short interruption costs the learner nothing"
    group.wires.pop((last, learner.member))
    learner.replication.node_met(last.node)
    group.end_turn(learner)
    arrive(group)
    assert not learner.is_alive


def may_join_after(group, member, seconds):
    """Whether the master would admit a replica of this node so many seconds from now."""
    group.now += seconds
    result = group.master.replication._admission._may_join(member)
    group.now -= seconds
    return result


def test_only_the_evictions_of_the_last_hour_bar_a_replica_for_longer():
    """A replica that was evicted every few days was kept out for ten minutes each time, because no eviction was ever
    forgotten (CL-82).
    """
    group = Group("ab")
    master, mirror = group.row.group.ring
    admission = group.replicas[master].replication._admission
    for seconds in (10, 20, 40, 80, 160, 320, 600, 600):
        admission.bar(mirror)
        assert not may_join_after(group, mirror, seconds - 1) and may_join_after(group, mirror, seconds)
        group.now += 60
    group.now += 3600 - 2 * 60
    admission.bar(mirror)
    assert not may_join_after(group, mirror, 19) and may_join_after(group, mirror, 20), "one was an hour ago or less"
    group.now += 3600
    admission.bar(mirror)
    assert not may_join_after(group, mirror, 9) and may_join_after(group, mirror, 10)


def evict_twice(group, monkeypatch, outcomes):
    """Have two coroutines of the master find that the mirror does not answer, and Metadata change so many rows for each
    of their proposals. Returns the mirror.
    """
    master, mirror = group.row.group.ring
    replica = group.replicas[master]
    eviction, left = replica.replication._eviction, iter(outcomes)

    async def evict_both():
        ring = group.row.group.epoch
        await asyncio.gather(*[eviction._evict_member(mirror, "it does not answer", ring) for _ in outcomes])

    def ask(address, message):
        outcome = next(left)
        return asyncio.sleep(0, outcome) if isinstance(outcome, int) else failed(outcome)

    monkeypatch.setattr(replica, "ask", ask)
    asyncio.run(evict_both())
    return mirror


async def failed(error):
    raise error


def test_a_replica_is_barred_once_although_several_coroutines_propose_its_eviction(monkeypatch):
    """The master looks for a mirror that stands still each second, and to ask all members takes longer. So several
    coroutines evicted one mirror, and each of them doubled the time for which it may not come back.
    """
    group = Group("ab")
    mirror = evict_twice(group, monkeypatch, [1, 0])
    assert not may_join_after(group, mirror, 9) and may_join_after(group, mirror, 10)


def test_an_eviction_that_is_refused_bars_nobody(monkeypatch):
    group = Group("ab")
    mirror = evict_twice(group, monkeypatch, [AmqpError(541, "metadata cannot be changed now")])
    assert may_join_after(group, mirror, 0)
