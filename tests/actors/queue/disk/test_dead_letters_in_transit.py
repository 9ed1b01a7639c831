"""Dead letters go through the journal: after a kill at any operation of the disk, and after crashes of single
processes, each message is in exactly one place.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from warren.actors.disk import dead_letters_in_transit, file_freeing
from warren.actors.node.restart_policy import MAX_RESTARTS
from warren.actors.queue.master.dead_letters import dead_letterer
from warren.amqp.fields import Table
from warren.amqp.frames import content_body
from warren.routing.arguments.queue_settings import queue_settings
from warren.routing.changes import BindingAdded
from warren.routing.rows import Binding

from ...disk_stage import DurableStage, HeldDisk, Publisher, Queue_, consumer
from ...stage import Stub
from ..durable import LARGE

STOPPED = OSError(errno.EROFS, "the broker is about to be killed")
SIZES = (10, LARGE, 10, 10, LARGE, 10)


def dead_lettering(to: str, exchange: str = "", **arguments: Any) -> dict[str, Any]:
    return {"x_dead_letter_exchange": exchange, "x_dead_letter_routing_key": to, **arguments}


@dataclass
class Scene:
    """Queues that are linked by dead-lettering, and how many `copies` they must have together of a message that has
    left the first. A turn deals with no more than `in_a_turn` targets of a dead letter. The last queue has a `policy`
    until the broker is killed.
    """

    queues: dict[str, dict[str, Any]]
    copies: int = 1
    fanout: tuple[str, ...] = ()
    in_a_turn: int = 256
    policy: dict[str, Any] = field(default_factory=dict)

    def declare(self, stage: DurableStage) -> Queue_:
        declared = [stage.declare(name, **arguments) for name, arguments in self.queues.items()]
        self.bind(stage)
        last = declared[-1]
        stage.tell(stage.metadata, last.address, "apply_settings", queue_settings(last.row.arguments, self.policy))
        return last

    def bind(self, stage: DurableStage) -> None:
        for name in self.fanout:
            binding = Binding.of("amq.fanout", "queue", name, "", Table())
            stage.routing.publish([BindingAdded("/", binding, True)])


#: A pace at which every message becomes a dead letter.
SLOW = {"pace-rate": 1, "pace-period-ms": 3_600_000, "pace-max-wait-ms": 1, "pace-overflow": "dead-letter"}

#: In each scene the test publishes to the last queue.
SCENES = {
    "from the head": Scene({"grave": {}, "source": dead_lettering("grave", x_max_length=1)}),
    "to a lazy queue": Scene(
        {"grave": {"x_queue_mode": "lazy"}, "source": dead_lettering("grave", x_max_length=1, x_queue_mode="lazy")}
    ),
    "between priorities": Scene(
        {
            "grave": {"x_max_priority": 2},
            "source": dead_lettering("grave", x_max_length=1, x_max_priority=2),
        }
    ),
    "at once": Scene({"grave": {}, "source": dead_lettering("grave", x_message_ttl=0)}),
    "down a chain": Scene(
        {
            "grave": {},
            "third": dead_lettering("grave", x_message_ttl=0),
            "second": dead_lettering("third", x_max_length=1),
            "source": dead_lettering("second", x_max_length=1),
        }
    ),
    "to several queues": Scene(
        {"one": {}, "two": {}, "three": {}, "source": dead_lettering("", "amq.fanout", x_max_length=1)},
        copies=3,
        fanout=("one", "two", "three"),
    ),
    "to very many queues": Scene(
        {"one": {}, "two": {}, "three": {}, "source": dead_lettering("", "amq.fanout", x_max_length=1)},
        copies=3,
        fanout=("one", "two", "three"),
        in_a_turn=1,
    ),
    "to very many queues at once": Scene(
        {"one": {}, "two": {}, "three": {}, "source": dead_lettering("", "amq.fanout", x_message_ttl=0)},
        copies=3,
        fanout=("one", "two", "three"),
        in_a_turn=2,
    ),
    "refused, to very many queues": Scene(
        {
            "one": {},
            "two": {},
            "three": {},
            "source": dead_lettering("", "amq.fanout", x_max_length=1, x_overflow="reject-publish-dlx"),
        },
        copies=3,
        fanout=("one", "two", "three"),
        in_a_turn=1,
    ),
    "too many for a pace, to very many queues": Scene(
        {"one": {}, "two": {}, "three": {}, "source": dead_lettering("", "amq.fanout")},
        copies=3,
        fanout=("one", "two", "three"),
        in_a_turn=1,
        policy=SLOW,
    ),
}


def in_turns_of(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Have no turn deal with more than `most` targets of a dead letter, and no process have two turns in a round."""
    monkeypatch.setattr(dead_letterer, "FAN_OUT", most)
    monkeypatch.setattr(dead_letters_in_transit, "SENT_AT_ONCE", most)
    monkeypatch.setattr("warren.runtime.loop.lanes.LONG_TURN_SECONDS", 600.0)


