"""How often the messages of a quorum queue were returned is remembered over every end of the queue's
process (AB-91).
"""

from __future__ import annotations

import pytest

from warren.amqp.frames import content_properties
from warren.amqp.properties import decode_properties
from warren.store.data_dir.recovery_terms import take_terms
from warren.store.data_dir.vhost_dir import RECOVERY

from ..disk_stage import SEGMENT, DurableStage, Publisher
from ..stage import Stub
from .durable import LARGE


def take(stage, queue, count):
    """Get messages, and return the ack tag of each with the number of its returns that the client receives."""
    channel = stage.create(Stub)
    found = []
    for _ in range(count):
        delivery, _ = stage.ask(queue.address, "get", channel.actorAddressString, channel, False).answer()
        headers = dict(
            (name, value) for name, _, value in decode_properties(content_properties(delivery[3][0])).headers
        )
        found.append((delivery[2][0], headers["x-delivery-count"]))
    return channel, found


def returned(stage, queue, tags, outcome="requeue", channel=None):
    """Settle messages that this channel has taken."""
    queue.tell(channel, "settle", outcome, [list(tags)])
    stage.quiet()


def counts(stage, queue, count):
    """The return counts of the first messages. They are requeued, so each count rises by one."""
    channel, found = take(stage, queue, count)
    returned(stage, queue, [tag for tag, _ in found], channel=channel)
    return [number for _, number in found]


def filled(stage):
    """A queue whose messages 0 to 3, small and large ones, were returned 3, 2, 1 and 0 times. Message 4 was returned
    and then acknowledged.
    """
    queue, publisher = stage.declare(x_queue_type="quorum"), Publisher(stage)
    publisher.publish(queue, 2)
    publisher.publish(queue, 1, LARGE)
    publisher.publish(queue, SEGMENT)
    publisher.await_confirms()
    for size in (3, 2, 1):
        channel, found = take(stage, queue, size)
        returned(stage, queue, [tag for tag, _ in found], channel=channel)
    channel, found = take(stage, queue, 5)
    returned(stage, queue, [tag for tag, _ in found[:4]], channel=channel)
    returned(stage, queue, [found[4][0]], "ack", channel)
    stage.quiet()
    return queue


EXPECTED = [4, 3, 2, 1, 0]


def test_a_queue_that_crashes_keeps_the_counts(stage):
    queue = filled(stage)
    stage.crash(queue.address)
    assert counts(stage, stage.restarted(), 5) == EXPECTED


@pytest.mark.parametrize("ends", [["kill"], ["stop"], ["kill", "kill"], ["stop", "kill"], ["kill", "stop", "kill"]])
def test_a_restarted_broker_keeps_the_counts(tmp_path, disk, ends):
    """A restarted broker has the counts, and has them after a second end too, when the terms of the first
    are used up.
    """
    rows = ()
    for start, end in enumerate(ends):
        with DurableStage(tmp_path, disk, rows) as stage:
            if not start:
                filled(stage)
            stage.quiet()
            if end == "stop":
                stage.terminate()
            rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        assert counts(stage, stage.recovered(), 5) == EXPECTED


def test_a_broker_that_is_killed_while_it_starts_after_a_clean_stop_keeps_the_counts(tmp_path, disk):
    """A broker that is killed during a start after a clean stop has the counts, although that start had deleted the
    terms and no queue ran yet (C-22).
    """
    with DurableStage(tmp_path, disk) as stage:
        filled(stage)
        stage.terminate()
        rows = stage.rows
        recovery = f"{stage.path}/{RECOVERY}"
    assert take_terms(recovery)
    with DurableStage(tmp_path, disk, rows) as stage:
        assert counts(stage, stage.recovered(), 5) == EXPECTED


def test_the_counts_outlive_the_journal_files_that_they_were_written_to(tmp_path, disk):
    """When the journal gives up a file, the queue has written its messages to segments, which have no counts; they are
    kept all the same.
    """
    with DurableStage(tmp_path, disk) as stage:
        queue = filled(stage)
        journal = stage.actor(stage.storage.journal)
        first = journal.files.current
        journal._freeing.begin(journal.files.rotate(), journal._settings.file_limit)
        stage.tell(stage.metadata, queue.address, "flush_synced")
        Publisher(stage).publish(queue, 1)
        stage.until(lambda: journal.files.oldest > first)
        stage.quiet()
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        assert counts(stage, stage.recovered(), 5) == EXPECTED


def test_the_counts_of_a_queue_that_is_down_outlive_the_journal_files_too(tmp_path, disk):
    """The counts of a queue that is down are kept when the journal gives up a file and writes the queue's messages to
    segments itself.
    """
    with DurableStage(tmp_path, disk) as stage:
        filled(stage)
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        journal = stage.actor(stage.storage.journal)
        first = journal.files.current
        queue = stage.recovered()
        journal._lose(int(queue.id[:14], 16))
        journal._freeing.begin(journal.files.rotate(), journal._settings.file_limit)
        Publisher(stage).publish(stage.declare("other"), 1)
        stage.until(lambda: journal.files.oldest > first)
        stage.quiet()
    with DurableStage(tmp_path, disk, rows) as stage:
        assert counts(stage, stage.recovered(), 5) == EXPECTED


def test_a_limit_is_reached_across_restarts(tmp_path, disk):
    """The delivery limit counts returns from before a restart, so that a message which crashes the broker each time it
    is consumed does not come back for ever.
    """
    rows = ()
    for start in range(3):
        with DurableStage(tmp_path, disk, rows) as stage:
            if start:
                queue = stage.recovered()
            else:
                queue, publisher = stage.declare(x_queue_type="quorum", x_delivery_limit=2), Publisher(stage)
                publisher.publish(queue, 1)
                publisher.await_confirms()
            assert counts(stage, queue, 1) == [start]
            stage.quiet()
            rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        assert stage.recovered().actor.backing.totals().depth == 0
