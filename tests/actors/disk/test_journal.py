"""The journal of a virtual host: first among stub queues on a stage whose disk a test can hold, and then as an
operating-system process.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import pytest
from thespian.actors import ActorExitRequest, ActorSystem

from warren.actors.context.disk_settings import JournalSettings
from warren.actors.disk import journal as journal_module
from warren.actors.disk.journal import Journal
from warren.amqp.frames import build_content
from warren.runtime.credit import STORE_PAIR
from warren.runtime.errors import ProcessDown
from warren.runtime.exit_reason import NORMAL
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.process import Process
from warren.store.data_dir.vhost_dir import queue_directory, remove_queue
from warren.store.disk.real_disk import RealDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.log_writer import LogWriter
from warren.store.messages.message import Origin
from warren.store.messages.run import Run

from ..disk_stage import SEGMENT, DiskStage, HeldDisk
from ..stage import CRASHED, Stub

PERSISTENT = Origin("x", ("k",), persistent=True)
ONE, TWO = 1, 2
NO_SPACE = OSError(errno.ENOSPC, "injected")
WAIT = 300


def run_of(first: int, count: int, size: int = 5) -> Run:
    contents = [
        build_content(1, b"\x10\x00\x02", b"%d" % number + b"x" * size, 131072)
        for number in range(first, first + count)
    ]
    return Run(
        first,
        contents,
        PERSISTENT,
        None,
        False,
        sum(len(b"%d" % number) + size for number in range(first, first + count)),
    )


def bodies_in(replayed) -> list[int]:
    """The bodies of the messages that the journal has replayed for one level of a queue."""
    return [
        number
        for run in replayed.embedded.runs
        for piece in run.without_holes()
        for number in range(piece.first, piece.end)
    ]


class SlowFlusher(Stub):
    """Stands for a queue that ends its flush only when the test sends `done`."""

    def __init__(self):
        super().__init__()
        self.flushing = []

    def on_flush_synced(self, sender):
        self.flushing.append(sender)

    def on_done(self, sender):
        self.reply(self.flushing.pop(), True)


class Writer:
    """A queue's side of the journal: appends records, and keeps what the journal sends."""

    def __init__(self, stage: JournalStage, queue: int, process: type[Stub] = Stub, opens: bool = False) -> None:
        self.stage, self.queue, self.number = stage, queue, queue << 8
        self.address = stage.create(process)
        self.actor.answers = {"flush_synced": True}
        self.log = LogWriter()
        self.next = 0
        if opens:
            self.question = stage.ask(stage.journal, "open", queue, self.address)
        else:
            stage.tell(self.address, stage.journal, "register", queue, self.address)

    @property
    def actor(self):
        return self.stage.actor(self.address)

    def publish(self, count: int = 1, size: int = 5) -> int:
        """Append messages; return the position at which they are durable."""
        position = self.log.publish(self.number, run_of(self.next, count, size))
        self.next += count
        self.send()
        return position

    def ack(self, *numbers: int) -> int:
        position = self.log.ack(self.number, [range(number, number + 1) for number in numbers])
        self.send()
        return position

    def send(self) -> None:
        is_awaited = self.log.is_awaited
        gathered, position = self.log.take(), self.log.position
        self.stage.tell(self.address, self.stage.journal, "append", self.queue, gathered, position, is_awaited)

    def received(self, name: str) -> list:
        return [message[-1] for message in self.actor.take(name)]

    def synced(self) -> None:
        """Wait until all it has appended is durable."""
        self.stage.until(lambda: ("durable", self.log.position) in self.actor.received)
        self.actor.take("durable")

    def publish_until(self, condition: Callable[[], object]) -> None:
        """Append one message after the other until `condition`. At most 50 wait for their commit at a time; otherwise
        each commit would write more than the one before.
        """

        def go_on() -> bool:
            durable = max([message[1] for message in self.actor.received if message[0] == "durable"], default=begun)
            if self.log.position - durable < 50:
                self.publish(1, 800)
            return bool(condition())

        begun = self.log.position
        self.stage.until(go_on)

    def replayed(self) -> list[int]:
        """The answer to `open`."""
        found = self.question.answer()
        assert found.keys() <= {self.number}
        return bodies_in(found[self.number]) if found else []


