"""Bugs of expiry, dead letters, files and connections that end, which the simulation must find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from warren.actors.channel.publishing import Publisher
from warren.actors.connection.heartbeats import HeartbeatMonitor
from warren.actors.metadata.queues import Queues
from warren.actors.queue.consumers import Consumers
from warren.actors.queue.dead_letterer import DeadLetterer
from warren.actors.queue.flusher import Flusher
from warren.actors.queue.message_expiry import MessageExpiry
from warren.actors.queue.process import Queue
from warren.store.bodies.combine import CombineJob
from warren.store.messages.pending_runs import PendingRuns
from warren.store.messages.run_queue import RunQueue

from .planting import mutant, replaced


@mutant
def dead_letter_lost() -> Iterator[None]:
    """A queue drops the last of several messages that die together."""

    def make(original: Any) -> Any:
        def publish(self: DeadLetterer, reason: str, messages: Any) -> None:
            original(self, reason, messages[:-1] if len(messages) > 1 else messages)

        return publish

    with replaced(DeadLetterer, "publish", make):
        yield


@mutant
def two_single_active_consumers() -> Iterator[None]:
    """The second consumer becomes active, though the first has not left."""

    def make(original: Any) -> Any:
        def add(self: Consumers, consumer: Any) -> None:
            original(self, consumer)
            if self.single_active and len(self) == 2:
                self.active = consumer

        return add

    with replaced(Consumers, "add", make):
        yield


@mutant
def return_omitted() -> Iterator[None]:
    """Only the first of several unroutable mandatory messages is returned."""

    def make(original: Any) -> Any:
        def give_back(self: Publisher, publication: Any, contents: Any) -> None:
            original(self, publication, contents[:1])

        return give_back

    with replaced(Publisher, "_return", make):
        yield


@mutant
def body_misplaced_in_garbage_collection() -> Iterator[None]:
    """When two files are combined, the last body is recorded at the place of the one before it."""

    def make(original: Any) -> Any:
        def run(self: CombineJob) -> None:
            original(self)
            wanted = [at for at, move in enumerate(self.moves) if move.offset is not None]
            if len(wanted) > 1:
                self.moves[wanted[-1]] = self.moves[wanted[-1]]._replace(offset=self.moves[wanted[-2]].offset)

        return run

    with replaced(CombineJob, "run", make):
        yield


@mutant
def flushed_before_it_is_written() -> Iterator[None]:
    """A queue reports that its entries are in its segments before they are."""

    async def flush_synced(self: Flusher) -> bool:
        return True

    with mock.patch.object(Flusher, "flush_synced", flush_synced):
        yield


@mutant
def silent_peer_kept() -> Iterator[None]:
    """Missed heartbeats do not end a connection."""
    with mock.patch.object(HeartbeatMonitor, "step", lambda self, received: False):
        yield


@mutant
def exclusive_queue_left_behind() -> Iterator[None]:
    """Exclusive queues stay when their connection ends."""

    async def delete_exclusive(self: Queues, connection_id: str) -> None:
        pass

    with mock.patch.object(Queues, "delete_exclusive", delete_exclusive):
        yield


@mutant
def auto_delete_forgotten() -> Iterator[None]:
    """An auto-delete queue stays when its last consumer ends with its channel."""

    def make(original: Any) -> Any:
        def forget_channel(self: Queue, channel_id: str) -> None:
            with mock.patch.object(self, "_consumer_left", lambda: None):
                original(self, channel_id)

        return forget_channel

    with replaced(Queue, "forget_channel", make):
        yield


@mutant
def expiry_lost_on_requeue() -> Iterator[None]:
    """A requeued message never expires."""

    def make(original: Any) -> Any:
        def insert(self: RunQueue, returned: list[Any]) -> None:
            for run in returned:
                run.expiry = None
            original(self, returned)

        return insert

    with replaced(RunQueue, "insert", make):
        yield


@mutant
def expired_too_early() -> Iterator[None]:
    """Messages with an expiration expire after half of it."""

    def make(original: Any) -> Any:
        def of(self: MessageExpiry, origin: Any) -> int | None:
            return original(self, origin._replace(expiration=origin.expiration and origin.expiration // 2))  # type: ignore[no-any-return]

        return of

    with replaced(MessageExpiry, "of", make):
        yield


@mutant
def bytes_miscounted() -> Iterator[None]:
    """An acknowledgement in the middle of a run does not reduce the count of bytes."""

    def make(original: Any) -> Any:
        def settle(self: PendingRuns, run: Any, piece: slice, count: int) -> int:
            before = self.body_bytes
            found: int = original(self, run, piece, count)
            if piece.start and count == 1:
                self.body_bytes = before
            return found

        return settle

    with replaced(PendingRuns, "_settle", make):
        yield
