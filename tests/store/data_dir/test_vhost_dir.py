"""`vhost_dir`: a virtual host's directory is opened and left (queue-and-store section 10.1)."""

from __future__ import annotations

import pytest

from warren.store.data_dir.vhost_dir import QUEUES, leave_vhost, open_vhost, queue_directory, remove_queue
from warren.store.disk.real_disk import RealDisk

ONE, TWO, THREE = 1, 2, 3
TERMS = {"next_seq_id": 7, "segments": {0: 3}}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path)


@pytest.fixture
def disk(path):
    return RealDisk(path)


def opened(disk, path, *queues, entries=16384):
    return open_vhost(disk, path, frozenset(queues), entries)


def with_segments(disk, *numbers):
    for number in numbers:
        disk.make_dir(queue_directory(number))
        disk.open(f"{queue_directory(number)}/0.idx", create=True).close()


def test_a_new_one_is_clean(disk, path):
    """A new directory has all parts and no queues, and counts as left cleanly."""
    found = opened(disk, path, ONE)
    assert (found.segment_entries, found.terms, found.numbers, found.is_complete) == (16384, {}, frozenset(), True)
    assert found.is_clean([])
    assert {"config", "journal", "queues", "recovery"} == set(disk.list(""))


def test_the_entries_of_a_segment_are_fixed_at_first_use(disk, path):
    """D-2: a virtual host keeps the number of segment entries with which it was created."""
    opened(disk, path, entries=512)
    assert opened(disk, path, entries=16384).segment_entries == 512


def test_a_crash_while_they_were_fixed(disk, path):
    """If a crash left half a number in `config`, the number of segment entries counts as not yet chosen (QS-41)."""
    disk.open("config", create=True).append([b"\2"])
    assert opened(disk, path, entries=2048).segment_entries == 2048
    assert opened(disk, path, entries=16384).segment_entries == 2048


def test_terms_count_once(disk, path):
    """The terms of a clean stop count once: when a start has taken them, a crash is an unclean end (C-22)."""
    opened(disk, path, ONE)
    leave_vhost(path, {ONE: TERMS})
    assert opened(disk, path, ONE).terms == {ONE: TERMS}
    assert opened(disk, path, ONE).terms == {}


def test_files_of_deleted_queues_are_removed(disk, path):
    """C-17: the terms and directories of queues without a row are removed, and the store must count again."""
    with_segments(disk, ONE << 8, ONE << 8 | 5, TWO << 8, TWO << 8 | 1)
    leave_vhost(path, {ONE: TERMS, TWO: TERMS})
    found = opened(disk, path, ONE)
    assert found.numbers == {ONE << 8, ONE << 8 | 5} and found.terms == {ONE: TERMS}
    assert disk.list(QUEUES) == ["100", "105"]
    assert not found.is_complete
    leave_vhost(path, {ONE: TERMS})
    assert opened(disk, path, ONE).is_complete


def test_a_deletion_that_a_crash_interrupted_is_finished(disk, path):
    """C-16, QS-23: directories with a tombstone's name are removed, whichever queue they belonged to."""
    with_segments(disk, ONE << 8)
    disk.rename(queue_directory(ONE << 8), f"{queue_directory(ONE << 8)}.deleted")
    found = opened(disk, path, ONE)
    assert found.numbers == frozenset() and disk.list(QUEUES) == []
    assert found.is_complete and found.is_clean([])


def test_an_end_is_clean_if_that_of_every_queue_was(disk, path):
    """C-21: a queue without terms, or a journal with messages or acks, means an unclean end."""
    with_segments(disk, ONE << 8, TWO << 8 | 3)
    leave_vhost(path, {ONE: TERMS, TWO: TERMS})
    found = opened(disk, path, ONE, TWO)
    assert found.is_clean([]) and not found.is_clean([ONE << 8])
    leave_vhost(path, {ONE: TERMS})
    assert not opened(disk, path, ONE, TWO).is_clean([])
    leave_vhost(path, {ONE: TERMS, TWO: TERMS, THREE: TERMS})
    assert opened(disk, path, ONE, TWO, THREE).is_clean([]), "a queue that never had anything has no directory"


def test_a_queue_is_removed_with_all_its_levels(disk, path):
    """QS-23, QS-36: the directories of all levels of one queue are removed, and no others."""
    opened(disk, path)
    with_segments(disk, ONE << 8, ONE << 8 | 255, TWO << 8)
    remove_queue(disk, ONE)
    assert disk.list(QUEUES) == ["200"]
    remove_queue(disk, ONE)
    assert disk.list(QUEUES) == ["200"]
