"""Queue-and-store section 6.10: Thespian's transport drops messages of a sender that has too many in flight.

A message from a queue to the journal or a store that did not arrive must never look like success.
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
    """The next message of that name does not arrive."""
    cell = stage.base.cells[address.actorAddressString]
    handlers = cell.handlers

    def dropped(actor, sender, *fields):
        cell.handlers = handlers

    cell.handlers = {**handlers, name: dropped}


def test_what_the_journal_missed_is_not_confirmed(stage):
    """FC-64: what was sent after it is not confirmed either. The queue starts again with what is on the disk. Its
    channels refuse the publishes that were not confirmed, and the queue goes on.
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
    """The next record shows the gap, so the queue starts again, and both messages come back, redelivered."""
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
    """FC-64: the store answers for each body by itself.

    After the next start that message is missing, and all others are whole.
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