def arrived(stage: DurableStage) -> None:
    """Wait until no dead letter is in transit."""
    journal = stage.actor(stage.storage.journal)
    stage.quiet()
    stage.until(
        lambda: not len(journal.files.in_transit) and not journal.files.in_transit.unsent and not journal._is_committing
    )
    stage.quiet()


def places(stage: DurableStage, scene: Scene) -> dict[str, Counter[bytes]]:
    """The bodies in each queue."""
    found = {}
    for name in scene.queues:
        queue, channel = stage.recovered(name), stage.create(Stub)
        found[name] = Counter[bytes]()
        while True:
            delivery, _ = stage.ask(queue.address, "get", channel.actorAddressString, channel, True).answer()
            if delivery is None:
                break
            found[name][content_body(delivery.contents[0])] += 1
    return found


def check(found: dict[str, Counter[bytes]], scene: Scene, published: list[bytes], confirmed: set[int]) -> None:
    for number, body in enumerate(published, 1):
        left = found["source"][body]
        dead = sum(bodies[body] for name, bodies in found.items() if name != "source")
        allowed = {(1, 0), (0, scene.copies)} if number in confirmed else {(0, 0), (1, 0), (0, scene.copies)}
        assert (left, dead) in allowed, (number, number in confirmed, found)


def work(stage: DurableStage, scene: Scene, stops_after: int) -> tuple[list[bytes], set[int], bool]:
    """Publish until the disk stops. Returns the bodies, the numbers, from 1 on, of the publishes that were confirmed,
    and whether the disk has stopped.
    """
    source, publisher = scene.declare(stage), Publisher(stage)
    published: list[bytes] = []
    stage.quiet()
    stops_at = stage.disk.operations + stops_after
    stage.disk.fail_after(stops_after, STOPPED)
    for size in SIZES:
        if not stage.is_alive(source.address):
            break  # the disk failed a sync, which ends the virtual host
        published += publisher.publish(source, 1, size)
        stage.base.run_until(lambda: publisher.answered == publisher.published, 0.02)
    stage.base.run_until(lambda: False, 0.02)
    return published, publisher._confirmed, stage.disk.operations >= stops_at


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_a_dead_letter_is_in_one_place_whenever_the_broker_is_killed(tmp_path, scene, monkeypatch):
    """A message and its dead letters are in one place whenever the broker is killed: the disk stops at its first
    operation, its fourth, and so on, and the broker starts again, every second time from what a power cut leaves.
    """
    in_turns_of(monkeypatch, scene.in_a_turn)
    for stops_after in range(1, 1000, 3):
        disk, root = HeldDisk(), tmp_path / str(stops_after)
        with DurableStage(root, disk) as stage:
            published, confirmed, has_stopped = work(stage, scene, stops_after)
        if stops_after % 2:
            disk.crash(Random(stops_after))
        with DurableStage(root, disk, stage.rows) as stage:
            scene.bind(stage)
            arrived(stage)
            check(places(stage, scene), scene, published, confirmed)
        if not has_stopped:
            return


# -- one process ends ---


def graves(stage: DurableStage) -> tuple[Queue_, Queue_]:
    return stage.declare("grave"), stage.declare("source", **dead_lettering("grave", x_max_length=1))


