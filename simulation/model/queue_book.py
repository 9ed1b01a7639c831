"""What is known of a queue, and of the copies in it: the part of the model (`book`) that clients' news come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...actors.channel.queue_links import ATTEMPTS
from ..clients.kinds import QueueKind
from .book import BURIED, GONE, HELD, LOOSE, SENT, SETTLING, THERE, Broken, Copy, PublishedMessage

EXPIRY_SLACK = 0.002
"""Seconds: a message is dead a millisecond after its time at the latest, if anybody asks."""


class QueueBook:
    """`exists` and `is_bound` (to the exchange of the schedule) are True, False, or None: it depends on what is under way. `graves` is the book of the queue that its dead letters
    go to, None if there is none in the schedule; `clock` gives seconds of the world."""

    def __init__(self, kind: QueueKind, has_store: bool, clock: Callable[[], float]) -> None:
        self.kind = kind
        self.outlives = kind.durable and has_store
        self.clock = clock
        self.graves: QueueBook | None = None
        self.sources: dict[str, QueueBook] = {}  # those whose dead letters come here
        self.exists: bool | None = False
        self.is_bound: bool | None = False
        self.owner: Any = None  # the client's connection, of an exclusive queue
        self.copies: dict[tuple[int, str], Copy] = {}  # by number of the message, and the queue where it died
        self.consumers: list[Any] = []  # that the broker has answered, and that are not about to leave
        self.active: Any = None  # the consumer that was seen to be the single active one
        self.had_consumer = False
        self.is_shaken = False
        self.is_troubled = False
        self.is_leaking = False
        self.is_touched = False  # something came in since the node was at rest
        self.purgers: set[Any] = set()  # channels whose purge is under way
        self.unbinders: set[Any] = set()  # the same of those that unbind it
        self.deletes = 0  # under way
        self.declares = 0
        self.declared = 0  # how often
        self.is_declared_amid = False  # while a delete was under way: nobody knows which came first
        self.deleted = 0  # how often a delete was begun or answered
        self.unbinds = 0
        self.binds = 0  # under way
        self.crashes = 0
        self.may_be_down = False  # who asks for it may be refused (AB-63)
        self.may_go: Callable[[QueueBook], None] = _nobody  # called when it may be gone, or down, from now on
        self._vanishes: tuple[int, int] | None = (
            None  # it is about to end by itself: how often it had been declared, and had crashed, by then
        )
        self._crashes_before = 0  # the node was last at rest, or started
        self._exists_since = 0.0
        self._loosened_at = -1.0
        self._shaken_at = -1.0

    # -- coming in ---------------------------------------------------------------------------------

    def published(self, message: PublishedMessage, is_certain: bool) -> Copy:
        """`is_certain`: the message will be routed here."""
        copy = self.copies[message.number, ""] = Copy(
            message, self, SENT if is_certain and not self.may_lose else LOOSE
        )
        copy.may_be_redelivered = self.is_shaken
        message.copies.append(copy)
        self.is_touched = True
        return copy

    @property
    def may_lose(self) -> bool:
        """What comes in now may be gone at once."""
        return self.is_leaking or self.is_troubled or bool(self.purgers)

    @property
    def keeps_what_returns(self) -> bool:
        """What is given back stays. A consumer without acknowledgement may have gone unnoticed, and the broker gives it to that one; a queue that may go takes it along."""
        return self.exists is True and not self.is_leaking and not self.purgers

    # -- going out ---------------------------------------------------------------------------------

    def delivered(
        self, channel: Any, copy: Copy, redelivered: bool, consumer: Any, is_doubtful: bool, newest: dict[Any, int]
    ) -> None:
        """A channel sees a copy. `is_doubtful`: it leaves, or gives everything back, so others may have seen it since; `newest` is the channel's own record of order."""
        if not is_doubtful and not copy.is_vague:
            self._check(copy, redelivered, newest)
            self._check_expiry(copy, consumer.since)
            self._check_active(consumer)
        copy.seen += 1
        if copy.arrived is None:
            copy.arrived = self.clock()
        if copy.fate == BURIED:
            return
        if self.is_troubled or copy.is_vague:
            copy.loosen()  # of which life this delivery is nobody can tell
        elif not is_doubtful:
            copy.fate, copy.holder = (GONE, None) if consumer.no_ack else (HELD, channel)
        elif copy.fate in (SENT, THERE):
            copy.fate = GONE if consumer.no_ack else THERE

    def copy_of(self, number: int) -> Copy:
        """That of a message which somebody has published to this queue."""
        copy = self.copies.get((number, ""))
        if copy is None:
            raise Broken(f"message {number} came from queue '{self.kind.name}', to which it was never routed")
        return copy

    def _check(self, copy: Copy, redelivered: bool, newest: dict[Any, int]) -> None:
        if copy.fate == BURIED:
            raise Broken(f"{copy} was delivered again after it was gone for good")
        if self.is_troubled:
            return
        if copy.fate == GONE:
            raise Broken(
                f"{copy} was delivered again after its {'death' if copy.grave is not None else 'acknowledgement'}"
            )
        if copy.fate in (HELD, SETTLING) and not copy.holder.may_be_closed:
            raise Broken(f"{copy} was delivered while {copy.holder} has it")
        if copy.seen and not redelivered:
            raise Broken(f"{copy} was delivered for the second time, and not flagged as redelivered")
        if redelivered and not copy.seen and not copy.may_be_redelivered:
            raise Broken(f"{copy} was flagged as redelivered, though nobody can have seen it before")
        if not redelivered and copy.source is None:  # messages die in any order, when some were with consumers
            key = self, copy.message.channel, copy.message.priority if self.kind.has_priorities else 0
            if newest.get(key, 0) > copy.message.order:
                raise Broken(f"{copy} was delivered after a message that was published later")
            newest[key] = copy.message.order

    def _check_expiry(self, copy: Copy, asked_at: float) -> None:
        """What was dead before anybody asked must not be given to who asks then."""
        lifetime = self._lifetime(copy)
        if lifetime is not None and copy.arrived is not None and asked_at > copy.arrived + lifetime + EXPIRY_SLACK:
            raise Broken(
                f"{copy} was delivered, though it had expired {(asked_at - copy.arrived - lifetime) * 1000:.0f} ms before anybody asked for it"
            )

    def _lifetime(self, copy: Copy) -> float | None:
        """Seconds after which it dies, if nobody has it; None: never."""
        if copy.source is not None:
            return None  # dead letters have lost theirs, and their queue has none
        limits = [limit for limit in (copy.message.expiration, self.kind.ttl) if limit is not None]
        return min(limits, default=None)

    def _check_active(self, consumer: Any) -> None:
        if not self.kind.is_single_active or self.is_troubled or not consumer.tag:
            return
        if (
            self.active is not None
            and self.active is not consumer
            and self.active in self.consumers
            and not self.active.channel.may_be_closed
        ):
            raise Broken(
                f"{consumer} got a message of queue '{self.kind.name}', whose single active consumer is {self.active}"
            )
        if consumer in self.consumers:
            self.active = consumer

    # -- dying -------------------------------------------------------------------------------------

    def rejects(self, copy: Copy) -> Copy | None:
        """A channel is about to reject it, and may be heard; its dead letter, if it can have one."""
        copy.is_rejected = True
        return self._dies(copy, SENT) if copy.source is None else None

    def dead(self, number: int, source: str, reason: str) -> Copy:
        """A dead letter comes from here: which it is. Raises Broken if it cannot be."""
        queue = self.sources.get(source)
        origin = queue.copies.get((number, "")) if queue is not None else None
        if queue is None or origin is None:
            raise Broken(
                f"message {number} came as a dead letter of queue '{source}', {'to which it was never routed' if queue is not None else 'which has none'}"
            )
        queue._check_reason(origin, reason)
        known = self.copies.get((number, source))
        if known is not None:
            return known
        is_certain = not (self.is_troubled or queue.is_troubled or origin.is_doubtful)
        if is_certain:
            queue._check_death(origin)
        copy = queue._dies(origin, THERE)
        assert copy is not None
        if not is_certain:
            copy.blur()
            origin.loosen()
        elif origin.fate != BURIED:
            origin.fate, origin.holder = GONE, None
        return copy

    def _check_reason(self, copy: Copy, reason: str) -> None:
        lifetime = self._lifetime(copy)
        if reason == "expired":
            if lifetime is None:
                raise Broken(f"{copy} died of its age, and has none to die of")
            if self.clock() < copy.message.sent_at + lifetime:
                raise Broken(
                    f"{copy} expired {(copy.message.sent_at + lifetime - self.clock()) * 1000:.0f} ms before its time"
                )
        elif not (reason == "rejected" and copy.is_rejected or reason == "maxlen" and self.kind.drops_head):
            raise Broken(f"{copy} died for no reason: '{reason}'")

    def _check_death(self, copy: Copy) -> None:
        if copy.fate in (GONE, BURIED):
            raise Broken(f"{copy} died after it was gone")
        if copy.fate in (HELD, SETTLING) and not copy.holder.may_be_closed:
            raise Broken(f"{copy} died while {copy.holder} had it")

    def _dies(self, copy: Copy, fate: str) -> Copy | None:
        graves = self.graves
        if graves is None:
            return None
        if copy.grave is not None:
            copy.grave.blur()
            return copy.grave
        since = self._lives_until(copy)
        found = copy.grave = graves.copies[copy.message.number, self.kind.name] = Copy(
            copy.message, graves, fate if graves._has_kept_since(since) else LOOSE, copy
        )
        found.may_be_redelivered = graves.is_shaken or graves._shaken_at >= since
        graves.is_touched = True
        return found

    def _lives_until(self, copy: Copy) -> float:
        """A time before which it cannot have died."""
        if copy.fate == HELD and not copy.holder.may_be_closed:
            return self.clock()
        lifetime = None if copy.is_rejected or self.kind.drops_head else self._lifetime(copy)
        return copy.message.sent_at + (lifetime or 0.0)

    def _has_kept_since(self, time: float) -> bool:
        """Whether all that came in since then must still be there, or have been delivered."""
        return (
            self.exists is True
            and self._exists_since <= time
            and self._loosened_at < time
            and not self.may_lose
            and not self.deletes
        )

    def _may_have_died(self, copy: Copy) -> bool:
        """Since the node was last at rest."""
        lifetime = self._lifetime(copy)
        return (
            lifetime is not None
            and self.clock() >= copy.message.sent_at + lifetime
            or self.kind.drops_head
            and self.is_touched
        )

    # -- what happens to all -----------------------------------------------------------------------

    def shake(self, is_leaking: bool = False) -> None:
        """Deliveries may have been lost on their way; with `is_leaking` some that need no acknowledgement."""
        self.is_shaken = True
        self._shaken_at = self.clock()
        self.is_leaking |= is_leaking
        for copy in self.copies.values():
            copy.may_be_redelivered = True
        if is_leaking:
            self.loosen()

    def loosen(self) -> None:
        """What nobody holds may be gone from now on."""
        self._loosened_at = self.clock()
        for copy in self.copies.values():
            if copy.fate in (SENT, THERE):
                copy.fate = LOOSE

    def _loosen_all(self) -> None:
        self._loosened_at = self.clock()
        for copy in self.copies.values():
            if self.kind.has_dead_letters and copy.fate != BURIED:
                copy.is_doubtful = True  # it may have died before
                if copy.grave is not None:
                    copy.grave.blur()  # or it was too late for that
            copy.loosen()

    def purge_begins(self, channel: Any) -> None:
        self.purgers.add(channel)
        self.loosen()

    def purged(self, channel: Any) -> None:
        self.purgers.discard(channel)
        self.loosen()

    def bury(self) -> None:
        """The queue is gone with all that was in it."""
        for copy in self.copies.values():
            copy.fate = BURIED

    # -- there or not ------------------------------------------------------------------------------

    def may_be_used_by(self, connection: Any) -> bool:
        """Whether it is there for certain, and not another's."""
        return self.exists is True and (not self.kind.exclusive or self.owner is connection)

    def declare_begins(self) -> None:
        self.declares += 1  # for ever, if the channel ends before the answer: then nobody knows
        if self.exists is False:
            self.exists = None

    def declare_ok(self, deleted: int, is_leaving: bool, owner: Any) -> None:
        """`deleted`: how often it had been, when it was asked for. `is_leaving`: the channel is about to end, and this may be old news."""
        self.declares -= 1
        self.declared += 1
        is_certain = self.deleted == deleted and not is_leaving
        if self.kind.exclusive and not is_leaving:
            if self.exists and self.owner is not owner:
                raise Broken(
                    f"exclusive queue '{self.kind.name}' was given to {owner.client.name}, and {self.owner.client.name} has it"
                )
            if self._vanishes is not None:
                self._ended()  # else it would have been refused
                is_certain = True
            self.owner = owner
        if self.deletes == 0 and is_certain and self._vanishes is None:
            self._is_there()
        self.is_declared_amid |= self.deletes > 0

    def _is_there(self) -> None:
        if self.exists is not True:
            self.exists = True
            self._exists_since = self.clock()

    def unbind_begins(self, channel: Any) -> None:
        self.is_bound = None
        self.unbinders.add(channel)
        self.unbinds += 1
        for copy in self.copies.values():
            if copy.fate == SENT and copy.message.by_exchange:
                copy.fate = LOOSE  # it may be handled only after that

    def delete_begins(self) -> list[Copy]:
        """Somebody asks for its deletion; what to tell `deleted_ok`."""
        self.deletes += 1
        self.deleted += 1
        self.exists = self.is_bound = None
        self.may_go(self)
        doomed = [copy for copy in self.copies.values() if copy.fate not in (SENT, LOOSE)]
        self._loosen_all()
        return doomed

    def deleted_ok(self, doomed: list[Copy]) -> None:
        """None of these can be in what is declared under its name later."""
        self.deletes -= 1
        self.deleted += 1
        self._loosen_all()
        for copy in doomed:
            copy.fate = BURIED
        self.exists = None if self.deletes or self.declares or self.is_declared_amid else False
        # A bind that waits, for the disk perhaps, finds what is declared under its name after that.
        self.is_bound = None if self.exists is None or self.binds else False
        self.is_declared_amid &= self.deletes > 0

    def leaves(self, consumer: Any) -> None:
        """A consumer is about to go, or has gone; told twice, only the first time counts."""
        is_known = consumer in self.consumers
        if is_known:
            self.consumers.remove(consumer)
        if not consumer.has_left:
            consumer.has_left = True
            if not consumer.is_stale or self.exists is None:  # else it was one of its earlier life
                self.may_vanish(is_known and not consumer.is_stale)

    def may_vanish(self, is_certain: bool = False) -> None:
        """A consumer may have gone; `is_certain`: there was one, and it has."""
        if self.kind.auto_delete and self.had_consumer:
            self._begins_to_vanish(is_certain)

    def owner_leaves(self) -> None:
        """The connection of an exclusive queue is about to end, or has ended somehow."""
        self._begins_to_vanish()

    def owner_left(self) -> None:
        """It has ended, and the broker has said so: with that the queue was gone."""
        self._ended()

    def _begins_to_vanish(self, is_certain: bool = True) -> None:
        self.deleted += 1
        self.exists = self.is_bound = None
        # A queue that has just crashed may have a new process, which has never seen a consumer and stays; so may one that is declared again while it is deleted, and then
        # the consumer was the deleted one's.
        if is_certain and not self.is_troubled and not self.deletes:
            self._vanishes = self.declared, self.crashes
        elif self._vanishes is None:
            self._vanishes = -1, -1
        self.may_go(self)
        self._loosen_all()

    def _ended(self) -> None:
        self.deleted += 1
        self.exists = self.is_bound = False
        self.owner = self._vanishes = None
        self.had_consumer = False
        self.bury()

    # -- crashes, and rest -------------------------------------------------------------------------

    def crashed(self, keeps_disk: bool, may_stay_down: bool = False) -> None:
        """Its process has crashed, or the whole node. With `may_stay_down` it is not restarted at once, perhaps."""
        self.is_troubled = True
        self.active = None
        self.crashes += 1
        # What has met so many crashes is refused even though there is a next process.
        if may_stay_down or self.crashes - self._crashes_before >= ATTEMPTS:
            self.may_be_down = True
            self.may_go(self)
        self._loosened_at = self.clock()
        self.shake()
        # A purge that meets the crash is put to its next process (AB-63), and there everything is ready: also what somebody holds now.
        keeps_all = keeps_disk and not self.purgers
        for copy in self.copies.values():
            is_doubtful = (
                self.kind.has_dead_letters
                and copy.fate != BURIED
                and (copy.grave is not None or self._may_have_died(copy))
            )
            if copy.fate in (THERE, HELD) and copy.is_safe and keeps_all and not is_doubtful:
                copy.fate, copy.holder = THERE, None
            else:
                copy.loosen()
            if is_doubtful:
                copy.is_doubtful = True
                if copy.grave is not None:
                    copy.grave.blur()

    def node_ended(self) -> None:
        """The node has ended somehow. Nothing that comes later can be of its life."""
        self.deletes = self.declares = self.unbinds = self.binds = 0
        self.is_declared_amid = False
        self.purgers.clear()
        self.unbinders.clear()
        self.consumers.clear()
        if not self.outlives:
            self._ended()
            return
        if self.kind.auto_delete and self.had_consumer:
            self._begins_to_vanish()
            self._vanishes = None  # or not: it may have been too late for that
        self.had_consumer = False
        self.crashed(True)
        for copy in self.copies.values():
            if not copy.message.persistent:
                copy.fate = BURIED
        self.is_troubled = False
        self._is_up()

    def rested(self) -> None:
        """The node is at rest, and its disk takes writes: what was to be written is."""
        now = self.clock()
        # Until now: what died in the meantime may have been delivered to who was about to leave, or came while its process was down.
        if self.may_lose:
            self._loosened_at = now
        if self.is_shaken:
            self._shaken_at = now
        self.is_shaken = self.is_troubled = self.is_leaking = self.is_touched = False
        self._is_up()
        self.purgers = {channel for channel in self.purgers if not channel.is_leaving}
        self.unbinders = {channel for channel in self.unbinders if not channel.is_leaving}
        if self._vanishes is not None:
            self._has_vanished(*self._vanishes)
        for copy in self.copies.values():
            if (
                copy.fate == THERE
                and self.graves is not None
                and self.kind.ttl is not None
                and copy.arrived is not None
                and now > copy.arrived + self.kind.ttl + EXPIRY_SLACK
            ):
                self._dies(copy, THERE)
                copy.fate = BURIED
            if copy.fate == GONE:
                copy.fate = BURIED
            elif copy.fate in (THERE, HELD):
                if copy.arrived is None:
                    copy.arrived = now
                if self.outlives and copy.message.persistent:
                    copy.is_safe = True

    def _is_up(self) -> None:
        self.may_be_down = False
        self._crashes_before = self.crashes

    def _has_vanished(self, declared: int, crashes: int) -> None:
        self._vanishes = None
        if self.consumers:
            for consumer in self.consumers:
                consumer.deleted = self.deleted  # they have held it up
            self._is_there()
        elif (self.declared, self.crashes, self.declares, self.deletes) == (declared, crashes, 0, 0):
            self._ended()

    def missing(self) -> list[Copy]:
        """What must be there and has not come, when everything has been taken out, of the graves too."""
        if self.deletes:
            return []  # who asked for its deletion is no more, so nobody knows
        return [copy for copy in self.copies.values() if copy.fate == THERE and not self._may_be_gone(copy)]

    def _may_be_gone(self, copy: Copy) -> bool:
        if self._lifetime(copy) is None and not self.kind.drops_head:
            return False
        return self.graves is None or copy.is_doubtful or not self.graves._has_kept_since(self._lives_until(copy))


def _nobody(queue: QueueBook) -> None:
    """Nobody wants to know."""
