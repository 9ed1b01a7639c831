"""A disk under the test's control, and a stage with queues that use it."""

from __future__ import annotations

import pytest

from warren.actors.queue.process import Queue

from ..disk_stage import DurableStage, HeldDisk
from .holding_queue import HoldingQueue


@pytest.fixture
def disk():
    """A disk that the test can stop, fill up or make fail."""
    return HeldDisk()


@pytest.fixture
def stage(tmp_path, disk):
    """A virtual host whose queues have the real journal and message stores beside them."""
    with DurableStage(tmp_path, disk) as stage:
        yield stage


@pytest.fixture
def holding(monkeypatch):
    """Wraps the backing queue of each queue that opens in a `HoldingQueue`. Returns the list of these, in order."""
    queues, open_queue = [], Queue._open

    def open_holding(self, backing, *fields, **options):
        queues.append(HoldingQueue(backing))
        open_queue(self, queues[-1], *fields, **options)

    monkeypatch.setattr(Queue, "_open", open_holding)
    return queues