def sizes(stage: DurableStage, *names: str) -> list[int]:
    return [stage.recovered(name).actor.backing.totals().depth for name in names]


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_source_that_crashes_sends_no_dead_letter_again(stage, disk, size):
    """A source that crashes before its dead letter is on the disk does not send it a second time."""
    _, source = graves(stage)
    publisher = Publisher(stage)
    publisher.publish(source, 1, size)
    publisher.await_confirms()
    disk.hold()
    publisher.publish(source, 1, size)
    stage.is_held()
    stage.crash(source.address)
    stage.settle()
    disk.release()
    stage.restarted("source")
    arrived(stage)
    assert sizes(stage, "source", "grave") == [1, 1]


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_target_that_crashes_gets_what_it_has_not_taken(stage, disk, size):
    """A target that has crashed when a dead letter reaches it gets the dead letter once, in its next process."""
    grave, source = graves(stage)
    publisher = Publisher(stage)
    publisher.publish(source, 1, size)
    publisher.await_confirms()
    stage.crash(grave.address)
    publisher.publish(source, 1, size)
    stage.restarted("grave")
    arrived(stage)
    assert sizes(stage, "source", "grave") == [1, 1]
    stage.crash(stage.recovered("grave").address)
    stage.restarted("grave")
    arrived(stage)
    assert sizes(stage, "source", "grave") == [1, 1]


def test_a_dead_letter_that_a_crash_brings_again_is_flagged(stage, disk):
    """A dead letter that its target's next process gets again is flagged as redelivered, because the crashed process
    may have delivered it.
    """
    grave, source = graves(stage)
    first = consumer(stage, grave, acks=False)
    publisher = Publisher(stage)
    publisher.publish(source, 1)
    publisher.await_confirms()
    disk.hold()
    publisher.publish(source, 1)
    stage.is_held()
    disk.release()
    # The target's record that it took the dead letter must not reach the disk before the crash.
    stage.until(lambda: first.got)
    stage.crash(grave.address)
    grave = stage.restarted("grave")
    second = consumer(stage, grave)
    stage.until(lambda: second.got)
    arrived(stage)
    assert [is_redelivered for _, is_redelivered in first.got + second.got] == [False, True]
    assert sizes(stage, "source", "grave") == [1, 0]


def test_dead_letters_for_a_deleted_queue_are_forgotten(stage, disk):
    """If their queue is deleted while dead letters are in transit, the journal forgets them, and does not keep its
    files for them.
    """
    grave, source = graves(stage)
    publisher = Publisher(stage)
    publisher.publish(source, 1)
    publisher.await_confirms()
    disk.hold()
    publisher.publish(source, 3, LARGE)
    stage.is_held()
    question = stage.ask(grave.address, "delete", False, False)
    stage.settle()
    disk.release()
    assert question.answer() == 0
    arrived(stage)
    assert sizes(stage, "source") == [1]


MANY = ("one", "two", "three", "four", "five")


def fan(stage: DurableStage, **arguments: Any) -> Queue_:
    """A queue whose dead letters go to the queues of `MANY`."""
    for name in MANY:
        stage.declare(name)
        stage.routing.publish([BindingAdded("/", Binding.of("amq.fanout", "queue", name, "", Table()), True)])
    return stage.declare("source", **dead_lettering("", "amq.fanout", x_max_length=1, **arguments))


def bodies(stage: DurableStage, name: str) -> list[bytes]:
    """The bodies of the messages of a queue, which are removed from it."""
    return list(places(stage, Scene({name: {}}))[name].elements())


@pytest.mark.parametrize("persistent", [True, False])
def test_dead_letters_for_very_many_queues_stay_in_order(stage, disk, monkeypatch, persistent):
    """Messages that die while the queues of an earlier one are looked up come behind it, in each queue."""
    in_turns_of(monkeypatch, 2)
    source, publisher = fan(stage), Publisher(stage)
    wanted = publisher.publish(source, 3, persistent=persistent) + publisher.publish(source, 3, persistent=persistent)
    arrived(stage)
    assert all(bodies(stage, name) == wanted[:-1] for name in MANY)
    assert sizes(stage, "source") == [1]


