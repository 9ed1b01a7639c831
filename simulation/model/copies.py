"""The copies of a message, and what may still become of each.

A message that is routed to three queues has three **copies**. The model does not predict which consumer gets a copy,
or when. It keeps a `CopyState` for each copy, and clients report to it what they send and receive. A report that
contradicts the state raises `PromiseBroken`.

A client often sends something and cannot tell yet whether the broker has received it. The proof is the answer to a
later method on the same channel, since a channel handles everything in order. Until then the copy has a state of its
own (`SENT`, `SETTLING`), and if the connection ends first the copy is `UNCERTAIN`.

A copy is **safe** once the publish was confirmed, or once the whole node was at rest. No crash may lose a safe copy.

A dead letter is a copy of its own, in the queue for dead letters; its `source` is the copy that died. If the source
died shortly before a crash, it may come back with the next start and die once more. The dead letter is then
**ambiguous**: the queue may hold none, one or several of it, so nothing is expected of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from .protocols import ObservedChannel

if TYPE_CHECKING:
    from .queue_model import QueueModel


class PromiseBroken(AssertionError):
    """The broker broke a promise; the text names it."""


class CopyState(Enum):
    """What is known of a copy."""

    #: Published; nothing proves yet that the broker has received it.
    SENT = "sent"
    #: The broker has it and no channel holds it. A consumer must get it in the end.
    READY = "ready"
    #: A channel has received it and has not settled it.
    UNACKED = "unacked"
    #: The channel has sent its acknowledgement; nothing proves yet that the broker has received that.
    SETTLING = "settling"
    #: Settled or dead, and the broker knows. It may come again only if a crash comes before that is on the disk.
    REMOVED = "removed"
    #: It must never be delivered (again).
    FORBIDDEN = "forbidden"
    #: It may be delivered or not: not confirmed before a crash, purged, or acknowledged shortly before a crash.
    UNCERTAIN = "uncertain"


@dataclass(slots=True, eq=False)
class PublishedMessage:
    """A message that a client has published. Its body contains `number`."""

    number: int
    channel: ObservedChannel
    #: Its place among the messages that its channel has published, from 1.
    order: int
    persistent: bool
    priority: int
    size: int
    #: In seconds of the world.
    sent_at: float
    #: Seconds after which it expires.
    expiration: float | None = None
    copies: list[Copy] = field(default_factory=list)
    #: Whether it was published to the exchange of the schedule instead of directly to a queue.
    by_exchange: bool = False
    is_mandatory: bool = False
    #: Whether it certainly reaches no queue.
    is_unroutable: bool = False
    is_returned: bool = False
    #: Whether its properties, which follow from its number, differ from those of all other messages.
    is_differing: bool = False
    #: With `routing_key`, what it was published with.
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True, eq=False)
class Copy:
    """A message in a queue."""

    message: PublishedMessage
    queue: QueueModel
    state: CopyState = CopyState.SENT
    #: For a dead letter, the copy that died.
    source: Copy | None = None
    #: The channel that holds it while it is `UNACKED` or `SETTLING`.
    holder: ObservedChannel | None = None
    is_safe: bool = False
    #: How often clients have received it.
    seen: int = 0
    may_be_redelivered: bool = False
    #: A time at which it was certainly in its queue, None if no such time is known.
    arrived: float | None = None
    #: The copy that it becomes when it dies in a queue with a dead-letter exchange.
    dead_letter: Copy | None = None
    is_rejected: bool = False
    #: How often it was returned to its queue, at least and at most. A crash may undo returns that are not on the disk
    #: yet; `returns_kept` are the returns that are.
    returns_least: int = 0
    returns_kept: int = 0
    returns_most: int = 0
    #: Whether it may have died and come back with a crash.
    may_have_died: bool = False
    is_ambiguous: bool = False

    def __str__(self) -> str:
        death = f", dead from '{self.source.queue.kind.name}'," if self.source is not None else ""
        return f"message {self.message.number}{death} in queue '{self.queue.kind.name}'"

    @property
    def stayed_in_line(self) -> bool:
        """Whether the copy has certainly never left its place in the queue before it died, so that it died at the head.

        A message that was sent to a client, even to one that has not received it, comes back and may die later.
        """
        kind = self.queue.kind
        was_sent = self.seen or self.may_be_redelivered or self.is_ambiguous
        return not (was_sent or kind.dead_letters_refused or kind.has_priorities or kind.is_quorum)

    @property
    def is_held(self) -> bool:
        """Whether a channel that the broker has certainly not closed has received it and does not requeue it."""
        return (
            self.state in (CopyState.UNACKED, CopyState.SETTLING)
            and self.holder is not None
            and not self.holder.may_be_closed
        )

    @property
    def is_persistent(self) -> bool:
        """Whether it survives a restart if its queue does."""
        return self.message.persistent or self.queue.kind.is_quorum

    def is_returned_too_often(self, returns: int) -> bool:
        limit = self.queue.kind.delivery_limit
        return limit is not None and returns > limit

    def make_uncertain(self) -> None:
        """From now on it may be gone, whether a client held it or not."""
        if self.state != CopyState.FORBIDDEN:
            self.state, self.holder = CopyState.UNCERTAIN, None

    def make_ambiguous(self) -> None:
        """From now on the queue may hold none, one or several of it."""
        self.is_ambiguous = True
        self.make_uncertain()


# -- what the events of a channel mean for its copies ---


def mark_arrived(copies: Iterable[Copy]) -> None:
    """The broker has received these publishes."""
    for copy in copies:
        if copy.state == CopyState.SENT and not copy.queue.kind.may_nack:
            copy.state = CopyState.READY


def mark_confirmed(message: PublishedMessage, now: float) -> None:
    """The broker has confirmed the publish."""
    for copy in message.copies:
        if copy.state == CopyState.SENT:
            copy.state = CopyState.READY
        if copy.arrived is None:
            copy.arrived = now
        is_here = copy.state not in (CopyState.UNCERTAIN, CopyState.FORBIDDEN)
        if is_here and copy.queue.survives_restart and copy.is_persistent:
            copy.is_safe = True


def mark_refused(message: PublishedMessage) -> None:
    """The broker has answered the publish with a nack."""
    for copy in message.copies:
        if copy.state in (CopyState.SENT, CopyState.READY):
            copy.state = CopyState.UNCERTAIN


def mark_maybe_lost(copies: Iterable[Copy]) -> None:
    """The channel that published these has ended, and the broker may have received them or not."""
    for copy in copies:
        if copy.state == CopyState.SENT:
            copy.state = CopyState.UNCERTAIN


def mark_settled(copies: Iterable[Copy], channel: ObservedChannel) -> None:
    """The broker has received the acknowledgements of these copies."""
    for copy in copies:
        if copy.state == CopyState.SETTLING and copy.holder is channel:
            copy.state, copy.holder = CopyState.REMOVED, None


def mark_returned(copies: Iterable[Copy], channel: ObservedChannel) -> None:
    """The channel requeues these copies, or has ended."""
    for copy in copies:
        copy.returns_most += 1
        if copy.state == CopyState.UNACKED and copy.holder is channel:
            copy.returns_least += 1
            copy.state, copy.holder = CopyState.READY if copy.queue.keeps_returned else CopyState.UNCERTAIN, None
            copy.queue.has_new_messages = True
        elif copy.state == CopyState.SETTLING and copy.holder is channel:
            copy.state, copy.holder = CopyState.UNCERTAIN, None
        copy.may_be_redelivered = True
