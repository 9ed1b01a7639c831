"""Records for which nobody waits go to the journal together with others, or a few milliseconds later by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.actors.contracts.queue import to_queue
from warren.actors.disk.journal import SIZES_SECONDS, UNAWAITED_SECONDS, Journal
from warren.actors.queue.disk.disk_levels import SIZES_WAIT_SECONDS
from warren.store.bodies.sync_job import SyncJob
from warren.store.data_dir.file_limits import FileLimits
from warren.store.index.segment_jobs import FlushJob

from ..sim_vhost import SimQueue, SimVhost, content

#: Bytes of a body that is embedded in the index, and of one that goes to the message store.
SMALL, LARGE = 1, 100


@pytest.fixture
def vhost(tmp_path: Path) -> Iterator[SimVhost]:
    vhost = SimVhost(tmp_path, limits=FileLimits(embed_below=60))
    vhost.start()
    yield vhost
    vhost.kill()


@pytest.fixture
def queue(vhost: SimVhost) -> SimQueue:
    """The queue of the virtual host, after everything that its start has written."""
    vhost.write_all()
    return vhost.queue


def publish(queue: SimQueue, size: int, count: int = 1) -> list[int]:
    """Publish, and have a consumer take everything; returns the tags."""
    first = len(queue.published)
    queue.publish([content(first + at, size) for at in range(count)])
    return [got.tag for got in queue.fetch(count)]


def spare_a_body(vhost: SimVhost, queue: SimQueue) -> None:
    """Have a body acknowledged before the store has written it. Since that spares a write, the store holds the next
    bodies back.
    """
    queue.ack(publish(queue, LARGE))
    vhost.write_all()
    assert queue.confirmed == {1}


def test_acknowledgements_alone_wait_for_a_moment(vhost, queue):
    tags = publish(queue, SMALL, 4)
    vhost.write_all()
    for tag in tags[:3]:
        queue.ack([tag])
    assert not vhost.waits(Journal)
    vhost.pass_time()
    commits = vhost.journal.files.durable
    vhost.make(vhost.call(Journal))
    vhost.turn()
    assert vhost.journal.files.durable == commits + 3, "one commit has all of them"
    assert not vhost.waits(Journal)
    vhost.kill()
    vhost.start()
    assert [got.tag for got in vhost.queue.look()] == tags[3:]


def test_a_publish_takes_the_acknowledgements_along_at_once(vhost, queue):
    tags = publish(queue, SMALL, 2)
    vhost.write_all()
    queue.ack(tags[:1])
    assert not vhost.waits(Journal)
    queue.publish([content(9, SMALL)])
    vhost.make(vhost.call(Journal))
    vhost.turn()
    assert queue.confirmed == {1, 2, 3}
    vhost.kill()
    vhost.start()
    assert [got.tag for got in vhost.queue.look()] == [1, 2]


def test_records_without_bodies_wait_while_consumers_keep_up(vhost, queue):
    """While consumers keep up, the record of a message waits, because the store holds its body back; the
    acknowledgement confirms the message.
    """
    spare_a_body(vhost, queue)
    queue.publish([content(2, LARGE)])
    assert not vhost.waits(Journal)
    queue.ack([got.tag for got in queue.fetch(1)])
    assert queue.confirmed == {1, 2}


def test_records_follow_their_bodies_at_once(vhost, queue):
    """Once consumers no longer keep up, a record follows its body at once: a confirm waits for the store and for one
    commit, and for no timer.
    """
    spare_a_body(vhost, queue)
    queue.publish([content(2, LARGE)])
    while not vhost.waits(SyncJob):
        assert not vhost.waits(Journal)
        assert vhost.world.step(vhost.world.time + 1.0)
    began = vhost.world.time
    vhost.make_all(SyncJob)
    vhost.make(vhost.call(Journal))
    vhost.turn()
    assert vhost.world.time - began < 0.001
    assert queue.confirmed == {1, 2}
    # The store has written a body, so the next one does not wait either.
    queue.publish([content(3, LARGE)])
    assert vhost.waits(Journal)


def test_a_purge_is_answered_after_a_commit_of_its_own(vhost, queue):
    publish(queue, SMALL, 2)
    queue.publish([content(3, SMALL)])
    vhost.write_all()
    answer = queue.begin(to_queue.purge())
    assert not answer.is_here
    vhost.make_all(Journal)
    assert answer.value() == 1


def test_many_bytes_of_acknowledgements_do_not_wait(vhost, queue, monkeypatch):
    monkeypatch.setattr("warren.actors.disk.journal.UNAWAITED_BYTES", 100)
    tags = publish(queue, SMALL, 40)
    vhost.write_all()
    while not vhost.waits(Journal):
        queue.ack([tags.pop()])
    assert 30 < len(tags) < 39


@pytest.fixture
def lazy_queue(vhost: SimVhost, queue: SimQueue, monkeypatch: pytest.MonkeyPatch) -> SimQueue:
    """A lazy queue whose messages go to its segments and not to the journal, as those of large batches do."""
    monkeypatch.setattr("warren.store.queue.variable.variable_queue.DIRECT_BYTES", 1)
    queue.set_mode("lazy")
    queue.publish([content(0, SMALL)])  # reserves numbers, for which the next messages need no record
    vhost.write_all()
    vhost.world.run(SIZES_WAIT_SECONDS + SIZES_SECONDS)
    vhost.write_all()
    return queue


def flush(vhost: SimVhost, queue: SimQueue, mark: int) -> None:
    """Publish, and have a flush confirm the message. Then the queue records the size of its segment."""
    (number,) = queue.publish([content(mark, SMALL)])
    vhost.make_all(FlushJob)
    assert number in queue.confirmed


def test_sizes_of_segments_wait_longer_than_acknowledgements(vhost, lazy_queue):
    before = vhost.journal.files.durable
    for mark in range(1, 4):
        flush(vhost, lazy_queue, mark)
        vhost.world.run(UNAWAITED_SECONDS * 2)
        assert not vhost.waits(Journal)
    vhost.world.run(SIZES_WAIT_SECONDS + SIZES_SECONDS)
    vhost.make(vhost.call(Journal))
    vhost.turn()
    assert vhost.journal.files.durable == before + 1, "one record has the size after the last flush"
    assert not vhost.waits(Journal)


def test_an_acknowledgement_does_not_wait_as_long_as_the_sizes_before_it(vhost, lazy_queue):
    flush(vhost, lazy_queue, 1)
    flush(vhost, lazy_queue, 2)
    before = vhost.journal.files.durable
    lazy_queue.ack([got.tag for got in lazy_queue.fetch(1)])
    vhost.world.run(UNAWAITED_SECONDS * 2)
    vhost.make(vhost.call(Journal))
    vhost.turn()
    assert vhost.journal.files.durable == before + 2, "the size after both flushes, and an acknowledgement"


def shorten(vhost: SimVhost, path: str) -> None:
    """Cut a file of the disk to half its size, as whoever copies a data directory may do."""
    file = vhost.disk.open(path)
    file.truncate(file.size() // 2)
    file.close()


def segment_of(queue: SimQueue) -> str:
    (level,) = queue.levels.values()
    return level._index._path(0)


def test_a_synced_flush_is_answered_when_the_sizes_before_it_are_recorded(vhost, lazy_queue):
    """The journal gives up its older files at the answer. From then on only the size tells whether a segment has all of
    its messages.
    """
    began = vhost.world.time
    flush(vhost, lazy_queue, 1)
    vhost.ask(lazy_queue.row.address, to_queue.flush_synced())
    assert vhost.world.time - began < SIZES_WAIT_SECONDS
    (level,) = lazy_queue.levels.values()
    assert {0: level._index._segments[0].size} in vhost.journal.files._sizes.values()


def test_a_stop_records_the_sizes_that_wait(vhost, lazy_queue, caplog):
    flush(vhost, lazy_queue, 1)
    path = segment_of(lazy_queue)
    vhost.stop()
    vhost.kill()
    shorten(vhost, path)
    vhost.start()
    assert any(path in line for line in caplog.messages)


def test_a_start_records_the_sizes_that_a_kill_has_lost(vhost, lazy_queue, caplog):
    """A kill comes while the size of a segment waits. The next start records it, so that the start after that one
    notices a shortened segment.
    """
    flush(vhost, lazy_queue, 1)
    path = segment_of(lazy_queue)
    vhost.kill()
    vhost.start()
    vhost.write_all()
    vhost.kill()
    assert not any(path in line for line in caplog.messages)
    shorten(vhost, path)
    vhost.start()
    assert any(path in line for line in caplog.messages)
