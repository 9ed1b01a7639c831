"""Dead letters for queues that are kept elsewhere: the dead messages stay until their targets have them (AB-147)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from warren.actors.queue.master.dead_letters import dead_letterer
from warren.actors.queue.replica import shipping
from warren.amqp.errors import AmqpError
from warren.routing.changes import QueueRemoved
from warren.routing.phrases import no_queue

from ...stage import Queue_, Stage, Stub, bodies_of

ELSEWHERE = "warren@elsewhere"


class Grave(Stub):
    """A queue on another node, which answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, list[bytes], bool]] = []

    def on_take_dead_letters(self, sender: Any, entries: list[Any], is_repeated: bool) -> None:
        self.asked.append((sender, [body for entry in entries for body in bodies_of(entry[1])], is_repeated))

    def on_end(self, sender: Any) -> None:
        self.stop("ended by the test")

    def answer(self) -> tuple[list[bytes], bool]:
        """Report that the first request is safe; returns its bodies, and whether they were sent before."""
        sender, bodies, is_repeated = self.asked.pop(0)
        self.reply(sender, True)
        return bodies, is_repeated


class Scene:
    """A queue whose dead letters go to the queue `grave` on another node."""

    def __init__(self, stage: Stage, **arguments: Any) -> None:
        self.stage = stage
        self.channel = stage.create(Stub)
        to_grave = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "grave"}
        self.source = stage.queue("source", **to_grave, **arguments)
        self.move_grave()

    def move_grave(self) -> None:
        """The queue `grave` has another process from now on."""
        row = self.stage.queue("grave", process=Grave).row
        self.stage.routing.put_queue(replace(row, node=ELSEWHERE))
        self.address = row.address

    @property
    def grave(self) -> Any:
        return self.stage.actor(self.address)

    def publish(self, *bodies: bytes) -> None:
        self.source.publish(self.channel, list(bodies))
        self.stage.settle()

    def reject(self, *bodies: bytes) -> None:
        """Publish these messages, and have a consumer reject them one after the other."""
        self.publish(*bodies)
        first = self.source.actor.backing.numbers().stop - len(bodies)
        self.source.consume(self.channel)
        self.stage.settle()
        for tag in range(first, first + len(bodies)):
            self.source.tell(self.channel, "settle", "reject", [[tag]])
        self.source.tell(self.channel, "cancel", "c")
        self.stage.settle()

    @property
    def depth(self) -> int:
        return self.source.actor.backing.totals().depth


def test_a_rejected_message_stays_until_its_dead_letter_is_safe(stage):
    scene = Scene(stage)
    scene.reject(b"1")
    scene.reject(b"2")
    scene.reject(b"3")
    assert scene.depth == 3 and [bodies for _, bodies, _ in scene.grave.asked] == [[b"1"]], "one request at a time"
    assert scene.grave.answer() == ([b"1"], False)
    stage.settle()
    assert scene.depth == 2
    assert scene.grave.answer() == ([b"2", b"3"], False), "what came meanwhile goes together"
    stage.settle()
    assert scene.depth == 0 and not scene.grave.asked and not scene.source.actor.role.awaits_targets


def test_it_is_sent_again_when_the_target_has_another_process(stage, monkeypatch):
    monkeypatch.setattr(shipping, "RETRY_SECONDS", 0.001)
    scene = Scene(stage)
    scene.reject(b"1")
    old = scene.address
    scene.move_grave()
    stage.tell(stage.metadata, old, "end")
    stage.until(lambda: scene.grave.asked)
    assert scene.depth == 1 and scene.grave.answer() == ([b"1"], True)
    stage.until(lambda: scene.depth == 0)


def test_it_is_not_sent_again_while_the_target_runs_however_long_its_disk_takes(stage):
    """A target whose disk was full got another copy of its dead letters every 30 s, and kept them all."""
    scene = Scene(stage)
    scene.publish(b"1")
    timers = len(stage.base.timers)
    scene.source.consume(scene.channel)
    stage.settle()
    scene.source.tell(scene.channel, "settle", "reject", [[0]])
    stage.settle()
    assert [bodies for _, bodies, _ in scene.grave.asked] == [[b"1"]]
    assert len(stage.base.timers) == timers, "no time limit is running"
    assert scene.grave.answer() == ([b"1"], False)
    stage.until(lambda: scene.depth == 0)


