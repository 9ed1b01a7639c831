"""A policy begins, resizes and ends the deduplication of a running queue (SP-30)."""

from __future__ import annotations

import json

import pytest

from warren.definitions.records import Policy
from warren.routing.arguments.queue_settings import QueueSettings

from ..durable import LARGE
from .test_deduplication import Repeating, drained, free_files, ids_of


def use(stage, queue, window, **settings):
    stage.context.definitions.put(Policy("/", "once", "^q$", json.dumps({"deduplicate": window})))
    if window is None:
        stage.context.definitions.remove(Policy("/", "once", "^q$", ""))
    stage.ask(queue.address, "apply_settings", QueueSettings(deduplicate=window, **settings)).answer()


def published(stage, queue, *ids, **options):
    publisher = Repeating(stage)
    publisher.publish_ids(queue, *ids, **options)
    publisher.await_confirms()


def files(stage, queue):
    return [name for name in stage.files_of(queue) if name.endswith(".ids")]


@pytest.mark.parametrize("durable", [True, False])
def test_it_begins_with_an_empty_window(stage, durable):
    queue = stage.declare(durable=durable)
    published(stage, queue, 1, 2)
    use(stage, queue, 100)
    published(stage, queue, 2, 3)
    published(stage, queue, 1, 2, 3, 3)
    assert ids_of(drained(stage, queue, 5)) == [1, 2, 2, 3, 1]
    assert queue.actor.role.info()["deduplicated"] == 3


def test_it_keeps_what_it_can_when_it_is_resized(stage):
    queue = stage.declare()
    use(stage, queue, 4)
    published(stage, queue, 1, 2, 3)
    use(stage, queue, 8)
    published(stage, queue, *range(1, 9))
    assert ids_of(drained(stage, queue, 8)) == [*range(1, 9)]
    use(stage, queue, 2)
    published(stage, queue, 7, 8)
    published(stage, queue, 9, 10, 11, 12, 1)
    assert ids_of(drained(stage, queue, 5)) == [9, 10, 11, 12, 1]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_the_end_frees_memory_and_disk(stage, is_flushed):
    queue = stage.declare()
    use(stage, queue, 100)
    published(stage, queue, 1, 2)
    if is_flushed:
        free_files(stage, queue)
        assert files(stage, queue)
    use(stage, queue, None)
    stage.quiet()
    published(stage, queue, 2)
    assert not files(stage, queue)
    assert queue.actor.state.confirms.deduplication is None
    assert ids_of(drained(stage, queue, 3)) == [1, 2, 2]


@pytest.mark.parametrize("ends", ["crashes", "is flushed and crashes"])
def test_a_window_that_begins_again_is_empty_after_a_crash_too(stage, ends):
    queue = stage.declare()
    use(stage, queue, 100)
    published(stage, queue, 1, 2)
    use(stage, queue, None)
    published(stage, queue, 3)
    use(stage, queue, 100)
    published(stage, queue, 4, size=LARGE)
    if ends != "crashes":
        free_files(stage, queue)
    stage.quiet()
    stage.crash(queue.address)
    queue = stage.restarted()
    published(stage, queue, 1, 2, 3, 4)
    assert sorted(ids_of(drained(stage, queue, 7))) == [1, 1, 2, 2, 3, 3, 4]


def test_files_that_a_crash_has_left_behind_are_deleted(stage):
    """Files of a deduplication that a policy has ended are deleted, also if the queue crashes before it has deleted
    them.
    """
    queue = stage.declare()
    use(stage, queue, 100)
    published(stage, queue, 1)
    free_files(stage, queue)
    published(stage, queue, 2)
    stage.quiet()
    assert files(stage, queue)
    stage.context.definitions.remove(Policy("/", "once", "^q$", ""))
    stage.crash(queue.address)
    queue = stage.restarted()
    stage.quiet()
    assert not files(stage, queue)
    use(stage, queue, 100)
    published(stage, queue, 1, 2)
    stage.quiet()
    stage.crash(queue.address)
    queue = stage.restarted()
    published(stage, queue, 1, 2)
    assert sorted(ids_of(drained(stage, queue, 4))) == [1, 1, 2, 2]


@pytest.mark.parametrize("again", [False, True])
def test_duplicates_that_wait_are_confirmed_after_the_end(stage, disk, again):
    queue, publisher, repeating = stage.declare(), Repeating(stage), Repeating(stage)
    use(stage, queue, 100)
    disk.hold()
    publisher.publish_ids(queue, 1, 2)
    stage.is_held()
    repeating.publish_ids(queue, 2, 1)
    stage.settle()
    stage.tell(stage.metadata, queue.address, "apply_settings", QueueSettings())
    if again:
        stage.tell(stage.metadata, queue.address, "apply_settings", QueueSettings(deduplicate=10))
        repeating.publish_ids(queue, 2, 2)
    stage.settle()
    assert repeating.confirmed == 0
    disk.release()
    publisher.await_confirms()
    repeating.await_confirms()
    assert ids_of(drained(stage, queue, 2 + again)) == [1, 2, 2][: 2 + again]