def test_a_source_that_crashes_while_queues_are_looked_up_keeps_the_message(stage, disk, monkeypatch):
    """A queue that crashes while the targets of its dead letters are looked up has the messages again, and each of the
    targets gets each dead letter once.
    """
    in_turns_of(monkeypatch, 1)
    source, publisher = fan(stage), Publisher(stage)
    publisher.publish(source, 1)
    publisher.await_confirms()
    publisher.publish(source, 2)
    stage.until(lambda: source.actor.role.dead_letterer.waiting)
    stage.crash(source.address)
    stage.restarted("source")
    arrived(stage)
    assert sizes(stage, "source", *MANY) in ([1, 2, 2, 2, 2, 2], [1, 0, 0, 0, 0, 0])


REFUSED = {"reject-publish-dlx": dict(x_max_length=1, x_overflow="reject-publish-dlx"), "pace-overflow": {}}


@pytest.mark.parametrize("overflow", REFUSED)
def test_refused_messages_for_very_many_queues_are_answered_when_all_have_them(stage, disk, monkeypatch, overflow):
    """Messages that die on arrival, and later ones, become dead letters in order, and publishers have no credit, and no
    answers, before the last of the targets has its dead letter.
    """
    in_turns_of(monkeypatch, 1)
    source, publisher = refusing(stage, overflow)
    wanted = publisher.publish(source, 3)
    answered = []
    while not source.actor.role.intake.dying:
        stage.base.run_until(lambda: True)
    wanted += publisher.publish(source, 3, LARGE)
    while source.actor.role.intake.dying or source.actor.role.intake.arrivals:
        assert source.actor.channels.credit.blocked
        answered.append(publisher.answered)
        stage.base.run_until(lambda: True)
    # All messages of a run are answered together, and each round looks up one queue.
    assert set(answered) <= {1, 4} and answered.count(1) >= len(MANY) - 1
    arrived(stage)
    assert publisher.answered == 7 and publisher.confirmed == (1 if overflow == "reject-publish-dlx" else 7)
    assert not source.actor.channels.credit.blocked
    assert all(bodies(stage, name) == wanted for name in MANY)
    assert sizes(stage, "source") == [1]


@pytest.mark.parametrize("overflow", REFUSED)
def test_a_queue_that_crashes_while_it_refuses_messages_has_published_none_of_their_dead_letters(
    stage, disk, monkeypatch, overflow
):
    in_turns_of(monkeypatch, 1)
    source, publisher = refusing(stage, overflow)
    publisher.publish(source, 2)
    stage.until(lambda: source.actor.role.intake.dying)
    stage.crash(source.address)
    stage.restarted("source")
    arrived(stage)
    assert publisher.answered == 1
    assert sizes(stage, "source", *MANY) == [1, 0, 0, 0, 0, 0]


def test_a_queue_that_is_deleted_while_it_refuses_messages_sends_their_dead_letters(stage, disk, monkeypatch):
    in_turns_of(monkeypatch, 1)
    source, publisher = refusing(stage, "reject-publish-dlx")
    publisher.publish(source, 2)
    stage.until(lambda: source.actor.role.intake.dying)
    assert stage.ask(source.address, "delete", False, False).answer() == 1
    arrived(stage)
    assert sizes(stage, *MANY) == [2, 2, 2, 2, 2]


def refusing(stage: DurableStage, overflow: str) -> tuple[Queue_, Publisher]:
    """A queue with one message, whose further ones become dead letters for the queues of `MANY`, and its publisher."""
    for name in MANY:
        stage.declare(name)
        stage.routing.publish([BindingAdded("/", Binding.of("amq.fanout", "queue", name, "", Table()), True)])
    source = stage.declare("source", **dead_lettering("", "amq.fanout", **REFUSED[overflow]))
    publisher = Publisher(stage)
    publisher.publish(source, 1)
    publisher.await_confirms()
    if overflow == "pace-overflow":
        stage.tell(stage.metadata, source.address, "apply_settings", queue_settings(source.row.arguments, SLOW))
    return source, publisher