def test_it_is_sent_again_when_the_target_refuses_it(stage, monkeypatch):
    """A replica that is not open yet, or not any more, refuses dead letters."""
    monkeypatch.setattr(shipping, "RETRY_SECONDS", 0.001)
    scene = Scene(stage)
    scene.reject(b"1")
    sender, _, _ = scene.grave.asked.pop()
    error = no_queue("/", "grave")
    assert isinstance(error, AmqpError)
    scene.grave.reply_error(sender, error)
    stage.until(lambda: scene.grave.asked)
    assert scene.depth == 1 and scene.grave.answer() == ([b"1"], True)


def test_what_waits_is_sent_at_most_once_when_its_queue_is_deleted(stage):
    scene = Scene(stage)
    for number in range(3):
        scene.reject(b"%d" % number)
    stage.tell(scene.channel, scene.source.address, "delete", False, False)
    stage.until(lambda: not stage.is_alive(scene.source.address))
    stage.settle()
    ((entries,),) = scene.grave.take("publish_at_most_once")
    assert [body for entry in entries for body in bodies_of(entry[1])] == [b"1", b"2"]
    assert [bodies for _, bodies, _ in scene.grave.asked] == [[b"0"]]


def test_it_is_dropped_when_the_target_was_deleted(stage, monkeypatch):
    monkeypatch.setattr(shipping, "RETRY_SECONDS", 0.001)
    scene = Scene(stage)
    scene.reject(b"1")
    stage.routing.publish([QueueRemoved(stage.routing.queue("/", "grave"))])
    stage.tell(stage.metadata, scene.address, "end")
    stage.until(lambda: scene.depth == 0)


def test_only_so_many_messages_wait_for_their_targets(stage, monkeypatch):
    """Of rejected messages, further ones wait in the queue. Of messages over the limit, further ones are sent at most
    once, because they would be in the way of consumers.
    """
    monkeypatch.setattr(dead_letterer, "SHIPPED_MOST", 2)
    scene = Scene(stage, x_max_length=1)
    for number in range(4):
        scene.reject(b"%d" % number)
    role = scene.source.actor.role
    assert scene.depth == 4 and role.dead_letterer.shipped == 2
    scene.publish(b"over")
    scene.publish(b"the limit")
    (entries,) = [fields[0] for fields in scene.grave.take("publish_at_most_once")]
    assert bodies_of(entries[0][1]) == [b"over"]
    for expected in ([b"0"], [b"1", b"2"], [b"3"]):
        assert scene.grave.answer() == (expected, False)
        stage.settle()
    assert (scene.depth, role.dead_letterer.shipped) == (1, 0)


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_a_target_answers_when_it_has_taken_or_refused_everything(stage, overflow):
    target = stage.queue("target", x_max_length=1, x_overflow=overflow)
    other = Scene(stage)
    stage.routing.put_queue(replace(target.row, name="grave", queue_id="id of grave", node=ELSEWHERE))
    other.reject(b"1", b"2", b"3")
    stage.until(lambda: other.depth == 0)
    kept = {"drop-head": [b"3"], "reject-publish": [b"1"]}[overflow]
    (message,) = target.actor.backing.fetch(9, True)
    assert bodies_of(message.contents) == kept


def test_a_message_that_expires_on_arrival_stays_until_its_dead_letter_is_safe(stage):
    """Its publisher gets the confirm before that, so the dead letter must not be lost."""
    scene = Scene(stage, x_message_ttl=0)
    scene.source.publish(scene.channel, [b"m"], first_confirm=1)
    stage.until(lambda: scene.grave.asked)
    assert scene.depth == 1 and not scene.grave.take("publish_at_most_once")
    scene.grave.answer()
    stage.until(lambda: scene.depth == 0)


def consumer_of(queue: Queue_, stage: Stage) -> Any:
    address = stage.create(Stub)
    queue.consume(address, no_ack=True)
    stage.settle()
    return stage.actor(address)


@pytest.mark.parametrize("is_repeated", [True, False])
def test_what_is_sent_again_is_redelivered(stage, is_repeated):
    source, target = stage.queue("source"), stage.queue("target")
    asker = stage.create(Stub)
    source.publish(asker, [b"m"])
    stage.settle()
    ((origins, _, _, contents),) = [
        (found.origins, None, None, found.contents) for found in source.actor.backing.fetch(1, True)
    ]
    consumer = consumer_of(target, stage)
    asked = stage.actor(asker).ask(target.address, ("take_dead_letters", [(origins, contents, 1, 0)], is_repeated))
    stage.settle()
    ((_, _, runs),) = consumer.take("deliver")
    assert runs[0][1] is is_repeated
    assert asked is not None
