"""A virtual host may end while a commit of its journal waits for a thread, or runs. The commit must not change what the
next journal of the virtual host has written.
"""

from __future__ import annotations

import threading

import pytest

from warren.actors.disk.absent_flush import ABSENT, flush_absent
from warren.store.data_dir.vhost_dir import queue_directory
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.job_guards import JobEnded
from warren.store.disk.real_disk import RealDisk
from warren.store.journal.journal_engine import JournalEngine

from ..append_waits import AppendWaits
from ..engines import DirectLog
from .test_journal_engine import live, run_of


def opened(disk) -> JournalEngine:
    disk.make_dir("j")
    journal = JournalEngine(disk, "j")
    journal.recover()
    return journal


def publish(journal: JournalEngine, numbers: range) -> None:
    DirectLog(journal).publish(1, run_of(numbers.start, len(numbers)))


def numbers_in(journal: JournalEngine) -> list[int]:
    return sorted(live(journal.replay()[1]))


@pytest.mark.parametrize("begins_a_file", [False, True])
@pytest.mark.parametrize("is_real", [False, True], ids=["faulty", "real"])
def test_a_commit_that_had_not_begun_does_nothing(tmp_path, is_real, begins_a_file):
    """A commit of the former journal that gets a thread only now leaves the records of the next one as they are, even
    if it was to begin the file that the next one has begun. None of its records counts, because nobody was told of
    them, and the queues have given their numbers again (QS-35).

    The next journal may have a disk of its own.
    """

    def disk_of_a_start():
        return RealDisk(f"{tmp_path}") if is_real else faulty

    faulty = FaultyDisk()
    former = opened(disk_of_a_start())
    publish(former, range(4))
    former.write_all()
    if begins_a_file:
        former.rotate()
    publish(former, range(4, 6))
    late = former.take_batch()

    journal = opened(disk_of_a_start())
    publish(journal, range(6, 10))
    journal.write_all()
    with pytest.raises(JobEnded):
        former.commit(late)
    assert numbers_in(journal) == [*range(4), *range(6, 10)]
    assert numbers_in(opened(disk_of_a_start())) == [*range(4), *range(6, 10)]


def test_files_that_a_former_journal_has_retired_stay():
    """A former journal that was about to delete its old files leaves them to the next one."""
    disk = FaultyDisk()
    former = opened(disk)
    publish(former, range(4))
    former.write_all()
    former.retire(former.rotate())
    late = former.take_batch()
    former.commit(late)
    former.committed(late)

    journal = opened(disk)
    files = disk.list("j")
    with pytest.raises(JobEnded):
        former.unlink_retired(late)
    assert disk.list("j") == files
    with pytest.raises(JobEnded):
        former.replay()
    assert not journal.replay()[1].embedded.count


def test_a_recovery_waits_for_a_commit_that_runs(monkeypatch):
    """The next journal finds everything that the commit of the former one has written."""
    disk = AppendWaits()
    former = opened(disk)
    publish(former, range(4))
    late = threading.Thread(target=former.commit, args=(former.take_batch(),))
    late.start()
    assert disk.is_appending.wait(60)
    end = disk.guards.end

    def end_while_it_runs(name):
        disk.may_append.set()
        end(name)

    monkeypatch.setattr(disk.guards, "end", end_while_it_runs)
    found = numbers_in(opened(disk))
    disk.may_append.set()
    late.join()
    assert found == [0, 1, 2, 3]


def test_a_flush_for_queues_that_are_down_does_nothing_after_the_next_start():
    """The journal flushes for queues without a process. If it ends before that, its successor's queues have their
    segments for themselves.
    """
    disk = FaultyDisk()
    journal = opened(disk)
    publish(journal, range(4))
    journal.write_all()
    guard = disk.guards.begin(ABSENT)
    disk.guards.end(ABSENT)
    with pytest.raises(JobEnded):
        flush_absent(guard, disk, 16, journal.replay())
    assert not disk.list(queue_directory(1))
    assert flush_absent(disk.guards.begin(ABSENT), disk, 16, journal.replay())
    assert disk.list(queue_directory(1)) == ["0.idx"]
