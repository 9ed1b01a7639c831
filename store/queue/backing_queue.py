"""The backing queue: what a queue process asks of whatever holds its messages.

The queue process owns AMQP's semantics; the backing queue owns the messages. `MemoryQueue`, `VariableQueue` and the
wrapper `PriorityQueue` satisfy this one interface, and a mirrored master wraps any of them. All calls come from
one process, nothing is re-entrant.

Messages travel in **runs** (see `store.message`). Each queue numbers its messages from 0 for ever, in the order of
`publish`, `publish_delivered` and `discard`; the number is also the ack tag. `PriorityQueue` numbers each level by itself
and puts the level above bit 56 of the number. Tags are given as a `range` (any positive step) or a list of ints.

How the operations of the specification's section 3.1 map:

| specification | here |
|---|---|
| publish, batch_publish(msg, props, is_delivered) | `publish(origin, contents, body_bytes, expiry, confirm, redelivered)` |
| publish_delivered, batch_publish_delivered | `publish_delivered`, a range of tags |
| discard(msg_id) | `discard`, a range of numbers; nothing is kept |
| drain_confirmed -> ids | `drain_confirmed` -> closed ranges of numbers, each number once (QS-18) |
| fetch(ack_required) | `fetch(count, ack_required)` -> deliveries; an empty list is EMPTY |
| drop(ack_required) | `drop(count, ack_required)` -> `Dropped`; `count` 0 is EMPTY |
| dropwhile(pred), fetchwhile(pred, fun, acc) | the same with a limit; `Swept` tells why it stopped |
| ack(tags), requeue(tags) -> ids | `ack`, `requeue` -> how many tags were known |
| fold(fun(msg, props, is_pending, acc)) | `fold(fun, acc)`, `fun(message, is_pending, acc) -> (acc, go_on)` |
| ackfold, purge, purge_acks, depth, is_empty, info, msg_rates, invoke, resume, timeout … | the same names |
| len | `len(queue)`: ready messages |
| start, stop, delete_crashed (static) | of the vhost's store, not of a queue |
| is_duplicate(msg) | `is_duplicate(number)` |
| zip_msgs_and_acks | not needed: numbers are the tags |
| – | `read(first, last)`: by number, without consuming (design, section 5) |
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..messages.message import Delivery, Origin, QueuedMessage

T = TypeVar("T")

SWEEP_LIMIT = 4096
"""Most messages that one `dropwhile` or `fetchwhile` touches; the caller loops (section 4.5)."""

INFINITE = float("inf")

Predicate = Callable[[int | None, int], bool]
"""`(expiry in microseconds or None, body size in bytes)`; None never expires."""


class Recover(enum.Enum):
    """What `init` finds on disk; the third possibility is the terms that `terminate` returned."""

    NEW = "new"
    NON_CLEAN = "non_clean"


@dataclass(frozen=True, slots=True)
class Dropped:
    """`tags` are the ack tags if acks were required, else empty."""

    count: int
    body_bytes: int
    tags: list[int]


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep took from the head and where it stopped.

    `is_exhausted`: no ready message is left, `head_expiry` is None. `reached_limit`: the next head was not looked at; call again.
    """

    count: int
    body_bytes: int
    head_expiry: int | None
    is_exhausted: bool
    reached_limit: bool


