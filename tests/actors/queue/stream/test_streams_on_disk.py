"""A stream on the disk while consumers read it."""

from __future__ import annotations

from warren.actors.queue.stream import readers
from warren.actors.queue.stream.window import StreamWindow
from warren.amqp.fields import Table, table_from
from warren.routing.rows import QueueRow

from ...disk_stage import Consumer, DurableStage, Publisher
from ...stage import Queue_
from ..durable import LARGE


def stream(stage: DurableStage, **arguments: object) -> Queue_:
    table = table_from(
        {"x-queue-type": "stream", **{f"x-{key.replace('_', '-')}": arguments[key] for key in arguments}}
    )
    row = QueueRow("/", "s", None, "ab" * 16, True, type="stream", arguments=table)
    started = stage.ask(stage.supervisor, "start_queue", row).answer()
    stage.routing.put_queue(started)
    return Queue_(stage, started)


def consumer(stage: DurableStage, queue: Queue_, offset: bytes) -> Consumer:
    channel = stage.create(Consumer)
    fields = channel.actorAddressString, channel, "c", False, False, 10, False, 0
    stage.tell(channel, queue.address, "consume", *fields, Table([("x-stream-offset", "S", offset)]), "guest")
    return stage.actor(channel)


def test_everything_that_is_on_the_disk_leaves_before_a_consumer_has_read_it(stage):
    """A publish begins a segment, and the limits allow no other one. Until the publish is on the disk the stream has
    nothing that may be delivered, so a consumer from the first message on waits for it.
    """
    queue, publisher = stream(stage, max_length_bytes=1, stream_max_segment_size_bytes=1), Publisher(stage)
    publisher.publish(queue, 3)
    publisher.await_confirms()
    eater = consumer(stage, queue, b"first")
    bodies = publisher.publish(queue, 1)
    stage.until(lambda: eater.got or not stage.is_alive(queue.address))
    assert eater.got == [(bodies[0], False)]
    publisher.await_confirms()


def test_a_read_covers_few_large_messages(stage, monkeypatch):
    """How many messages a read covers follows from their average size. Among many small messages there may be some very
    large ones, and their bodies must not be in memory all at once.
    """
    queue, publisher = stream(stage), Publisher(stage)
    bodies = [*publisher.publish(queue, 300), *publisher.publish(queue, 40, LARGE), *publisher.publish(queue, 20)]
    publisher.await_confirms()
    sizes = []
    add = StreamWindow.add

    def added(window, span, pieces, read_from):
        pieces = list(pieces)
        sizes.append(sum(len(content) for piece in pieces for content in piece.contents))
        add(window, span, pieces, read_from)

    monkeypatch.setattr(StreamWindow, "add", added)
    monkeypatch.setattr(readers, "READ_BYTES", 3 * LARGE)
    eater = consumer(stage, queue, b"first")
    stage.until(lambda: len(eater.got) >= len(bodies))
    assert [body for body, _ in eater.got] == bodies
    assert max(sizes) < 5 * LARGE and len(sizes) > 10
