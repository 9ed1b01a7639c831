"""A learner that has copied a queue has the same messages as the queue, although clients used the queue meanwhile
(CL-85).

Chunks and stream reach the learner on different ways, in any order that the source's disk and the links produce; only
the stream itself is in order. Unless the link was cut, a chunk comes after what the source had sent before it read the
chunk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random

import pytest

from warren.amqp.frames import build_content
from warren.mirror import instructions
from warren.mirror.backing.mirrored_queue import SKIPPED
from warren.mirror.backing.mirrored_stream import mirrored
from warren.mirror.safety import Safety
from warren.mirror.sync import sync_source
from warren.mirror.sync.sync_source import CHUNK_BYTES, SyncChunk, read_chunk
from warren.mirror.sync.sync_target import END, KEPT_BYTES, SyncTarget
from warren.store.messages.message import Origin
from warren.store.queue.levels.level_tags import LEVEL_SHIFT
from warren.store.queue.levels.priority_queue import PriorityQueue
from warren.store.queue.memory_queue import MemoryQueue

#: The properties of a persistent message: no other but the delivery mode.
PROPS = b"\x10\x00\x02"


def run(coroutine):
    return asyncio.run(coroutine)


def new_queue(levels: int):
    inner = MemoryQueue() if not levels else PriorityQueue(levels, lambda level: MemoryQueue())
    return mirrored(inner, True)


def messages(queue) -> dict[int, bytes]:
    """The contents of all messages by number, ready and pending."""
    found: dict[int, bytes] = {}
    cursor = 0
    while cursor != END:
        chunk = run(read_chunk(queue.inner, None, cursor, lambda: 0))
        for encoded in chunk.runs:
            _, part = instructions.published(encoded)
            found |= dict(zip(range(part.first, part.end), part.contents))
        cursor = chunk.cursor
    return found


class Copy:
    """A source whose stream and chunks reach a learner only when the test says so."""

    def __init__(self, rng: Random, levels: int) -> None:
        self.rng, self.levels = rng, levels
        self.source, self.learner = new_queue(levels), new_queue(levels)
        self.source.is_followed = True
        self.said = 0
        self.target = SyncTarget()
        self.position = 0
        #: The stream in flight, and up to two chunks in flight, each with the position up to which the stream must
        #: arrive before it.
        self.stream: deque = deque()
        self.chunks: deque[tuple[SyncChunk, int]] = deque()
        #: Whether the link was cut, so that the stream in flight arrives again after the chunk.
        self.was_cut = False

    def publish(self, count: int) -> None:
        self.said += count
        priority = self.rng.randint(0, self.levels)
        contents = [build_content(1, PROPS, b"%d" % (self.said + at), 4096) for at in range(count)]
        self.source.publish(Origin("", ("q",), True, priority), contents, count, None, False)

    def leave(self) -> None:
        """Remove some messages from the source."""
        deliveries = self.source.fetch(self.rng.randint(1, 4), True)
        tags = [tag for delivery in deliveries for tag in delivery.tags]
        kept = self.rng.sample(tags, self.rng.randint(0, len(tags)))
        self.source.ack([tag for tag in tags if tag not in kept])
        self.source.requeue(sorted(kept)[::2])
        if self.rng.random() < 0.05:
            while self.source.purge():
                pass

    def end_turn(self) -> None:
        for each in self.source.out:
            self.position += 1
            self.stream.append((self.position, each))
        self.source.took(self.position)

    def ask(self) -> None:
        """The learner asks for the chunk that follows the last one in flight."""
        self.end_turn()
        cursor = self.chunks[-1][0].cursor if self.chunks else self.target.cursor
        if cursor != END:
            chunk = run(read_chunk(self.source.inner, None, cursor, lambda: self.position))
            self.chunks.append((chunk, self.position))

    def stream_comes(self) -> None:
        position, each = self.stream.popleft()
        self.follow(self.target.came(position, [each]))

    def chunk_comes(self) -> None:
        chunk, sent = self.chunks[0]
        while self.stream and self.stream[0][0] <= sent and not self.was_cut:
            self.stream_comes()
        if self.target.is_ahead(chunk.position):
            return  # the chunk waits for the stream
        self.chunks.popleft()
        if self.target.is_paused or self.target.is_too_early(chunk.position):
            self.chunks.clear()
            return
        before, after = self.target.chunk(chunk.position, chunk.cursor)
        self.follow(before)
        for encoded in chunk.runs:
            self.learner.take(instructions.published(encoded)[1])
        self.follow(after)

    def pause_or_resume(self) -> None:
        if self.target.is_paused:
            self.target.resume()
        else:
            self.follow(self.target.pause())
            assert not self.target._kept

    def follow(self, placed) -> None:
        for _, (kind, content) in placed:
            if kind == instructions.PUBLISH:
                self.learner.take(instructions.published(content)[1])
            elif kind == instructions.REMOVE:
                self.learner.remove(instructions.removed(content))
            elif kind == instructions.PURGE:
                self.learner.keep_only(list(instructions.removed(content)))


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("levels", [0, 3])
def test_a_copy_of_a_queue_that_goes_on_is_equal_to_it(levels, pauses, monkeypatch):
    for seed in range(160):
        rng = Random(seed)
        monkeypatch.setattr("warren.mirror.sync.sync_target.KEPT_BYTES", rng.choice((0, 100, 1000, KEPT_BYTES)))
        monkeypatch.setattr("warren.mirror.sync.sync_source.CHUNK_BYTES", rng.choice((1, 300, 2000, CHUNK_BYTES)))
        copy = Copy(rng, levels)
        for _ in range(rng.randint(0, 12)):
            copy.publish(rng.randint(1, 9))
            copy.leave()
        copy.end_turn()
        copy.stream.clear()  # the stream of this learner begins when it attaches
        copy.target.begin(copy.position)
        if pauses:
            copy.pause_or_resume()
        steps = 0
        while not copy.target.is_done:
            steps += 1
            step = rng.choice(("publish", "leave", "turn", "stream", "chunk", "chunk", "pause" if pauses else "turn"))
            if step == "publish" and steps < 60:
                copy.publish(rng.randint(1, 5))
            elif step == "leave":
                copy.leave()
            elif step == "turn":
                copy.end_turn()
            elif step == "stream" and copy.stream:
                copy.stream_comes()
            elif step == "pause":
                copy.pause_or_resume()
            elif step == "chunk":
                copy.was_cut = rng.random() < 0.2
                may_ask = len(copy.chunks) < 2
                copy.chunk_comes() if copy.chunks and (not may_ask or rng.random() < 0.5) else copy.ask()
        copy.publish(3)
        copy.leave()
        copy.end_turn()
        while copy.stream:
            copy.stream_comes()
        assert messages(copy.learner) == messages(copy.source), f"seed {seed}"


def test_a_chunk_that_may_lack_what_was_left_to_it_is_too_early(monkeypatch):
    """A chunk from a member that is not as far in the stream as the previous one is refused as too early, because it
    may lack a publish that the learner has left to the chunks (CL-85).
    """
    monkeypatch.setattr("warren.mirror.sync.sync_source.CHUNK_BYTES", 1)
    copy = Copy(Random(1), 0)
    copy.publish(5)
    copy.end_turn()
    copy.stream.clear()
    copy.ask()
    copy.chunk_comes()
    assert not copy.target.is_done, "one message fits into this chunk"
    before = copy.position
    copy.publish(2)
    copy.end_turn()
    while copy.stream:
        copy.stream_comes()
    # The learner keeps the publish until a chunk shows whether it contains it; a chunk from before it may be in flight.
    copy.target.chunk(before, copy.target.cursor + 1)
    assert not copy.target.is_too_early(before)
    copy.target.chunk(copy.position, copy.target.cursor + 1)
    assert copy.target.is_too_early(before) and not copy.target.is_too_early(copy.position)


def test_a_learner_whose_chunks_take_long_leaves_the_stream_to_them(monkeypatch):
    """A learner whose source takes long for the next chunk leaves publishes to the chunks, because keeping all of them
    meanwhile would fill its memory.
    """
    monkeypatch.setattr("warren.mirror.sync.sync_target.KEPT_BYTES", 1000)
    copy = Copy(Random(1), 0)
    copy.publish(5)
    copy.end_turn()
    copy.stream.clear()
    copy.ask()
    for _ in range(50):
        copy.publish(5)
        copy.end_turn()
        copy.stream_comes()
        assert copy.target._kept_bytes <= 1000 and len(copy.target._kept) < 10
    copy.chunk_comes()
    assert copy.target.cursor == 0, "the chunk is from before what the learner has left to the chunks"
    while not copy.target.is_done:
        copy.ask()
        copy.chunk_comes()
    assert messages(copy.learner) == messages(copy.source)


def test_what_has_left_while_bodies_were_read_is_in_no_chunk():
    queue = new_queue(0)
    contents = [build_content(1, PROPS, b"%d" % at, 4096) for at in range(4)]
    queue.inner.publish(Origin("", ("q",), True), contents, 4, None, False)
    chunk = run(read_chunk(queue.inner, None, 0, lambda: 7))
    assert (chunk.position, chunk.cursor, len(chunk.runs)) == (7, END, 1)
    found = instructions.published(chunk.runs[0])[1]
    found.contents[1] = None
    pieces = [instructions.published(each)[1] for each in sync_source._encoded(found, 5 << LEVEL_SHIFT)]
    assert [(piece.first - (5 << LEVEL_SHIFT), len(piece.contents)) for piece in pieces] == [(0, 1), (2, 2)]


def test_a_chunk_of_an_empty_queue_is_the_last_one():
    assert run(read_chunk(new_queue(0).inner, None, 0, lambda: 3)) == SyncChunk(3, END, [])
    assert run(read_chunk(new_queue(2).inner, None, 0, lambda: 3)) == SyncChunk(3, END, [])


def test_what_is_safe_in_several_pieces_counts_as_a_whole():
    """Numbers with gaps that become safe in several pieces are reported when all of them are safe."""
    safety = Safety()
    for position, first, last in ((9, 0, 19), (9, 100, 149), (9, 150, 180), (10, 181, 181)):
        safety.took(position, first, last)
    assert safety.reached(12, [(100, 120)]) == 8
    assert safety.reached(12, [(0, 19), (121, 180)]) == 9
    assert safety.reached(12, [(181, 181)]) == 12


@pytest.mark.parametrize("levels", [0, 3])
def test_a_resurrected_replica_begins_anew_in_every_level(levels):
    """A replica that is forced back from its disk flags all messages of every level as redelivered, because they may
    have been delivered before (CL-94).
    """
    copy = Copy(Random(1), levels)
    origins = [Origin("", ("q",), True, priority) for priority in range(levels + 1)]

    def publish(origin, body: bytes):
        return copy.source.inner.publish(origin, [build_content(1, PROPS, body, 4096)], 3, None, False)

    for origin in origins:
        publish(origin, b"old")
    resurrected = mirrored(copy.source.inner, True)
    before = [resurrected.next_number(origin) for origin in origins]
    resurrected.resurrect(1)
    assert all(resurrected.next_number(origin) >= number + SKIPPED for origin, number in zip(origins, before))
    fetched = resurrected.fetch(len(origins), True)
    assert [each.redelivered for each in fetched] == [True] * len(origins)
    for origin in origins:
        publish(origin, b"new")
    fetched = resurrected.fetch(len(origins), True)
    assert [each.redelivered for each in fetched] == [False] * len(origins)