class BackingQueue(ABC):
    """See the module. `expiry` is absolute, in microseconds since the epoch, None = never."""

    @abstractmethod
    def init(self, recover: Recover | dict[str, Any]) -> None:
        """Begin, new or with what is on disk; called once, before anything else."""

    @abstractmethod
    def terminate(self) -> dict[str, Any]:
        """End, keeping what is durable; returns the terms that the next `init` wants."""

    @abstractmethod
    def delete_and_terminate(self) -> None:
        """End and remove all content, pending acks included."""

    # -- in

    @abstractmethod
    def publish(
        self,
        origin: Origin,
        contents: Sequence[bytes],
        body_bytes: int,
        expiry: int | None,
        confirm: bool,
        redelivered: bool = False,
        shared: int = 0,
    ) -> range:
        """Append a run that is not empty; `body_bytes` is the sum of its body sizes. Returns its numbers.

        `shared`: other queues are given the same messages under this id (`message_ids`), which is the first one's; 0 if none is, or all are small.
        """

    @abstractmethod
    def publish_delivered(
        self,
        origin: Origin,
        contents: Sequence[bytes],
        body_bytes: int,
        expiry: int | None,
        confirm: bool,
        shared: int = 0,
    ) -> range:
        """A run handed straight to a consumer that will ack: pending at once. The queue must be empty. Returns the tags."""

    @abstractmethod
    def discard(self, origin: Origin, contents: Sequence[bytes], body_bytes: int, confirm: bool) -> range:
        """A run that is never stored (no-ack consumer, TTL 0, rejected). Returns its numbers, confirmed if asked."""

    @abstractmethod
    def drain_confirmed(self) -> list[tuple[int, int]]:
        """Closed ranges of numbers published with `confirm` that became safe since the last call."""

    # -- out

    @abstractmethod
    def fetch(self, count: int, ack_required: bool) -> list[Delivery]:
        """Take up to `count` messages from the head; with `ack_required` they become pending."""

    @abstractmethod
    def drop(self, count: int, ack_required: bool) -> Dropped:
        """`fetch` without reading the bodies."""

    @abstractmethod
    def dropwhile(self, pred: Predicate, limit: int = SWEEP_LIMIT) -> Swept:
        """Remove from the head while `pred` holds, at most `limit` messages."""

    @abstractmethod
    def fetchwhile(
        self, pred: Predicate, fun: Callable[[QueuedMessage, T], T], acc: T, limit: int = SWEEP_LIMIT
    ) -> tuple[Swept, T]:
        """`dropwhile`, but each message becomes pending and is passed to `fun(message, acc)`."""

    @abstractmethod
    def ack(self, tags: Sequence[int]) -> int:
        """Forget pending messages. Unknown tags are skipped; returns how many were known."""

    @abstractmethod
    def requeue(self, tags: Sequence[int]) -> int:
        """Put pending messages back at their original positions, redelivered, expiry kept. Returns how many were known."""

    @abstractmethod
    def purge(self) -> int:
        """Remove all ready messages; returns how many. Pending acks stay."""

    # -- what is on disk

    @abstractmethod
    def available(self, limit: int) -> int:
        """How many messages at the head, up to `limit`, can be taken without waiting for the disk. Of a queue that reads ahead no more are taken."""

    @abstractmethod
    def prepare(self) -> Any:
        """A job (`read_ahead.Load`) after which more are available, or None; one at a time."""

    @abstractmethod
    def prepare_pending(self, tags: Sequence[int]) -> Any:
        """A job after which `ackfold` need not wait for the disk, if it is called at once, or None."""

    # -- inspection

    @abstractmethod
    def __len__(self) -> int:
        """Ready messages."""

    @abstractmethod
    def depth(self) -> int:
        """Ready and pending messages."""

    @abstractmethod
    def is_empty(self) -> bool:
        """No message is ready."""

    @property
    @abstractmethod
    def ready_bytes(self) -> int:
        """Body bytes of ready messages."""

    @property
    @abstractmethod
    def unacked_bytes(self) -> int:
        """Body bytes of pending messages."""

    @abstractmethod
    def head(self) -> QueuedMessage | None:
        """The next message, left where it is; None when empty."""

    @abstractmethod
    def head_expiry(self) -> int | None:
        """Expiry of the next message; None when it never expires or there is none."""

    @abstractmethod
    def ackfold(self, fun: Callable[[QueuedMessage, T], T], acc: T, tags: Sequence[int]) -> T:
        """Visit pending messages, `fun(message, acc)`; nothing is removed, unknown tags are skipped."""

    @abstractmethod
    def info(self, key: str) -> Any:
        """An item of section 3.1's list; an unknown key yields '' (never an error)."""

    # -- memory, sync, mode

    @abstractmethod
    def set_queue_mode(self, mode: str) -> None:
        """`default` or `lazy`, live."""

    @abstractmethod
    def set_ram_duration_target(self, seconds: float) -> None:
        """Seconds of traffic that may stay in memory, or INFINITE."""

    @abstractmethod
    def ram_duration(self) -> float:
        """Refresh the rates; seconds of traffic in memory, or INFINITE."""

    @abstractmethod
    def resume(self) -> None:
        """Credit came back from the store: continue paging."""

    @abstractmethod
    def continue_paging(self) -> None:
        """Take the next step of paging, if the last one left more to do."""