class JournalStage(DiskStage):
    def __init__(self, disk: HeldDisk, queues: tuple[int, ...] = (ONE, TWO), **settings) -> None:
        super().__init__(disk)
        for directory in ("journal", "queues"):
            disk.make_dir(directory)
        self.journal = self.create(Journal)
        self.found = self.ask(
            self.journal, "start", JournalSettings(disk, frozenset(queues), SEGMENT, "/", self.alarms, **settings)
        ).answer()
        self.journaled = self.found.levels

    def files(self) -> list[str]:
        return self.disk.list("journal")


@pytest.fixture
def disk():
    return HeldDisk()


@pytest.fixture
def stage(disk):
    with JournalStage(disk) as stage:
        yield stage


# --- commits ---


def test_appends_during_a_sync_share_the_next_one(stage, disk):
    """Appends that arrive during a sync are written by the next one, which serves all queues. Nothing is reported as
    durable before, and an idle journal syncs at once (QS-17, QS-19).
    """
    one, two = Writer(stage, ONE), Writer(stage, TWO)
    one.publish()
    stage.quiet()
    assert one.received("durable") == [1]
    disk.hold()
    one.publish()
    stage.is_held()
    for _ in range(5):
        one.publish()
        two.publish(2)
    stage.settle()
    assert one.received("durable") == two.received("durable") == []
    before = disk.syncs
    disk.release()
    stage.quiet()
    assert (one.received("durable"), two.received("durable")) == ([2, 7], [5])
    assert disk.syncs == before + 2


def test_a_commit_for_many_queues_is_reported_in_several_turns(stage, disk, monkeypatch):
    """After a sync the journal reports to some queues in each turn, to each once, and syncs the next batch meanwhile. A
    queue whose process was replaced before its report gets none.
    """
    monkeypatch.setattr(journal_module, "REPORTED_AT_ONCE", 2)
    reported = []
    report = Journal._report

    def recorded(journal):
        before = len(journal._unreported)
        report(journal)
        reported.append(before - len(journal._unreported))

    monkeypatch.setattr(Journal, "_report", recorded)
    writers = [Writer(stage, queue) for queue in range(1, 8)]
    disk.hold()
    writers[0].publish()
    stage.is_held()
    for writer in writers:
        writer.publish(3)
        writer.publish(2)
    stage.settle()
    stage.base.end(stage.base.cells[writers[6].address.actorAddressString], CRASHED)
    disk.release()
    stage.quiet()
    assert [writer.received("durable") for writer in writers[:6]] == [[1, 3], *[[2]] * 5]
    assert max(reported) == 2 and sum(reported) == 7, "queue 1 twice, queues 2 to 6 once"


def test_credit_comes_back_for_messages_that_are_on_disk(stage, disk):
    """The journal returns 800 of 4,000 credits when 800 messages are on disk; acks cost no credit (FC-16, FC-19)."""
    initial, more = STORE_PAIR
    one = Writer(stage, ONE)
    disk.hold()
    one.publish(more)
    one.ack(*range(10))
    stage.is_held()
    assert one.received("bump") == []
    disk.release()
    stage.quiet()
    assert one.received("bump") == [more]
    one.publish(initial - more - 1)
    stage.quiet()
    assert sum(one.received("bump")) == initial - 2 * more


def test_a_commit_that_failed_is_made_again(stage, disk, monkeypatch):
    """A failed commit is repeated. Meanwhile nothing is confirmed, publishers are blocked, and later appends wait
    (QS-35).
    """
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    one = Writer(stage, ONE)
    disk.fail("append", NO_SPACE, NO_SPACE)
    one.publish()
    stage.until(lambda: stage.actor(stage.alarms).received)
    assert stage.disk_alarms() == [True]
    one.publish()
    stage.settle()
    assert one.received("durable") == []
    one.synced()
    stage.quiet()
    assert stage.disk_alarms() == [False]
    stage.close()
    with JournalStage(disk) as again:
        assert Writer(again, ONE, opens=True).replayed() == [0, 1]


