"""The message store as a process: the same messages on the event loop and as an operating-system process."""

from __future__ import annotations

import errno
import time
from functools import partial

import pytest
from thespian.actors import ActorSystem

from warren.actors.context.disk_settings import StoreSettings
from warren.actors.disk.message_store import MessageStore
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.process import Process
from warren.store.bodies.sync_job import SyncJob
from warren.store.disk.disk import SyncFailed
from warren.store.disk.real_disk import RealDisk, RealFile
from warren.tests.file_sizes import size_of_files

WAIT = 300
BODY = b"x" * 10_000


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def named(ids):
    return [ids]


class QueueStandIn(Process):
    """Stands for a queue: sends what the test asks for, and keeps what the store sends."""

    def __init__(self):
        super().__init__()
        self.received = []
        self.store = self.down = None
        #: The process that waits, and for how many received messages.
        self.listener = None

    def on_create(self, sender):
        self.store = self.createActor(MessageStore)
        self.monitor(self.store, "store")
        return True

    def on_use(self, sender, store):
        self.store = store
        return True

    async def on_watch(self, sender, address):
        """Answered when the monitor is set: the process at `address` handles the request for it before the ask."""
        self.monitor(address, "watched")
        await self.ask(address, ("heard",))
        return True

    def on_store(self, sender):
        return self.store

    def on_tell(self, sender, message):
        self.send(self.store, message)
        return True

    def on_register(self, sender, client):
        self.send(self.store, ("register", client, self.myAddress))
        return True

    async def on_pass_on(self, sender, message):
        return await self.ask(self.store, message)

    def on_leave(self, sender):
        self.stop()
        return True

    def on_stored(self, sender, kind, ids):
        self.received.extend((kind, message_id) for message_id in ids)
        self.tell_listener()

    def on_bump(self, sender, store, amount):
        self.received.append((store, amount))
        self.tell_listener()

    def tell_listener(self):
        if self.listener is not None and len(self.received) >= self.listener[1]:
            self.reply(self.listener[0], self.received)
            self.listener = None

    def on_is_down(self, sender):
        if self.down is None:
            self.reply(sender, None)
        return self.down

    def on_down(self, name, reason):
        self.down = str(reason)

    def on_heard(self, sender, count=0):
        """Answered when `count` messages have been received."""
        self.listener = sender, count
        self.tell_listener()


def ask(system, address, *message):
    answer = system.ask(address, ("ask", 1, message), WAIT)
    assert answer is not None and answer[:3] == ("$answer", 1, True), answer
    return answer[3]


def heard(system, queue, count):
    return ask(system, queue, "heard", count)


def await_down(system, queue):
    """Wait until the store, or another process that the queue monitors, has ended, and return why."""
    deadline = time.monotonic() + WAIT
    while (reason := ask(system, queue, "is_down")) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return reason


@pytest.fixture(params=["LoopBase", "multiprocTCPBase"], scope="module")
def system(request, running_stock_system):
    if request.param == "LoopBase":
        system = ActorSystem(systemBase=LoopBase(shutdown_seconds=2.0), transientUnique=True)
        yield system
        system.shutdown()
    else:
        with running_stock_system(request.param) as system:
            yield system


def started(system, root, **settings):
    """A queue that is registered with a new store."""
    queue = system.createActor(QueueStandIn)
    ask(system, queue, "create")
    is_clean = ask(
        system,
        queue,
        "pass_on",
        ("start", StoreSettings("msg_store_persistent", RealDisk(str(root)), str(root), **settings)),
    )
    ask(system, queue, "register", "q")
    return queue, is_clean


def test_write_hear_read_remove(system, tmp_path):
    """A body is reported as written after its sync, and cannot be read after its removal."""
    queue, is_clean = started(system, tmp_path)
    assert is_clean is False
    ask(system, queue, "tell", ("write", "q", [(name(1), BODY), (name(2), b"two")]))
    assert sorted(heard(system, queue, 2)) == [("written", name(1)), ("written", name(2))]
    assert (tmp_path / "msg_store_persistent" / "1.rdq").stat().st_size > len(BODY)
    assert ask(system, queue, "pass_on", ("read_many", [name(1)])) == [BODY]
    ask(system, queue, "tell", ("remove", "q", [name(1)]))
    assert ask(system, queue, "pass_on", ("read_many", [name(1)])) == [None]
    assert ask(system, queue, "pass_on", ("read_many", [name(2), name(1)])) == [b"two", None]
    assert ask(system, queue, "pass_on", ("close",)) is True


def test_clean_stop_and_start(system, tmp_path):
    """After a clean stop the next process uses the stored index, reads bodies from the files, and appends to them."""
    queue, _ = started(system, tmp_path)
    ask(system, queue, "tell", ("write", "q", [(name(1), BODY)]))
    heard(system, queue, 1)
    assert ask(system, queue, "pass_on", ("detach", "q")) is True
    assert ask(system, queue, "pass_on", ("close",)) is True
    queue, is_clean = started(system, tmp_path, clients=["q"])
    assert is_clean is True
    assert ask(system, queue, "pass_on", ("read_many", [name(1)])) == [BODY]
    ask(system, queue, "tell", ("write", "q", [(name(2), BODY)]))
    heard(system, queue, 1)
    # The queue ends without detaching, so the store counts references again from the indexes of the queues.
    assert ask(system, queue, "pass_on", ("close",)) is True
    queue, is_clean = started(system, tmp_path, clients=["q"], references=partial(named, [name(2)]))
    assert is_clean is False
    assert ask(system, queue, "pass_on", ("read_many", [name(1), name(2)])) == [None, BODY]
    assert ask(system, queue, "pass_on", ("close",)) is True


