"""`DiskRetry` repeats a write until the disk accepts it; `Backoff` gives waits that grow."""

from __future__ import annotations

import errno
import logging

import pytest

from warren.actors.disk.disk_retry import FIRST_WAIT, LONGEST_WAIT, Backoff, DiskRetry
from warren.runtime.process import Process

from ..stage import Stage, Stub


class Writer(Process):
    """Writes once, after `failures` attempts that fail."""

    is_given_up = False
    result = None

    async def on_write(self, sender, alarms, failures):
        self.attempts = 0

        def job():
            self.attempts += 1
            if self.attempts <= failures:
                raise OSError(errno.ENOSPC, "No space left on device")
            return "written"

        retry = DiskRetry(self, "the file", alarms)
        try:
            self.result = await retry.run(job, is_given_up=lambda: self.is_given_up)
        except OSError:
            self.result = "given up"

    def on_give_up(self, sender):
        self.is_given_up = True


@pytest.fixture
def stage(monkeypatch):
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.01)
    with Stage() as stage:
        yield stage


def written(stage, writer, alarms, failures):
    """The result of a write that succeeds after `failures` failed attempts."""
    stage.tell(writer, writer, "write", alarms, failures)
    stage.until(lambda: stage.actor(writer).result)
    stage.settle()
    return stage.actor(writer).result


def test_a_write_is_repeated_until_it_works(stage, caplog):
    """A write is repeated until it succeeds. The disk alarm is raised and cleared once, and the log has one line for
    each (QS-35).
    """
    writer, alarms = stage.create(Writer), stage.create(Stub)
    with caplog.at_level(logging.INFO, "warren.disk"):
        assert written(stage, writer, alarms, 3) == "written"
    assert stage.actor(alarms).take("set") == [("disk", on, "the file", writer) for on in (True, False)]
    began, ended = [record.getMessage() for record in caplog.records]
    assert began.startswith("the file cannot be written: [Errno 28] No space left on device. No message is confirmed")
    assert ended == "the file is written again"


def test_a_write_that_works_is_not_reported(stage, caplog):
    writer, alarms = stage.create(Writer), stage.create(Stub)
    assert written(stage, writer, alarms, 0) == "written"
    assert not stage.actor(alarms).received and not caplog.records


def test_it_can_be_given_up(stage):
    """After a write was given up, the next failed attempt raises its error."""
    writer = stage.create(Writer)
    stage.tell(writer, writer, "give_up")
    assert written(stage, writer, None, 1) == "given up"


def test_waits_between_starts_grow():
    backoff = Backoff()
    waits = [backoff.next() for _ in range(10)]
    assert waits[:3] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert waits[-2:] == [LONGEST_WAIT, LONGEST_WAIT]