def test_a_queue_that_is_deleted_while_dead_letters_are_sent_keeps_no_file(stage, disk, monkeypatch):
    """Of the targets of a dead letter, those that are deleted before it is sent to them are forgotten."""
    in_turns_of(monkeypatch, 1)
    source, publisher = fan(stage), Publisher(stage)
    publisher.publish(source, 1)
    publisher.await_confirms()
    publisher.publish(source, 1)
    journal = stage.actor(stage.storage.journal)
    stage.until(lambda: any(item.targets for item in journal.files.in_transit.unsent))
    assert stage.ask(stage.recovered("five").address, "delete", False, False).answer() == 0
    arrived(stage)
    assert sizes(stage, "source", *MANY[:-1]) == [1, 1, 1, 1, 1]


def test_a_clean_stop_keeps_what_is_on_its_way(tmp_path, disk):
    """A target that is down at a clean stop gets its dead letters after the next start."""
    with DurableStage(tmp_path, disk) as stage:
        grave, source = graves(stage)
        publisher = Publisher(stage)
        stage.quiet()
        stage.tell(stage.metadata, grave.address, "hold")
        publisher.publish(source, 4)
        publisher.await_confirms()
        stage.quiet()
        assert sizes(stage, "source", "grave") == [1, 0]
        stage.terminate()
    with DurableStage(tmp_path, disk, stage.rows) as stage:
        arrived(stage)
        assert sizes(stage, "source", "grave") == [1, 3]


def test_a_journal_file_may_go_while_dead_letters_are_on_their_way(tmp_path, disk):
    """Before the journal frees a file, it repeats the records of dead letters in transit in a later one, so that they
    arrive once, also after a kill.
    """
    with DurableStage(tmp_path, disk) as stage:
        grave, source = graves(stage)
        publisher = Publisher(stage)
        stage.quiet()
        stage.tell(stage.metadata, grave.address, "hold")
        publisher.publish(source, 4)
        publisher.await_confirms()
        stage.quiet()
        process = stage.actor(stage.storage.journal)
        process._freeing.begin(process.files.rotate(), file_freeing.REPEATED_BYTES)
        stage.until(lambda: process.files.oldest > 1)
        stage.quiet()
    with DurableStage(tmp_path, disk, stage.rows) as stage:
        arrived(stage)
        assert sizes(stage, "source", "grave") == [1, 3]


@pytest.mark.parametrize("size", [100, LARGE])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_queue_that_stays_down_gets_the_first_dead_letters(tmp_path, disk, size, is_killed, monkeypatch, caplog):
    """A queue that stays down gets the first dead letters at the next start. More would fill the memory, and keep the
    journal's files for ever, so they are dropped.
    """
    monkeypatch.setattr(dead_letters_in_transit, "DOWN_BYTES", 5 * size + size // 2)
    with DurableStage(tmp_path, disk) as stage:
        grave, source = graves(stage)
        publisher = Publisher(stage)
        for _ in range(MAX_RESTARTS):
            stage.crash(grave.address)
            grave = stage.restarted("grave")
        stage.crash(grave.address)
        stage.quiet()
        for _ in range(31):
            publisher.publish(source, 1, size)
            publisher.await_confirms()
        stage.quiet()
        process = stage.actor(stage.storage.journal)
        assert len(process.files.in_transit) == 5
        assert caplog.text.count("is down, and the journal keeps no more dead letters") == 1
        process._freeing.begin(process.files.rotate(), process._settings.file_limit)
        stage.until(lambda: process.files.oldest > 1)
        stage.quiet()
        if not is_killed:
            stage.terminate()
    with DurableStage(tmp_path, disk, stage.rows) as stage:
        arrived(stage)
        assert sizes(stage, "source", "grave") == [1, 5]
        Publisher(stage).publish(stage.recovered("source"), 20, size)
        stage.quiet()
        arrived(stage)
        assert sizes(stage, "source", "grave") == [1, 25], "it runs again, so nothing is dropped"


def test_transient_dead_letters_stay_in_order_with_persistent_ones(stage, disk):
    """Transient dead letters go through the journal too, without a record, so that they stay in order with persistent
    ones.
    """
    grave, source = graves(stage)
    publisher = Publisher(stage)
    wanted = []
    for at in range(8):
        wanted += publisher.publish(source, 2, persistent=at % 2 == 0)
    eater = consumer(stage, grave)
    stage.until(lambda: len(eater.got) == len(wanted) - 1)
    assert [body for body, _ in eater.got] == wanted[:-1]