def test_credit_and_garbage(system, tmp_path):
    """Credit comes back 800 at a time, and files without a referenced body are deleted (FC-17, FC-40)."""
    queue, _ = started(system, tmp_path)
    for first in range(0, 2400, 200):
        ask(system, queue, "tell", ("write", "q", [(name(number), BODY * 2) for number in range(first, first + 200)]))
    events = heard(system, queue, 2400 + 3)
    assert [event for event in events if event[0] == "msg_store_persistent"] == [("msg_store_persistent", 800)] * 3
    ask(system, queue, "tell", ("remove", "q", [name(number) for number in range(2400) if number % 8]))
    deadline = time.monotonic() + WAIT
    while size_of_files((tmp_path / "msg_store_persistent").glob("*.rdq")) > 32 << 20:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert ask(system, queue, "pass_on", ("read_many", [name(8), name(1600)])) == [BODY * 2, BODY * 2]
    assert ask(system, queue, "pass_on", ("close",)) is True


def test_queue_that_dies_is_counted_anew(system, tmp_path):
    """If a queue ends without detaching, the next start counts as one after an unclean end, and only bodies with
    references are kept.
    """
    queue, _ = started(system, tmp_path)
    store = ask(system, queue, "store")
    other = system.createActor(QueueStandIn)
    ask(system, other, "use", store)
    ask(system, other, "register", "other")
    ask(system, other, "tell", ("write", "other", [(name(1), BODY)]))
    heard(system, other, 1)
    # The store has monitored this process for longer than the queue has, so it gets the notice of its end first.
    ask(system, queue, "watch", other)
    ask(system, other, "leave")
    await_down(system, queue)
    assert ask(system, queue, "pass_on", ("detach", "q")) is True
    assert ask(system, queue, "pass_on", ("close",)) is True
    queue, is_clean = started(system, tmp_path, clients=["q"])
    assert is_clean is False
    assert ask(system, queue, "pass_on", ("read_many", [name(1)])) == [None]
    assert ask(system, queue, "pass_on", ("close",)) is True


def test_full_disk_is_tried_again(tmp_path, monkeypatch):
    """While the disk is full, writes are repeated, nothing is confirmed, and no process crashes (QS-35)."""
    run, failures = SyncJob.run, [OSError(errno.ENOSPC, "injected")] * 2

    def fails_at_first(job):
        if failures:
            raise failures.pop()
        run(job)

    monkeypatch.setattr(SyncJob, "run", fails_at_first)
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.05)
    system = ActorSystem(systemBase=LoopBase(shutdown_seconds=2.0), transientUnique=True)
    queue, _ = started(system, tmp_path)
    ask(system, queue, "tell", ("write", "q", [(name(1), BODY)]))
    assert ask(system, queue, "heard") == []
    assert ask(system, queue, "pass_on", ("read_many", [name(1)])) == [BODY]
    assert heard(system, queue, 1) == [("written", name(1))]
    assert not failures
    system.shutdown()


def test_failed_sync_ends_the_process(tmp_path, monkeypatch):
    """A failed sync ends the store, because it is then unknown what the disk has: asks get ProcessDown, and the next
    process recovers what was synced.
    """
    system = ActorSystem(systemBase=LoopBase(shutdown_seconds=2.0), transientUnique=True)
    queue, _ = started(system, tmp_path)
    ask(system, queue, "tell", ("write", "q", [(name(1), BODY)]))
    heard(system, queue, 1)
    with monkeypatch.context() as broken:
        broken.setattr(
            RealFile, "append_synced", lambda file, buffers: (_ for _ in ()).throw(SyncFailed(errno.EIO, "injected"))
        )
        ask(system, queue, "tell", ("write", "q", [(name(2), BODY)]))
        assert "StoreBroken" in await_down(system, queue)
    assert heard(system, queue, 1) == [("written", name(1))]
    queue, is_clean = started(system, tmp_path, references=partial(named, [name(1)]))
    assert is_clean is False
    assert ask(system, queue, "pass_on", ("read_many", [name(1), name(2)])) == [BODY, None]
    system.shutdown()


def test_a_registration_that_comes_after_that_of_the_next_process_changes_nothing(system, tmp_path):
    """A registration from a queue's crashed process that arrives late has no effect, and neither has the end of that
    process on the next one's registration.
    """
    queue, _ = started(system, tmp_path)
    late = system.createActor(QueueStandIn)
    ask(system, late, "use", ask(system, queue, "store"))
    ask(system, late, "register", "q")
    ask(system, queue, "watch", late)
    ask(system, late, "leave")
    await_down(system, queue)
    ask(system, queue, "tell", ("write", "q", [(name(1), BODY)]))
    assert heard(system, queue, 1) == [("written", name(1))]
    assert ask(system, queue, "pass_on", ("close",)) is True
