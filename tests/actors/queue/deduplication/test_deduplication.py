"""A queue that deduplicates keeps one of several equal messages (SP-30), also when its process ends in any
way (SP-31).
"""

from __future__ import annotations

import pytest

from warren.amqp.frames import build_content
from warren.amqp.properties import Properties, encode_properties
from warren.store.messages.message import Origin

from ...disk_stage import DurableStage, Publisher, bodies, drained
from ..durable import LARGE


class Repeating(Publisher):
    """A publisher whose messages have ids and its user's name."""

    def __init__(self, stage, user="guest"):
        super().__init__(stage)
        self.user = user

    def publish_ids(self, queue, *ids, size=10, persistent=True, priority=0, padding=b""):
        """Publish a message for each id in one run; None is a message without one."""
        contents = []
        for each in ids:
            props = Properties(
                delivery_mode=2 if persistent else 1, message_id=None if each is None else str(each), priority=priority
            )
            contents.append(build_content(1, encode_properties(props), b"%d:" % (each or 0) + b"x" * size, 131072))
        origin = Origin("", (queue.row.name,), persistent, priority, None)
        sizes = sum(len(b"%d:" % (each or 0)) + size for each in ids)
        entry = (origin, contents, sizes, self.published + 1, True, 0)
        self.published += len(ids)
        me = self.address.actorAddressString
        self.stage.tell(self.address, queue.address, "publish", me, [entry], self.user)


def ids_of(found):
    return [int(body.partition(b":")[0]) for body in bodies(found)]


def declared(stage, window=100, **arguments):
    return stage.declare(**{"x_warren_deduplicate": window, **arguments})


@pytest.mark.parametrize("durable", [True, False])
def test_duplicates_of_one_run_and_of_another_are_dropped_and_confirmed(stage, durable):
    queue, publisher = declared(stage, durable=durable), Repeating(stage)
    publisher.publish_ids(queue, 1, 2, 1, None, None)
    publisher.publish_ids(queue, 2, 3, 3, 4)
    publisher.await_confirms()
    assert ids_of(drained(stage, queue, 6)) == [1, 2, 0, 0, 3, 4]
    assert queue.actor.backing.numbers().stop == 6, "duplicates get no numbers"
    assert queue.actor.role.info()["deduplicated"] == 3
    publisher.publish_ids(queue, 1, 5)
    publisher.await_confirms()
    assert ids_of(drained(stage, queue, 1)) == [5], "a queue remembers what was acknowledged"


def test_a_duplicate_is_confirmed_when_the_first_message_is(stage, disk):
    queue, publisher, again = declared(stage), Repeating(stage), Repeating(stage)
    disk.hold()
    publisher.publish_ids(queue, 1, 2)
    stage.is_held()
    again.publish_ids(queue, 2, 1)
    again.publish_ids(queue, 1)
    stage.settle()
    assert (publisher.confirmed, again.confirmed) == (0, 0)
    disk.release()
    publisher.await_confirms()
    again.await_confirms()
    assert ids_of(drained(stage, queue, 2)) == [1, 2]


def test_messages_of_two_users_are_no_duplicates(stage):
    queue = declared(stage)
    for user in ("alice", "bob"):
        publisher = Repeating(stage, user)
        publisher.publish_ids(queue, 1)
        publisher.publish_ids(queue, 1)
        publisher.await_confirms()
    assert ids_of(drained(stage, queue, 2)) == [1, 1]


def test_a_message_that_is_refused_may_be_published_again(stage):
    queue, publisher = declared(stage, x_max_length=1, x_overflow="reject-publish"), Repeating(stage)
    publisher.publish_ids(queue, 1)
    publisher.await_confirms()
    refused = Repeating(stage)
    refused.publish_ids(queue, 2, 2)
    stage.quiet()
    assert ids_of(drained(stage, queue, 1)) == [1]
    refused.publish_ids(queue, 2)
    assert ids_of(drained(stage, queue, 1)) == [2]


def test_the_window_moves(stage):
    queue, publisher = declared(stage, window=3), Repeating(stage)
    for number in range(1, 10):
        publisher.publish_ids(queue, number)
    publisher.publish_ids(queue, 7, 8, 9, 1)
    publisher.await_confirms()
    assert ids_of(drained(stage, queue, 10)) == [*range(1, 10), 1]


def fill(stage, queue):
    """Fill the queue with the messages 1 to 8: small, large and transient ones, of which 1 was acknowledged."""
    publisher = Repeating(stage)
    publisher.publish_ids(queue, 1)
    publisher.await_confirms()
    drained(stage, queue, 1)
    publisher.publish_ids(queue, 2, 3)
    publisher.publish_ids(queue, 4, size=LARGE)
    publisher.publish_ids(queue, 5, 6, size=8000)
    publisher.publish_ids(queue, 7, 8, persistent=False)
    publisher.await_confirms()
    stage.quiet()