def test_a_failed_sync_ends_it(stage, disk):
    """A failed sync ends the journal, because it is then unknown what the disk has: asks get ProcessDown, and nothing
    is reported as durable.
    """
    one = Writer(stage, ONE)
    one.publish()
    one.synced()
    disk.fail("sync", OSError(errno.EIO, "injected"))
    one.publish()
    with pytest.raises(ProcessDown, match="JournalBroken"):
        stage.ask(stage.journal, "close").answer()
    assert not stage.is_alive(stage.journal)
    assert one.received("durable") == []


def test_an_append_of_a_forgotten_queue_is_ignored(stage):
    one, two = Writer(stage, ONE), Writer(stage, TWO)
    one.publish()
    two.publish()
    stage.tell(two.address, stage.journal, "forget", TWO)
    two.publish()
    one.publish()
    one.synced()
    stage.quiet()
    assert two.received("durable") == []


# --- queues that start again ---


def test_a_queue_that_crashed_gets_back_what_it_had(stage):
    """A queue whose process crashed gets its records back from the journal's files, which are the only place where they
    are (QS-37, queue-and-store section 10.1).
    """
    one, two = Writer(stage, ONE), Writer(stage, TWO)
    one.publish(3)
    two.publish(1)
    one.ack(1)
    one.synced()
    stage.base.end(stage.base.cells[one.address.actorAddressString], CRASHED)
    again = Writer(stage, ONE, opens=True)
    assert again.replayed() == [0, 2]
    again.next = 3
    again.publish()
    again.synced()
    assert two.received("durable") == [1]


def test_a_registration_that_comes_after_the_next_process_has_opened_changes_nothing(stage):
    """A registration from the queue's crashed process that arrives after its next process has opened has no effect."""
    again = Writer(stage, ONE, opens=True)
    assert again.replayed() == []
    late = Writer(stage, ONE)
    stage.base.end(stage.base.cells[late.address.actorAddressString], CRASHED)
    again.publish()
    again.synced()


def test_a_queue_that_starts_again_need_not_wait_for_a_pause(stage, disk):
    """The replay for a restarted queue is done before the next commit, even if other queues append without a pause."""
    one, two = Writer(stage, ONE), Writer(stage, TWO)
    one.publish(2)
    one.synced()
    disk.hold()
    two.publish()
    stage.is_held()
    stage.base.end(stage.base.cells[one.address.actorAddressString], CRASHED)
    again = Writer(stage, ONE, opens=True)
    disk.release()
    two.publish_until(lambda: again.question.is_answered)
    assert again.replayed() == [0, 1]
    two.synced()


def test_a_new_process_takes_the_place_of_the_old_one(stage):
    """A queue's new process waits for the end of the old one, and gets all that the old one has appended."""
    one = Writer(stage, ONE)
    one.publish(2)
    one.synced()
    again = Writer(stage, ONE, opens=True)
    one.publish()
    stage.settle()
    assert not again.question.is_answered
    stage.base.end(stage.base.cells[one.address.actorAddressString], CRASHED)
    assert again.replayed() == [0, 1, 2]
    again.next = 3
    again.publish()
    again.synced()
    stage.quiet()


def test_after_a_kill_every_queue_gets_its_own(stage, disk):
    """After a kill each queue gets its own records, and those of deleted queues are ignored (C-6, QS-38)."""
    one, two = Writer(stage, ONE), Writer(stage, TWO)
    one.publish(3)
    two.publish(2)
    one.ack(0)
    one.synced()
    two.synced()
    stage.close()
    with JournalStage(disk, queues=(ONE,)) as again:
        assert again.journaled == {ONE << 8}
        assert Writer(again, ONE, opens=True).replayed() == [1, 2]
        assert Writer(again, TWO, opens=True).replayed() == []


def test_a_queue_forgotten_is_forgotten_for_good(stage, disk):
    """No record of a queue that was forgotten comes back, whether the queue ran at that moment or not (C-16, C-17)."""
    one, two = Writer(stage, ONE), Writer(stage, TWO)
    one.publish(3)
    two.publish(3)
    two.synced()
    stage.tell(one.address, stage.journal, "forget", ONE)
    stage.quiet()
    stage.close()
    with JournalStage(disk) as again:
        assert again.journaled == {TWO << 8}
        again.tell(again.metadata, again.journal, "forget", TWO)
        again.quiet()
        assert Writer(again, TWO, opens=True).replayed() == []
    with JournalStage(disk) as again:
        assert again.journaled == set()


# --- freeing files ---


