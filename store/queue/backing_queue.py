"""The interface between a queue process and whatever holds its messages (queue-and-store section 3).

The queue process owns AMQP's semantics; the backing queue owns the messages. `MemoryQueue` is the one on nodes
without a data directory, `VariableQueue` on the others; `PriorityQueue` wraps one of these for each priority, and
`FairQueue` one for all its lanes. One process makes all calls, one after the other.

Messages travel in **runs** (see `store.messages.run`). A queue numbers its messages from 0 in the order of `publish`,
`publish_delivered` and `discard`, and never gives a number twice. The number is also the ack tag. A
`PriorityQueue` numbers each level separately and adds the level above bit 56. Tags are given as a `range` with a
positive step or as a list of ints.

The operations of queue-and-store section 3.1, as they are here:

| specification | here |
|---|---|
| publish, batch_publish(msg, props, is_delivered) | `publish(origins, contents, …)`; is_delivered is always false |
| publish_delivered, batch_publish_delivered | `publish_delivered`; returns a range of tags |
| discard(msg_id) | `discard`; returns a range of numbers and keeps no message |
| drain_confirmed -> ids | `drain_confirmed` -> closed ranges of numbers, each number once (QS-18) |
| fetch(ack_required) | `fetch(count, ack_required)` -> deliveries; an empty list means EMPTY |
| drop(ack_required) | `drop(count)` -> how many, or `fetch_dropped(count)` -> deliveries |
| dropwhile(pred), fetchwhile(pred, fun, acc) | `drop_expired`, `fetch_expired`, since no other predicate is needed |
| ack(tags), requeue(tags) -> ids | `ack`, `requeue` -> how many tags were known |
| ackfold(fun, acc, tags) | `pending_messages(tags)` |
| purge, set_queue_mode | the same names |
| len, is_empty | `len(queue)`: ready messages |
| depth | `totals()`, which has the bytes of their bodies as well |
| delete_and_terminate | the same name; returns what frees the messages in steps |
| init, terminate | `scan`, `recover` and `terminate` of a `DiskQueue` (`store.queue.variable.disk_queue`) |
| ram_duration, set_ram_duration_target, resume | of a `DiskQueue`, since no other queue can move messages to the disk |
| handle_info | `DiskQueue.page`, the only event that a backing queue addresses to itself |
| start, stop, delete_crashed | done for a whole virtual host (`store.data_dir.vhost_dir`) |
| info, fold, purge_acks, msg_rates, needs_timeout, timeout | absent, since no process needs them |
| handle_pre_hibernate, invoke | absent, for the same reason |
| is_duplicate | absent, since a backing queue gets each publish once: the ring of a mirrored queue numbers them |
| zip_msgs_and_acks | not needed, since numbers are the tags |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..messages.message import Expiries, FetchedMessages, Origins, QueuedMessage
from ..messages.parts import Part

if TYPE_CHECKING:
    from .variable.read_ahead import ReadAheadJob

#: A limit that no queue reaches.
UNLIMITED = 1 << 62


#: Frees about as many messages as it is called with, of a queue that has ended. Returns whether there were any.
Dispose = Callable[[int], bool]


class Totals(NamedTuple):
    """The messages of a queue, and the bytes of their bodies."""

    ready: int = 0
    pending: int = 0
    ready_bytes: int = 0
    pending_bytes: int = 0

    @property
    def depth(self) -> int:
        """Ready and pending messages."""
        return self.ready + self.pending


class BackingQueue(ABC):
    """See the module. Expiries are absolute, in microseconds since the epoch; None means never.

    The process of a queue calls these methods and no others, so any class that has them can be a backing queue. A new
    backing queue is empty. Only a `DiskQueue` can be recovered.
    """

    @abstractmethod
    def delete_and_terminate(self) -> Dispose:
        """End and remove all content, pending acks included. Call what it returns until that returns False, because to
        free millions of messages at once takes too long for one turn.
        """

    # -- in

    @abstractmethod
    def publish(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        is_handed: bool = False,
        is_redelivered: bool = False,
    ) -> range:
        """Append a run that is not empty; `body_bytes` is the sum of its body sizes. Returns its numbers.

        With `confirm` some publisher awaits a confirm, so `drain_confirmed` reports these numbers when they are safe.
        `parts` are the identities of the publishes, for a backing queue that passes them on to other replicas.

        `shared` is the id of the first message (`message_ids`) if other queues get the same messages and one of them
        is large, else 0. With `is_handed` another queue has handed the messages over (`journal.in_transit`): `shared`
        is set then, too, and the persistent message store already has large bodies, under the ids of the messages.
        With `is_redelivered` a former process of this queue, or another replica, may have delivered the messages.
        """

    @abstractmethod
    def publish_delivered(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        is_handed: bool = False,
        is_redelivered: bool = False,
    ) -> range:
        """Add a run that a consumer gets at once and will ack: it is pending from the start.

        The queue must be empty. Returns the tags.
        """

    @abstractmethod
    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        """Number `count` messages that are never stored: a no-ack consumer gets them, they have a TTL of 0, or the
        queue refuses them.

        With `confirm`, `drain_confirmed` reports their numbers as safe: with `is_recorded` only when everything that
        was recorded by now is on the disk, such as their dead letters. Messages that the queue refuses come without
        `confirm`.
        """

    @abstractmethod
    def drain_confirmed(self) -> list[tuple[int, int]]:
        """Closed ranges of numbers published with `confirm` that became safe since the last call."""

    # -- out

    @abstractmethod
    def fetch(self, count: int, ack_required: bool) -> list[FetchedMessages]:
        """Take up to `count` messages from the head; with `ack_required` they become pending."""

    @abstractmethod
    def drop(self, count: int) -> int:
        """Remove up to `count` messages without reading their bodies, for a length limit; returns how many.

        They are at the head, unless the queue has lanes or drops its lowest priority.
        """

    def fetch_dropped(self, count: int) -> list[FetchedMessages]:
        """Take the messages that `drop` would remove. They become pending, to be moved as dead letters."""
        return self.fetch(count, True)

    def droppable(self) -> bool:
        """Whether `drop` finds a message without the disk."""
        return self.available(1) > 0

    @abstractmethod
    def drop_expired(self, now: int, limit: int) -> int:
        """Remove messages from the head that expire no later than `now`, up to `limit`; returns how many.

        It stops at the first message that expires later, and at one that it would have to read from the disk.
        """

    @abstractmethod
    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        """`drop_expired`, but the messages become pending and are returned."""

    @abstractmethod
    def ack(self, tags: Sequence[int]) -> int:
        """Forget pending messages. Unknown tags are skipped; returns how many were known."""

    @abstractmethod
    def move(self, tags: Sequence[int]) -> int:
        """Record that pending messages have left, in the same turn in which their dead letters are recorded.

        They stay pending until the record is on the disk, so that whatever else is written in the meantime still has
        them. Returns how many of the tags were known.
        """

    @abstractmethod
    def requeue(self, tags: Sequence[int]) -> int:
        """Put pending messages back at their original positions, redelivered, expiry kept.

        Returns how many were known.
        """

    @abstractmethod
    def mark_redelivered(self) -> None:
        """Flag all messages that there are as redelivered, because another replica may have delivered them."""

    @abstractmethod
    def purge(self, limit: int = UNLIMITED) -> int:
        """Remove ready messages, the newest first: about `limit` of those in memory, and any number on the disk.

        Returns how many it has removed: 0 if none was left. Pending messages stay.
        """

    # -- what is on disk

    @abstractmethod
    def available(self, limit: int) -> int:
        """How many messages at the head, up to `limit`, can be taken without the disk.

        `fetch` and `drop` take no more than these.
        """

    @abstractmethod
    def prepare(self) -> ReadAheadJob | None:
        """A job that makes more messages available, or None. One at a time."""

    @abstractmethod
    def prepare_pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        """A job that reads the bodies for `pending_messages` in the same turn, or None if all are in memory."""

    # -- inspection

    @abstractmethod
    def __len__(self) -> int:
        """Ready messages."""

    @abstractmethod
    def totals(self) -> Totals:
        """Ready and pending messages, and the bytes of their bodies."""

    @abstractmethod
    def head(self) -> QueuedMessage | None:
        """The next message, which stays where it is; None if the queue is empty."""

    @abstractmethod
    def head_expiry(self) -> int | None:
        """Expiry of the next message; None if it never expires or the queue is empty."""

    @abstractmethod
    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        """The pending messages with these tags, which stay pending. Unknown tags are skipped."""

    @abstractmethod
    def pending_numbers(self) -> Iterator[int]:
        """The numbers of all pending messages, ascending, and those of the highest level first. Nothing may be
        delivered or settled in between.
        """

    # -- mode

    @abstractmethod
    def set_queue_mode(self, mode: str) -> None:
        """Change to mode `default` or `lazy`. A queue with a backlog gets there in steps."""