def check(stage, queue, has_transient=False):
    """Publish all messages again, and assert that the queue keeps only those that it does not remember."""
    publisher = Repeating(stage)
    publisher.publish_ids(queue, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    publisher.await_confirms()
    found = ids_of(drained(stage, queue, 8))
    assert sorted(found) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert found[:5] == [2, 3, 4, 5, 6] or has_transient


LAZY = {"x_queue_mode": "lazy"}
LEVELS = {"x_max_priority": 5}
LANES = {"x_fair_by": "routing-key"}


@pytest.mark.parametrize("arguments", [{}, LAZY, LEVELS, LANES], ids=["plain", "lazy", "priorities", "lanes"])
@pytest.mark.parametrize("ends", [["kill"], ["stop"], ["kill", "kill"], ["stop", "kill"], ["kill", "stop", "kill"]])
def test_a_restarted_broker_remembers(tmp_path, disk, ends, arguments):
    """A restarted broker remembers persistent messages; a transient one is lost with its digest."""
    rows = ()
    for start, end in enumerate(ends):
        with DurableStage(tmp_path, disk, rows) as stage:
            if not start:
                fill(stage, declared(stage, **arguments))
            stage.quiet()
            if end == "stop":
                stage.terminate()
            rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        check(stage, stage.recovered())


def test_a_queue_that_crashes_remembers(stage):
    queue = declared(stage)
    fill(stage, queue)
    stage.crash(queue.address)
    check(stage, stage.restarted())


def free_files(stage, queue, is_asked=True):
    """Have the journal give up all its files. With `is_asked`, publish something so that it writes."""
    journal = stage.actor(stage.storage.journal)
    first = journal.files.current
    journal._freeing.begin(journal.files.rotate(), journal._settings.file_limit)
    if is_asked:
        stage.tell(stage.metadata, queue.address, "flush_synced")
    Publisher(stage).publish(stage.declare("other"), 1)
    stage.until(lambda: journal.files.oldest > first)
    stage.quiet()


@pytest.mark.parametrize("arguments", [{}, LEVELS], ids=["plain", "priorities"])
def test_digests_outlive_the_journal_files_that_they_were_written_to(tmp_path, disk, arguments):
    with DurableStage(tmp_path, disk) as stage:
        queue = declared(stage, **arguments)
        fill(stage, queue)
        free_files(stage, queue)
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        check(stage, stage.recovered())


def test_digests_of_a_queue_that_is_down_outlive_the_journal_files_too(tmp_path, disk):
    with DurableStage(tmp_path, disk) as stage:
        fill(stage, declared(stage))
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        queue = stage.recovered()
        stage.actor(stage.storage.journal)._lose(int(queue.id[:14], 16))
        free_files(stage, queue, is_asked=False)
    with DurableStage(tmp_path, disk, rows) as stage:
        check(stage, stage.recovered())


def test_the_digest_of_a_lost_message_is_forgotten(tmp_path, disk):
    """If the journal has a message and the store lacks its body when a crash comes, the message was not confirmed, so
    its digest is forgotten and it can be published again.
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = declared(stage), Repeating(stage)
        publisher.publish_ids(queue, 1)
        publisher.await_confirms()
        publisher.publish_ids(queue, 2, size=LARGE)
        publisher.await_confirms()
        stage.quiet()
        rows = stage.rows
    for name in list(disk._names):
        if name.startswith("msg_store_persistent") and name.endswith(".rdq"):
            disk._names[name].data.clear()
    for _ in range(2):
        with DurableStage(tmp_path, disk, rows) as stage:
            stage.quiet()
    with DurableStage(tmp_path, disk, rows) as stage:
        queue, publisher = stage.recovered(), Repeating(stage)
        publisher.publish_ids(queue, 1, 2)
        publisher.await_confirms()
        assert ids_of(drained(stage, queue, 2)) == [1, 2]


def test_a_deleted_queue_leaves_no_file(stage):
    queue = declared(stage)
    fill(stage, queue)
    free_files(stage, queue)
    assert any(name.endswith(".ids") for name in stage.files_of(queue))
    stage.ask(queue.address, "delete", False, False).answer()
    stage.quiet()
    assert not stage.files_of(queue)


def test_a_queue_without_the_argument_keeps_all(stage):
    queue, publisher = stage.declare(), Repeating(stage)
    publisher.publish_ids(queue, 1, 1)
    publisher.await_confirms()
    assert ids_of(drained(stage, queue, 2)) == [1, 1]
    assert queue.actor.state.confirms.deduplication is None