def filled(disk: HeldDisk, **processes: type[Stub]) -> tuple[JournalStage, Writer, Writer]:
    """A journal that is about to free its first file, which is closed and contains a message of each queue."""
    stage = JournalStage(disk, file_limit=2000)
    one, two = Writer(stage, ONE, processes.get("one", Stub)), Writer(stage, TWO, processes.get("two", Stub))
    two.publish()
    one.publish(2, size=800)
    one.synced()
    assert stage.files() == ["000001.wal"]
    one.publish(1, size=800)
    one.synced()
    return stage, one, two


def test_files_are_freed_when_every_queue_has_flushed(disk):
    """A file is freed only when every queue has flushed its records; records that were appended meanwhile
    stay (QS-21).
    """
    stage, one, two = filled(disk, one=SlowFlusher)
    with stage:
        stage.until(lambda: one.actor.flushing)
        stage.quiet()
        assert len(two.actor.take("flush_synced")) == 1
        assert stage.files() == ["000001.wal", "000002.wal"]
        one.publish()
        one.synced()
        stage.tell(one.address, one.address, "done")
        stage.until(lambda: stage.files() == ["000002.wal"])
        stage.quiet()
        assert stage.disk_alarms() == []


def test_a_queue_learns_what_is_on_the_disk_before_it_flushes(disk, monkeypatch):
    """However many queues a commit has to be reported to, each of them gets its report before it is asked to flush.

    A flush leaves out the dead letters that the queue has taken by records that it takes for unwritten. The journal
    deletes these records after the flush, so a crash would lose such dead letters.
    """
    # No turn passes in which the journal could report the rest of a commit.
    monkeypatch.setattr(Journal, "_report", lambda journal: None)
    with JournalStage(disk, file_limit=2000) as stage:
        writers = [Writer(stage, queue) for queue in range(1, 8)]
        for writer in writers:
            writer.publish()
        stage.quiet()
        writers[0].publish(1, size=2000)  # begins another file
        stage.until(lambda: "000001.wal" not in stage.files())
        for writer in writers:
            assert [message[0] for message in writer.actor.received][:2] == ["durable", "flush_synced"]


def test_a_queue_that_crashes_while_it_flushes_keeps_the_files(disk, monkeypatch):
    """If a queue crashes during its flush, the files are kept, because its next process recovers from them; a later
    attempt frees them.
    """
    monkeypatch.setattr("warren.actors.disk.file_freeing.RETRY_SECONDS", 0.02)
    stage, one, _ = filled(disk, one=SlowFlusher)
    with stage:
        stage.until(lambda: one.actor.flushing)
        stage.base.end(stage.base.cells[one.address.actorAddressString], CRASHED)
        again = Writer(stage, ONE, opens=True)
        assert again.replayed() == [0, 1, 2]
        assert "000001.wal" in stage.files()
        again.next = 3
        again.publish_until(lambda: "000001.wal" not in stage.files())


def segments_of(disk: HeldDisk, number: int) -> list[int]:
    """The numbers of unacknowledged entries in a queue's segments."""
    index = QueueIndex(disk, queue_directory(number), number, LogWriter(), SEGMENT)
    index.scan(None, None)
    return [number for run, _ in index.read(0, SEGMENT) for number in range(run.first, run.end)]


def test_the_journal_flushes_for_a_queue_that_is_down(disk):
    """The journal flushes the records of a queue that is down, which would otherwise keep the files of all queues
    (QS-25).

    Its records are then in its segments, also after a kill.
    """
    stage = JournalStage(disk, file_limit=2000)
    with stage:
        one, two = Writer(stage, ONE), Writer(stage, TWO)
        one.publish(3)
        one.ack(1)
        one.synced()
        stage.base.end(stage.base.cells[one.address.actorAddressString], CRASHED)
        two.publish(4, size=800)
        two.publish_until(lambda: "000001.wal" not in stage.files())
        stage.quiet()
        assert segments_of(disk, ONE << 8) == [0, 2]
        again = Writer(stage, ONE, opens=True)
        assert again.question.answer()[ONE << 8].next_number == 3, "a number is never given twice"
        assert again.replayed() == []
    with JournalStage(disk) as again:
        assert ONE << 8 not in again.journaled


