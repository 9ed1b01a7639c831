"""What must hold of messages: a plain model that is told everything clients do and see, and raises `Broken` when a promise is.

It does not foretell who gets a message when; it knows for each **copy** (a message in a queue) what may still become of it:

    SENT      published; nothing proves yet that the broker has it
    THERE     the broker has it, and nobody holds it: it must come to light in the end
    HELD      a channel has it and has not settled it
    SETTLING  the channel has sent its acknowledgement; nothing proves yet that the broker has heard it
    GONE      settled or dead, and the broker knows; it may come again only if a crash came before that was on disk
    BURIED    may never come again
    LOOSE     may come or not: unconfirmed when something crashed, purged, or acknowledged into a crash

A copy is **safe** once its confirm has come, or when the whole node was at rest: then no crash may lose it. Proof that the broker has heard something is the answer to a
later method on the same channel, since a channel does everything in order.

What is not known is never held against the broker. So a queue (`queue_book`) is **shaken** while a consumer's channel may have gone with deliveries that no client saw (their
messages may come as redelivered, or, without acknowledgement, be lost), and **troubled** after a crash while what its earlier life sent may still arrive. Both end when the
node is at rest.

A dead letter is a copy of its own, in the queue of the graves; its **source** is the copy that died. One whose source may have died, come back with a crash, and died again is
**vague**: there may be several of it, so nothing is asked of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .queue_book import QueueBook

SENT, THERE, HELD, SETTLING, GONE, BURIED, LOOSE = "sent", "there", "held", "settling", "gone", "buried", "loose"


class Broken(AssertionError):
    """A promise of the broker was broken; the text says which."""


@dataclass(slots=True, eq=False)
class PublishedMessage:
    """`number` is in its body; `order` counts what its channel has published; `sent_at` and `expiration` are in seconds of the world."""

    number: int
    channel: Any
    order: int
    persistent: bool
    priority: int
    size: int
    sent_at: float
    expiration: float | None = None
    copies: list[Copy] = field(default_factory=list)
    by_exchange: bool = False
    is_mandatory: bool = False
    is_lost: bool = False  # there is no way for it, for certain
    is_returned: bool = False


@dataclass(slots=True, eq=False)
class Copy:
    """`arrived` is a time at which it was in its queue already; `grave` is its dead letter."""

    message: PublishedMessage
    queue: QueueBook
    fate: str = SENT
    source: Copy | None = None
    holder: Any = None
    is_safe: bool = False
    seen: int = 0
    may_be_redelivered: bool = False
    arrived: float | None = None
    grave: Copy | None = None
    is_rejected: bool = False
    is_doubtful: bool = False  # it may have died, and come back with a crash
    is_vague: bool = False

    def __str__(self) -> str:
        death = f", dead from '{self.source.queue.kind.name}'," if self.source is not None else ""
        return f"message {self.message.number}{death} in queue '{self.queue.kind.name}'"

    def loosen(self) -> None:
        """It may be gone from now on, whoever had it."""
        if self.fate != BURIED:
            self.fate, self.holder = LOOSE, None

    def blur(self) -> None:
        """There may be several of it."""
        self.is_vague = True
        self.loosen()


# -- what a channel's life means for the copies it has to do with ------------------------------------


def heard(copies: Iterable[Copy]) -> None:
    """The broker has these publishes."""
    for copy in copies:
        if copy.fate == SENT and not copy.queue.kind.may_refuse:
            copy.fate = THERE


def confirmed(message: PublishedMessage, now: float) -> None:
    for copy in message.copies:
        if copy.fate == SENT:
            copy.fate = THERE
        if copy.arrived is None:
            copy.arrived = now
        if copy.fate != LOOSE and copy.queue.outlives and message.persistent:
            copy.is_safe = True


def refused(message: PublishedMessage) -> None:
    for copy in message.copies:
        if copy.fate in (SENT, THERE):
            copy.fate = LOOSE


def unheard(copies: Iterable[Copy]) -> None:
    """Who published these is no more, and nobody knows whether the broker has them."""
    for copy in copies:
        if copy.fate == SENT:
            copy.fate = LOOSE


def settled(copies: Iterable[Copy], channel: Any) -> None:
    """The broker has heard these acknowledgements."""
    for copy in copies:
        if copy.fate == SETTLING and copy.holder is channel:
            copy.fate, copy.holder = GONE, None


def given_back(copies: Iterable[Copy], channel: Any) -> None:
    """The channel returns them, or is no more."""
    for copy in copies:
        if copy.fate == HELD and copy.holder is channel:
            copy.fate, copy.holder = THERE if copy.queue.keeps_what_returns else LOOSE, None
            copy.queue.is_touched = True
        elif copy.fate == SETTLING and copy.holder is channel:
            copy.fate, copy.holder = LOOSE, None
        copy.may_be_redelivered = True
