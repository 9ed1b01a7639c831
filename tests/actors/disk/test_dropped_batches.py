"""Thespian's transport drops messages of a sender that has too many in flight (queue-and-store section 6.10).

A message from a queue to the journal or a message store that was dropped must never be taken for a success.
"""

from __future__ import annotations

import pytest

from ..disk_stage import DurableStage, HeldDisk, Publisher, bodies, drained
from ..stage import Stub

LARGE = 10_000
"""Bytes of a body that belongs in a message store."""


@pytest.fixture
def disk():
    return HeldDisk()


@pytest.fixture
def stage(tmp_path, disk):
    with DurableStage(tmp_path, disk) as stage:
        yield stage


def drop(stage, address, name):
    """Have the next message of that name get lost."""
    cell = stage.base.cells[address.actorAddressString]
    handlers = cell.handlers

    def dropped(actor, sender, *fields):
        cell.handlers = handlers

    cell.handlers = {**handlers, name: dropped}


def test_what_the_journal_missed_is_not_confirmed(stage):
    """If the journal misses a publish, neither that one nor later ones are confirmed. The queue restarts with what is
    on the disk, its channels refuse the unconfirmed publishes, and it goes on (FC-64).
    """
    queue, publisher = stage.declare(), Publisher(stage)
    kept = publisher.publish(queue, 3)
    publisher.await_confirms()
    drop(stage, stage.storage.journal, "append")
    publisher.publish(queue, 2)
    stage.quiet()
    publisher.publish(queue, 2)
    again = stage.restarted()
    stage.quiet()
    assert publisher.confirmed == 3
    later = Publisher(stage)
    kept += later.publish(again, 2)
    later.await_confirms()
    assert bodies(drained(stage, again, 5)) == kept


def test_an_ack_that_the_journal_missed_is_found_out_with_the_next(stage):
    """If the journal misses an ack, the next record shows the gap. The queue restarts, and both messages come back as
    redelivered.
    """
    queue, publisher = stage.declare(), Publisher(stage)
    kept = publisher.publish(queue, 4)
    publisher.await_confirms()
    drop(stage, stage.storage.journal, "append")
    for _ in range(2):
        taker = stage.create(Stub)
        assert stage.ask(queue.address, "get", taker.actorAddressString, taker, True).answer()[0] is not None
        stage.quiet()
    assert drained(stage, stage.restarted(), 4) == [(body, True) for body in kept]


def test_a_body_that_the_store_missed_is_never_confirmed(tmp_path, disk):
    """If a message store misses a body, its message is never confirmed, because the store reports each body by itself
    (FC-64).

    After the next start that message is missing, and all others are complete.
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        kept = publisher.publish(queue, 2, LARGE)
        publisher.await_confirms()
        drop(stage, stage.storage.persistent, "write")
        publisher.publish(queue, 1, LARGE)
        stage.quiet()
        kept += publisher.publish(queue, 2, LARGE)
        stage.quiet()
        assert publisher.confirmed == 2
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        assert bodies(drained(stage, stage.recovered(), 4)) == kept
