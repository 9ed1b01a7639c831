"""What must hold of messages: a plain model that is told everything clients do and see, and raises `Broken` when a promise is.

It does not foretell who gets a message when; it knows for each **copy** (a message in a queue) what may still become of it:

    SENT      published; nothing proves yet that the broker has it
    THERE     the broker has it, and nobody holds it: it must come to light in the end
    HELD      a channel has it and has not settled it
    SETTLING  the channel has sent its acknowledgement; nothing proves yet that the broker has heard it
    GONE      settled, and the broker knows; it may come again only if a crash came before that was on disk
    BURIED    may never come again
    LOOSE     may come or not: unconfirmed when something crashed, purged, or acknowledged into a crash

A copy is **safe** once its confirm has come, or when the whole node was at rest: then no crash may lose it. Proof that the broker has heard something is the answer to a
later method on the same channel, since a channel does everything in order.

What is not known is never held against the broker. So a queue is **shaken** while a consumer's channel may have gone with deliveries that no client saw (their messages may come
as redelivered, or, without acknowledgement, be lost), and **troubled** after a crash while what its earlier life sent may still arrive. Both end when the node is at rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SENT, THERE, HELD, SETTLING, GONE, BURIED, LOOSE = "sent", "there", "held", "settling", "gone", "buried", "loose"


class Broken(AssertionError):
    """A promise of the broker was broken; the text says which."""


@dataclass(frozen=True, slots=True)
class QueueKind:
    """A queue as the clients of a schedule declare it. `may_drop`: messages may go by themselves; `may_refuse`: it may nack."""

    name: str
    durable: bool = True
    arguments: dict[str, Any] = field(default_factory=dict)
    may_drop: bool = False
    may_refuse: bool = False

    @property
    def has_priorities(self) -> bool:
        return "x-max-priority" in self.arguments


KINDS = (
    QueueKind("orders"),
    QueueKind("urgent", arguments={"x-max-priority": 3}),
    QueueKind("news", durable=False),
    QueueKind("archive", arguments={"x-queue-mode": "lazy"}),
    QueueKind("brief", arguments={"x-message-ttl": 40}, may_drop=True),
    QueueKind("last", arguments={"x-max-length": 3}, may_drop=True),
    QueueKind("full", arguments={"x-max-length": 3, "x-overflow": "reject-publish"}, may_refuse=True),
)


@dataclass(slots=True, eq=False)
class Message:
    """`number` is in its body; `order` counts what its channel has published."""

    number: int
    channel: Any
    order: int
    persistent: bool
    priority: int
    size: int
    may_expire: bool
    copies: list[Copy] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Copy:
    message: Message
    queue: QueueBook
    fate: str = SENT
    holder: Any = None
    is_safe: bool = False
    seen: int = 0
    may_be_redelivered: bool = False

    def __str__(self) -> str:
        return f"message {self.message.number} in queue '{self.queue.kind.name}'"


class QueueBook:
    """What is known of a queue. `exists` and `is_bound` (to the exchange of the schedule) are True, False, or None: it depends on what is under way."""

    def __init__(self, kind: QueueKind, has_store: bool) -> None:
        self.kind = kind
        self.outlives = kind.durable and has_store
        self.exists: bool | None = False
        self.is_bound: bool | None = False
        self.copies: dict[int, Copy] = {}
        self.is_shaken = False
        self.is_troubled = False
        self.is_leaking = False
        self.deletes = 0  # under way
        self.declares = 0
        self.is_declared_amid = False  # while a delete was under way: nobody knows which came first
        self.deleted = 0  # how often a delete was begun or answered
        self.unbinds = 0
        self.crashes = 0

    # -- coming in ---------------------------------------------------------------------------------

    def published(self, message: Message, is_certain: bool) -> Copy:
        """`is_certain`: the message will be routed here."""
        copy = self.copies[message.number] = Copy(message, self, SENT if is_certain and not (self.is_leaking or self.is_troubled) else LOOSE)
        copy.may_be_redelivered = self.is_shaken
        message.copies.append(copy)
        return copy

    # -- going out ---------------------------------------------------------------------------------

    def delivered(self, channel: Any, number: int, redelivered: bool, no_ack: bool, is_doubtful: bool, newest: dict[Any, int]) -> Copy:
        """A channel sees a message. `is_doubtful`: it leaves, or gives everything back, so others may have seen it since; `newest` is the channel's own record of order."""
        copy = self.copies.get(number)
        if copy is None:
            raise Broken(f"message {number} came from queue '{self.kind.name}', to which it was never routed")
        if not is_doubtful:
            self._check(copy, redelivered, newest)
        copy.seen += 1
        if copy.fate == BURIED:
            return copy
        if self.is_troubled:
            copy.fate, copy.holder = LOOSE, None  # of which life this delivery is nobody can tell
        elif not is_doubtful:
            copy.fate, copy.holder = (GONE, None) if no_ack else (HELD, channel)
        elif copy.fate in (SENT, THERE):
            copy.fate = GONE if no_ack else THERE
        return copy

    def _check(self, copy: Copy, redelivered: bool, newest: dict[Any, int]) -> None:
        if copy.fate == BURIED:
            raise Broken(f"{copy} was delivered again after it was gone for good")
        if self.is_troubled:
            return
        if copy.fate == GONE:
            raise Broken(f"{copy} was delivered again after its acknowledgement")
        if copy.fate in (HELD, SETTLING) and not copy.holder.may_be_closed:
            raise Broken(f"{copy} was delivered while {copy.holder} has it")
        if copy.seen and not redelivered:
            raise Broken(f"{copy} was delivered for the second time, and not flagged as redelivered")
        if redelivered and not copy.seen and not copy.may_be_redelivered:
            raise Broken(f"{copy} was flagged as redelivered, though nobody can have seen it before")
        if not redelivered:
            key = self, copy.message.channel, copy.message.priority if self.kind.has_priorities else 0
            if newest.get(key, 0) > copy.message.order:
                raise Broken(f"{copy} was delivered after a message that was published later")
            newest[key] = copy.message.order

    # -- what happens to all -----------------------------------------------------------------------

    def shake(self, is_leaking: bool = False) -> None:
        """Deliveries may have been lost on their way; with `is_leaking` some that need no acknowledgement."""
        self.is_shaken = True
        self.is_leaking |= is_leaking
        for copy in self.copies.values():
            copy.may_be_redelivered = True
            if is_leaking and copy.fate in (SENT, THERE):
                copy.fate = LOOSE

    def loosen(self) -> None:
        """What nobody holds may be gone from now on."""
        for copy in self.copies.values():
            if copy.fate in (SENT, THERE):
                copy.fate = LOOSE

    def delete_begins(self) -> list[Copy]:
        """Somebody asks for its deletion; what to tell `deleted_ok`."""
        self.deletes += 1
        self.deleted += 1
        self.exists = self.is_bound = None
        doomed = [copy for copy in self.copies.values() if copy.fate not in (SENT, LOOSE)]
        for copy in self.copies.values():
            if copy.fate != BURIED:
                copy.fate, copy.holder = LOOSE, None
        return doomed

    def deleted_ok(self, doomed: list[Copy]) -> None:
        """None of these can be in what is declared under its name later."""
        self.deletes -= 1
        self.deleted += 1
        for copy in self.copies.values():
            if copy.fate != BURIED:
                copy.fate, copy.holder = LOOSE, None
        for copy in doomed:
            copy.fate = BURIED
        self.exists = self.is_bound = None if self.deletes or self.declares or self.is_declared_amid else False
        self.is_declared_amid &= self.deletes > 0

    def bury(self) -> None:
        """The queue is gone with all that was in it."""
        for copy in self.copies.values():
            copy.fate = BURIED

    def crashed(self, keeps_disk: bool) -> None:
        """Its process has crashed, or the whole node."""
        self.is_troubled = True
        self.crashes += 1
        self.shake()
        for copy in self.copies.values():
            if copy.fate in (THERE, HELD) and copy.is_safe and keeps_disk:
                copy.fate = THERE
            elif copy.fate != BURIED:
                copy.fate = LOOSE
            copy.holder = None

    def node_ended(self, was_stopped: bool) -> None:
        """The node has ended somehow. Nothing that comes later can be of its life."""
        self.deletes = self.declares = self.unbinds = 0
        self.is_declared_amid = False
        if not self.outlives:
            self.bury()
            self.exists = self.is_bound = False
            return
        self.crashed(True)
        for copy in self.copies.values():
            if not copy.message.persistent:
                copy.fate = BURIED
        self.is_troubled = False

    def rested(self) -> None:
        """The node is at rest, and its disk takes writes: what was to be written is."""
        self.is_shaken = self.is_troubled = self.is_leaking = False
        for copy in self.copies.values():
            if copy.fate == GONE:
                copy.fate = BURIED
            elif copy.fate in (THERE, HELD) and self.outlives and copy.message.persistent:
                copy.is_safe = True

    def missing(self) -> list[Copy]:
        """What must be there and has not come, when everything has been taken out."""
        if self.deletes:
            return []  # who asked for its deletion is no more, so nobody knows
        return [copy for copy in self.copies.values() if copy.fate == THERE and not self.kind.may_drop and not copy.message.may_expire]


# -- what a channel's life means for the copies it has to do with ------------------------------------


def heard(copies: Iterable[Copy]) -> None:
    """The broker has these publishes."""
    for copy in copies:
        if copy.fate == SENT and not copy.queue.kind.may_refuse:
            copy.fate = THERE


def confirmed(message: Message) -> None:
    for copy in message.copies:
        if copy.fate == SENT:
            copy.fate = THERE
        if copy.fate != LOOSE and copy.queue.outlives and message.persistent:
            copy.is_safe = True


def refused(message: Message) -> None:
    for copy in message.copies:
        if copy.fate in (SENT, THERE):
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
            # A consumer without acknowledgement may have gone, and the broker not have noticed: it gives this to that one.
            copy.fate, copy.holder = LOOSE if copy.queue.is_leaking else THERE, None
        elif copy.fate == SETTLING and copy.holder is channel:
            copy.fate, copy.holder = LOOSE, None
        copy.may_be_redelivered = True