def hold_a_flush_for_a_crashed_queue(stage, disk):
    """Have the journal flush for queue ONE, whose process has crashed, and the disk keep the flush waiting."""
    one, two = Writer(stage, ONE), Writer(stage, TWO)
    one.publish(3)
    one.synced()
    stage.base.end(stage.base.cells[one.address.actorAddressString], CRASHED)
    two.publish(2, 800)
    two.synced()
    two.publish(1, 800)
    two.synced()
    disk.hold()
    stage.is_held()


def test_a_queue_that_opens_while_the_journal_flushes_for_it_waits(disk):
    """A queue that opens while the journal flushes for it waits, because otherwise both would write the
    same segments.
    """
    stage = JournalStage(disk, file_limit=2000)
    with stage:
        hold_a_flush_for_a_crashed_queue(stage, disk)
        again = Writer(stage, ONE, opens=True)
        stage.settle()
        assert not again.question.is_answered
        disk.release()
        again.question.answer()
        stage.until(lambda: stage.files() == ["000002.wal"])
        assert segments_of(disk, ONE << 8) == [0, 1, 2]


def test_a_queue_that_is_deleted_while_the_journal_flushes_for_it(disk):
    """A queue without a process is deleted while the journal flushes for it. The deletion waits: otherwise the flush
    would leave a segment behind, and its size in the journal (C-16).
    """
    stage = JournalStage(disk, file_limit=2000)
    with stage:
        hold_a_flush_for_a_crashed_queue(stage, disk)
        forgotten = stage.ask(stage.journal, "forget", ONE)
        stage.settle()
        assert not forgotten.is_answered
        disk.release()
        assert forgotten.answer() is True
        remove_queue(disk, ONE)
        stage.quiet()
        assert not disk.list(queue_directory(ONE << 8))
    with JournalStage(disk) as again:
        assert ONE << 8 not in again.actor(again.journal).files.numbers


def test_a_queue_that_opened_while_the_others_flushed_is_asked_too(disk):
    """A queue that was down when the others were asked to flush, and runs when the journal flushes for queues that are
    down, is asked as well (QS-25).
    """
    stage = JournalStage(disk, file_limit=2000)
    with stage:
        one, two = Writer(stage, ONE, SlowFlusher), Writer(stage, TWO)
        two.publish()
        two.synced()
        stage.base.end(stage.base.cells[two.address.actorAddressString], CRASHED)
        for _ in range(3):
            one.publish(1, 800)
            one.synced()
        stage.until(lambda: one.actor.flushing)
        again = Writer(stage, TWO, SlowFlusher, opens=True)
        assert again.replayed() == [0]
        stage.tell(one.address, one.address, "done")
        stage.until(lambda: again.actor.flushing)
        stage.quiet()
        assert stage.files() == ["000001.wal", "000002.wal"]
        stage.tell(again.address, again.address, "done")
        stage.until(lambda: stage.files() == ["000002.wal"])


# --- the end ---


def test_a_closed_journal_has_only_the_next_numbers(stage, disk):
    """After a clean stop, at which every queue flushed and detached, the journal has only each queue's next number, so
    that no number is given twice.
    """
    one = Writer(stage, ONE)
    one.publish(3)
    one.ack(0, 1, 2)
    stage.tell(one.address, stage.journal, "detach", ONE, {})
    assert stage.ask(stage.journal, "close").answer() is True
    stage.quiet()
    assert not stage.is_alive(stage.journal)
    assert len(stage.files()) == 1
    stage.close()
    with JournalStage(disk) as again:
        assert again.journaled == set()
        found = Writer(again, ONE, opens=True).question.answer()
        assert found[ONE << 8].is_empty and found[ONE << 8].next_number == 3


@pytest.mark.parametrize("is_down", [True, False])
def test_a_queue_that_did_not_end_in_order_is_found_at_the_next_start(stage, disk, is_down):
    """The records of a queue that did not detach, whether it was down or running, are found at the next start, because
    only the journal has them.
    """
    one, two = Writer(stage, ONE), Writer(stage, TWO)
    one.publish(3)
    two.publish(3)
    one.synced()
    if is_down:
        stage.base.end(stage.base.cells[one.address.actorAddressString], CRASHED)
    stage.tell(two.address, stage.journal, "detach", TWO, {})
    assert stage.ask(stage.journal, "close").answer() is True
    stage.close()
    with JournalStage(disk) as again:
        assert Writer(again, ONE, opens=True).replayed() == [0, 1, 2]


