"""A group queue delivers the messages of its members in the order that simple lists give (QP-75, QP-77, QP-78)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.queue.group.members import GroupMember
from warren.actors.queue.group.process import GroupQueue
from warren.actors.queue.group.schedule import RoundRobin, StrictPriority
from warren.amqp.fields import table_from
from warren.routing.rows import QueueRow

from ...stage import Queue_, Stage, Stub, bodies_of

MEMBERS = ("a", "b", "c")


class Group(Queue_):
    """A group queue with the members a, b and c on a stage, and the messages of its consumers."""

    def __init__(self, stage: Stage, **arguments: object) -> None:
        self.members = [stage.queue(name) for name in MEMBERS]
        table = table_from({"x-queue-type": "group", "x-group-members": list(MEMBERS), **arguments})
        row = QueueRow("/", "group", stage.create(GroupQueue), "id of group", arguments=table, type="group")
        super().__init__(stage, row)
        stage.routing.put_queue(row)
        stage.tell(stage.metadata, self.address, "start", stage.context, row)
        stage.settle()
        self.publisher = stage.create(Stub)
        self.consumers: list = []

    def add_consumer(self, prefetch: int = 1) -> None:
        consumer = self.stage.create(Stub)
        self.consumers.append(consumer)
        self.consume(consumer, prefetch=prefetch)
        self.stage.settle()

    def publish_to(self, member: int, body: bytes) -> None:
        self.members[member].publish(self.publisher, [body])
        self.stage.settle()

    def taken(self, consumer: object) -> list[tuple[int, bytes]]:
        """The ack tags and bodies that a consumer has got since the last call."""
        runs = [run for _, _, runs in self.stage.actor(consumer).take("deliver") for run in runs]
        found = [(tag, body) for run in runs for tag, body in zip(run[2], bodies_of(run[3]))]
        if found:
            self.tell(consumer, "sent", len(found))
        return found

    def settle_one(self, consumer: object, outcome: str, tag: int) -> None:
        self.tell(consumer, "settle", outcome, [[tag]])
        self.stage.settle()


#: A publish to a member, or an acknowledgement or a requeue of one of the delivered messages.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 2)),
        st.tuples(st.sampled_from(("ack", "requeue")), st.integers(0, 7)),
    ),
    max_size=40,
)


@settings(max_examples=30, deadline=None)
@given(steps=STEPS, consumers=st.integers(1, 3))
def test_a_strict_group_delivers_of_the_first_member_that_has_a_message(steps, consumers):
    """With a prefetch of 1, a strict group queue delivers no message of a later member while an earlier one has any
    ready, and no consumer waits while a message is ready.
    """
    with Stage() as stage:
        group = Group(stage, **{"x-group-schedule": "strict"})
        for _ in range(consumers):
            group.add_consumer()
        ready: list[list[bytes]] = [[], [], []]
        held: list[tuple[int, bytes] | None] = [None] * consumers
        for number, (what, which) in enumerate(steps):
            if what == "publish":
                body = f"{MEMBERS[which]}{number:03}".encode()
                ready[which].append(body)
                group.publish_to(which, body)
            else:
                busy = [at for at, found in enumerate(held) if found]
                if not busy:
                    continue
                at = busy[which % len(busy)]
                tag, body = held[at]
                held[at] = None
                if what == "requeue":
                    own = ready[MEMBERS.index(chr(body[0]))]
                    own.append(body)
                    own.sort()
                group.settle_one(group.consumers[at], what, tag)
            for at, consumer in enumerate(group.consumers):
                for found in group.taken(consumer):
                    assert held[at] is None, "the prefetch is 1"
                    held[at] = found
                    first = next(queue for queue in ready if queue)
                    assert found[1] == first.pop(0)
            assert not any(ready) or all(held)


@settings(max_examples=15, deadline=None)
@given(
    counts=st.tuples(*[st.integers(0, 5)] * 3),
    batch=st.integers(1, 3),
    weights=st.tuples(*[st.integers(1, 3)] * 3),
)
def test_a_member_waits_for_one_turn_of_each_other(counts, batch, weights):
    """Between two turns of a member that has messages, each other member has one turn, of its weight times
    the batch.
    """
    with Stage() as stage:
        group = Group(
            stage,
            **{
                "x-group-schedule": "weighted",
                "x-group-batch": batch,
                "x-group-weights": dict(zip(MEMBERS, weights)),
            },
        )
        for member, count in enumerate(counts):
            for number in range(count):
                group.publish_to(member, f"{MEMBERS[member]}{number}".encode())
        group.add_consumer()
        (consumer,) = group.consumers
        order = []
        while found := group.taken(consumer):
            ((tag, body),) = found
            order.append(body)
            group.settle_one(consumer, "ack", tag)
        assert sorted(order) == sorted(
            f"{name}{number}".encode() for name, count in zip(MEMBERS, counts) for number in range(count)
        )
        left = dict(zip(MEMBERS, counts))
        passed = dict.fromkeys(MEMBERS, 0)
        most = {name: sum(weights) * batch - weight * batch for name, weight in zip(MEMBERS, weights)}
        for at, body in enumerate(order):
            letter = chr(body[0])
            left[letter] -= 1
            for other in MEMBERS:
                passed[other] = 0 if other == letter or not left[other] else passed[other] + 1
                # The group queue grants the first message before it knows which messages the others have.
                assert passed[other] <= most[other] + (at < sum(most.values()))


def member(name, **state):
    found = GroupMember(QueueRow("/", name, None, name), is_joined=True)
    for key, value in state.items():
        setattr(found, key, value)
    return found


@pytest.mark.parametrize(
    ("first", "expected"),
    [({}, "b"), ({"offered": 1}, "a"), ({"granted": 1}, None), ({"questions": 1}, None)],
    ids=["empty", "offers", "may have more", "has not answered"],
)
def test_a_strict_group_waits_for_earlier_members(first, expected):
    chosen = StrictPriority(0).choose([member("a", **first), member("b", offered=5)], now=0)
    assert (chosen[0].name if chosen else None) == expected


def test_a_member_that_has_waited_for_too_long_is_next_once():
    members = [member("a", offered=9), member("b", offered=5, offered_since=10.0)]
    schedule = StrictPriority(starve_after=2.0)
    assert schedule.choose(members, now=11.9)[0].name == "a"
    found, count = schedule.choose(members, now=12.0)
    assert (found.name, count) == ("a", 1)  # a has waited for longer than b
    members[0].offered_since = 12.0
    found, count = schedule.choose(members, now=12.1)
    assert (found.name, count) == ("b", 1)


def test_a_turn_that_was_interrupted_goes_on():
    members = [member(name, offered=9) for name in MEMBERS]
    schedule = RoundRobin(batch=3)
    for expected, taken in (("a", 2), ("a", 1), ("b", 3), ("c", 1), ("c", 2), ("a", 3)):
        found, most = schedule.choose(members, now=0)
        assert found.name == expected and most >= taken
        schedule.served(found, taken)