def test_closing_waits_for_what_was_appended(stage, disk):
    one = Writer(stage, ONE)
    disk.hold()
    one.publish(2)
    stage.is_held()
    one.publish(2)
    closing = stage.ask(stage.journal, "close")
    stage.settle()
    assert not closing.is_answered
    disk.release()
    assert closing.answer() is True
    assert one.received("durable") == [1, 2]


# --- as an operating-system process ---


class QueueStandIn(Process):
    """Stands for a queue: creates a journal, appends to it, and keeps what the journal sends."""

    def __init__(self):
        super().__init__()
        self.received = []
        self.log = LogWriter()

    async def on_create(self, sender, root, file_limit):
        self.journal = self.createActor(Journal)
        self.monitor(self.journal, "journal")
        found = await self.ask(
            self.journal, ("start", JournalSettings(RealDisk(root), frozenset({ONE}), SEGMENT, "/", None, file_limit))
        )
        return found.levels

    async def on_open(self, sender):
        found = await self.ask(self.journal, ("open", ONE, self.myAddress))
        return {number: (bodies_in(replayed), replayed.next_number) for number, replayed in found.items()}

    def on_register(self, sender):
        self.send(self.journal, ("register", ONE, self.myAddress))
        return True

    def on_publish(self, sender, first, count, size):
        self.log.publish(ONE << 8, run_of(first, count, size))
        self.send(self.journal, ("append", ONE, self.log.take(), self.log.position, True))
        return True

    def on_durable(self, sender, position):
        self.received.append(("durable", position))

    def on_bump(self, sender, peer, amount):
        self.received.append((peer, amount))

    def on_flush_synced(self, sender):
        self.received.append(("flush_synced", None))
        return True

    def on_heard(self, sender):
        return self.received

    def on_kill(self, sender):
        self.send(self.journal, ActorExitRequest())
        return True

    async def on_close(self, sender):
        self.send(self.journal, ("detach", ONE, {}))
        return await self.ask(self.journal, ("close",))

    def on_down(self, name, reason):
        self.received.append(("down", reason))


@pytest.fixture(params=["LoopBase", "multiprocTCPBase"])
def system(request, running_stock_system):
    if request.param == "LoopBase":
        system = ActorSystem(systemBase=LoopBase(shutdown_seconds=2.0), transientUnique=True)
        yield system
        system.shutdown()
    else:
        with running_stock_system(request.param) as system:
            yield system


def ask(system, address, *message):
    answer = system.ask(address, ("ask", 1, message), WAIT)
    assert answer is not None and answer[:3] == ("$answer", 1, True), answer
    return answer[3]


def await_event(system, queue, event):
    until(lambda: event in ask(system, queue, "heard"))


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def test_the_process(system, tmp_path):
    """Append, flush, kill, replay and close work on the event loop and in an operating-system process."""
    for directory in ("journal", "queues"):
        (tmp_path / directory).mkdir()
    queue = system.createActor(QueueStandIn)
    assert ask(system, queue, "create", str(tmp_path), 100_000) == set()
    ask(system, queue, "register")
    ask(system, queue, "publish", 0, 800, 10)
    await_event(system, queue, ("durable", 1))
    await_event(system, queue, ("journal", 800))
    ask(system, queue, "publish", 800, 10, 10_000)
    ask(system, queue, "publish", 810, 1, 10)
    await_event(system, queue, ("flush_synced", None))
    await_event(system, queue, ("durable", 3))
    ask(system, queue, "kill")
    until(lambda: any(name == "down" for name, _ in ask(system, queue, "heard")))

    queue = system.createActor(QueueStandIn)
    ask(system, queue, "create", str(tmp_path), 100_000)
    ((number, (_, next_number)),) = ask(system, queue, "open").items()
    assert (number, next_number) == (ONE << 8, 811)
    assert ask(system, queue, "close") is True
    await_event(system, queue, ("down", NORMAL))
    again = system.createActor(QueueStandIn)
    assert ask(system, again, "create", str(tmp_path), 100_000) == set()
    assert ask(system, again, "open") == {ONE << 8: ([], 811)}
