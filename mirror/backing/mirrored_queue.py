"""`MirroredQueue`: the backing queue of a replica of a mirrored queue, around the one that has its messages.

**At the master** it passes every call on, and makes instructions for the mirrors: which messages were published under
which numbers, and which have left. The replica (`replication`) hands the instructions to the ring at the end of the
turn. `drain_confirmed` reports messages that are safe here and that all members of the ring have.

**At a mirror** `take` and `remove` follow the instructions. A mirror has no consumers, so what the queue has is ready;
but a message that has left may stand behind others that have not. Then the mirror takes those from the head, as a
consumer would, and they are pending until they leave as well. `promote` puts them back.

While the master has neither mirrors nor learners it makes no instructions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ...gm_ring.frames import Instruction
from ...seams import seam
from ...store.messages.lives import Lives
from ...store.messages.message import Expiries, FetchedMessages, Origin, Origins, QueuedMessage, any_of
from ...store.messages.parts import Part
from ...store.messages.run import Run
from ...store.queue.backing_queue import UNLIMITED, BackingQueue, Dispose, Totals
from ...store.queue.levels.level_tags import LEVEL_SHIFT
from ...store.queue.levels.priority_queue import PriorityQueue
from ...store.queue.variable.read_ahead import ReadAheadJob
from .. import instructions
from ..confirming import Confirming
from ..publishers import Publishers
from .purge import Purge

#: How many numbers each master leaves out, because the one before it may have given them to messages that no other
#: replica has received.
SKIPPED = 1 << 20

#: After this many numbers of messages that no mirror gets, the master sends the mirrors a RESERVE instruction.
UNTOLD_MOST = SKIPPED // 2

#: How many messages a mirror takes from its head in one step.
PULLED_AT_ONCE = 4096

#: Every empty dict takes 64 bytes, so idle queues share this one.
_NO_LEVELS: Mapping[int, int] = {}


class MirroredQueue(BackingQueue):
    """See the module. `is_durable`: the queue and its persistent messages survive a restart of the node."""

    def __init__(self, inner: BackingQueue, is_durable: bool) -> None:
        self.inner = inner
        self._is_durable = is_durable
        #: Whether there is a mirror or learner that gets the instructions.
        self.is_followed = False
        #: The instructions of this turn, and the position of the last one before them.
        self.out: list[Instruction] = []
        self.position = 0
        self.confirming = Confirming()
        #: Which publishes of which channels this replica has taken.
        self.publishers = Publishers()
        #: Called with the numbers that became safe here, while a new master waits until the messages that it has taken
        #: as a mirror are safe.
        self.on_safe: Callable[[list[tuple[int, int]]], None] | None = None
        #: Whether the node may act for its cluster; if not, nothing is confirmed.
        self.may_confirm = True
        self._is_purging = False
        #: The mode that the queue has, or gets back at the end of a copy.
        self._mode = "default"
        self._is_copying = False
        #: At a mirror, by level: the master may have given all numbers below this one.
        self._reserved = _NO_LEVELS
        #: The reign to which `floors` belong.
        self._reign = 1
        #: At the master, by level: the mirrors have received that all numbers below this one are given.
        self._told = _NO_LEVELS
        #: At a mirror: messages that are to leave (`remove`), or that are to be taken from the head because they stay
        #: in a purge, and that stand behind messages which must be read from the disk first. The end of a purge has no
        #: messages.
        self._leaving: deque[tuple[range, Purge | None]] | None = None

    def took(self, count: int) -> None:
        """Note that the ring has taken the instructions of this turn, and numbered them up to `count`."""
        self.out = []
        self.position = count

    # -- the mirror

    def copies(self, is_copying: bool) -> None:
        """Keep no message in memory while a copy is made (`is_copying`). The backlog may be larger than the memory, and
        nobody reads it here while it is copied; a lazy queue also writes large runs once instead of twice.
        """
        if is_copying != self._is_copying:
            self._is_copying = is_copying
            self.set_queue_mode(self._mode)

    def take(self, run: Run) -> range:
        """Append a run that the master has numbered. Numbers between the last run and this one belong to no message."""
        number = self.next_number(run.origin)
        if number > run.first:
            raise ValueError(f"a mirror whose next number is {number} got a run that begins with {run.first}")
        if number < run.first:
            self.inner.discard(run.origin, run.first - number, False)
        self.reserve(run.end)
        is_kept = self.is_kept(run.origins)
        return self.inner.publish(run.origins, run.contents, run.body_bytes, run.expiries, is_kept)

    def is_kept(self, origins: Origins) -> bool:
        """Whether messages of this fate have to be on the disk."""
        return self._is_durable and any_of(origins).persistent

    def next_number(self, origin: Origin) -> int:
        """The number that the next message of this fate gets."""
        return self.inner.discard(origin, 0, False).start

    def reserve(self, number: int) -> None:
        """Note that the master may have given all numbers below this one in its level."""
        level = number >> LEVEL_SHIFT
        if number > self._reserved.get(level, 0):
            self._reserved = {**self._reserved, level: number}

    def floors(self) -> tuple[int, list[int]]:
        """The present reign, and for each level the number below which masters may have given all numbers, as far as
        this replica can tell. The master of the next reign begins `SKIPPED` numbers later, because the present one may
        have given numbers that this replica has not received.
        """
        return self._reign, [max(self._reserved.get(level, 0), self._next(level)) for level in self._levels()]

    def begin(self, reign: int, is_resurrected: bool) -> None:
        """Begin at this reign of the group's row. A learner gets the floors of another replica afterwards."""
        self._reign = reign
        if is_resurrected:
            self.resurrect(reign)

    def reign_is(self, reign: int) -> None:
        """Note the reign of the group's row. Each reign since the last one that is known had a master, which left out
        `SKIPPED` numbers, whether this replica has received anything from it or not. So no two masters give one number
        to different messages.
        """
        if reign > self._reign:
            self.note_floors(reign, [])

    def note_floors(self, reign: int, floors: Iterable[int]) -> None:
        """Note the floors that another replica has at its reign. From then on this replica is at the later one of both
        reigns; each floor of the earlier one rises by `SKIPPED` for each reign between them.
        """
        own_reign, own = self.floors()
        self._reign = max(reign, own_reign)
        for number in own:
            self.reserve(number + (self._reign - own_reign) * SKIPPED)
        for number in floors:
            self.reserve(number + (self._reign - reign) * SKIPPED)

    def ends(self) -> dict[int, int]:
        """By level, the number that the next message gets."""
        return {level: self._next(level) for level in self._levels()}

    def _levels(self) -> list[int]:
        """Level 0, and all levels in which a number may have been given as far as this replica can tell."""
        inner = self.inner
        return sorted({0, *self._reserved, *inner.level_numbers()}) if isinstance(inner, PriorityQueue) else [0]

    def _next(self, level: int) -> int:
        return self.next_number(Origin("", ("",), False, level))

    def remove(self, leaving: Iterable[range]) -> None:
        """Remove messages from a mirror, wherever in its queue they are."""
        gone = list(leaving)
        self._forget_returns(gone)
        self._leave([(span, None) for span in gone])

    def keep_only(self, kept: Sequence[range]) -> None:
        """Remove all messages but these from a mirror, and but those that come later."""
        # The messages to keep are taken from the head first, and the rest is purged.
        purge = Purge(frozenset(number for span in kept for number in span), self.ends())
        self._leave([*((span, purge) for span in kept), (range(0), purge)])

    def _leave(self, leaving: list[tuple[range, Purge | None]]) -> None:
        if self._leaving is None:
            self._leaving = deque()
        self._leaving += leaving
        self.remove_more()

    def follow_segment(self) -> None:
        """For a mirror of a stream: begin a segment with the next run that the master publishes."""

    def follow_drop(self, number: int) -> None:
        """For a mirror of a stream: drop the segments before this number, as the master has."""

    def reached_by_all(self) -> None:
        """Note that the ring has everything that this replica, which is the master now, had taken as a mirror."""

    def returned(self, returns: dict[int, int]) -> None:
        """For a mirror of a quorum queue: note how often messages were returned to the master by now."""

    def tell_returns(self) -> None:
        """Send the mirrors of a quorum queue how often each message was returned, because a mirror has joined."""

    def note_lives(self, lives: Lives) -> None:
        """For a mirror that can be read by number: replace its lives by those of the master."""

    def tell_lives(self) -> None:
        """Send the mirrors which numbers masters have left out, if the queue can be read by number."""

    def _forget_returns(self, leaving: Iterable[range]) -> None:
        """Forget how often messages that leave the mirror were returned."""

    @property
    def is_behind(self) -> bool:
        """Whether messages that are to leave stand behind others that must be read from the disk first."""
        return bool(self._leaving)

    def remove_more(self) -> None:
        """Go on with the messages that are to leave, as far as the head is in memory."""
        inner, leaving = self.inner, self._leaving
        while leaving:
            span, purge = leaving[0]
            if purge is not None:
                is_done = self._pull(span, span) if span else self._end_purge(purge)
            else:
                is_done = inner.ack(span) == len(span) or self._pull(span)
            if not is_done:
                return
            leaving.popleft()

    def _end_purge(self, purge: Purge) -> bool:
        """Remove all messages of a purge; those that stay are pending now. Returns False if it must read the disk."""
        inner, ends = self.inner, purge.ends
        if self.ends() == ends:
            while inner.purge(UNLIMITED):
                pass
        else:
            # Messages have come while the disk was read. They stand behind those that leave.
            for level in sorted(ends, reverse=True):
                span = range(level << LEVEL_SHIFT, ends[level])
                if span and not self._pull(span, purge.kept):
                    return False
        pending = inner.pending_numbers()
        inner.ack([each for each in pending if each not in purge.kept and each < ends.get(each >> LEVEL_SHIFT, 0)])
        return True

    def _pull(self, span: range, stays: Collection[int] = ()) -> bool:
        """Take messages from the head, as a consumer would, until none of the span is ready. Those of the span leave,
        unless they are in `stays`. Returns False if the disk must be read first.
        """
        inner = self.inner
        level = span[0] >> LEVEL_SHIFT
        while (head := inner.head()) is not None:
            above = (head.tag >> LEVEL_SHIFT) - level
            if above < 0 or (above == 0 and head.tag > span[-1]):
                return True
            count = inner.available(PULLED_AT_ONCE if above else min(PULLED_AT_ONCE, span[-1] + 1 - head.tag))
            if not count:
                return False
            fetched = inner.fetch(count, True)
            if not stays:
                inner.ack(span)
            elif stays is not span:
                inner.ack([tag for part in fetched for tag in part.tags if tag in span and tag not in stays])
        return not len(inner)

    def promote(self) -> None:
        """Make the mirror the master: all its messages are ready again, and may have been delivered before."""
        inner = self.inner
        inner.requeue(list(inner.pending_numbers()))
        self._begin_anew()

    def resurrect(self, reign: int) -> None:
        """This replica, which has recovered its messages from the disk, becomes the master of this reign. The master
        before it may have delivered any of these messages.

        The disk does not record in which reign its numbers were given. They may be older than the first reign, so
        `SKIPPED` numbers are left out for each reign that there ever was.
        """
        self._reign = 0
        self.reign_is(reign)
        self._begin_anew()

    @seam("replica: where a new master goes on")
    def _begin_anew(self) -> None:
        """Mark the messages of every level as redelivered, and leave out numbers in every level.

        The masters before this one may have given these numbers to messages that no other replica has received. A
        channel may still acknowledge such a message, and must not acknowledge a new message by that. A replica that
        comes back with such a message must not take it for a new one.
        """
        self.inner.mark_redelivered()
        for level in self._levels():
            origin = Origin("", ("",), False, level)
            self._pass_over(origin, max(self._reserved.get(level, 0) - self.next_number(origin), 0))

    def _pass_over(self, origin: Origin, count: int) -> range:
        """Leave out the next numbers of this fate; returns them."""
        return self.inner.discard(origin, count, False)

    # -- the master

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
        numbers = self.inner.publish(
            origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered
        )
        self._published(numbers, origins, contents, body_bytes, expiries, confirm, parts)
        return numbers

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
        numbers = self.inner.publish_delivered(
            origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered
        )
        self._published(numbers, origins, contents, body_bytes, expiries, confirm, parts)
        return numbers

    def _published(
        self,
        numbers: range,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part],
    ) -> None:
        position = 0
        if self.is_followed:
            instruction = instructions.publish(numbers.start, origins, contents, body_bytes, expiries, parts)
            self.out.append(instruction)
            self._told = {**self._told, numbers.start >> LEVEL_SHIFT: numbers.stop}
            position = self.position + len(self.out)
        if confirm:
            self.publishers.took(parts)
            self.confirming.published(position, numbers.start, numbers.stop - 1, self.is_kept(origins))

    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        numbers = self.inner.discard(origins, count, confirm, parts, is_recorded)
        if confirm:
            self.publishers.took(parts)
            self.confirming.needs_no_mirror(numbers.start, numbers.stop - 1)
        level = numbers.start >> LEVEL_SHIFT
        if self.is_followed and numbers.stop - self._told.get(level, level << LEVEL_SHIFT) > UNTOLD_MOST:
            self.out.append(instructions.reserve(numbers.stop))
            self._told = {**self._told, level: numbers.stop}
        return numbers

    def drain_confirmed(self) -> list[tuple[int, int]]:
        safe = self.inner.drain_confirmed()
        if self.on_safe is not None:
            self.on_safe(safe)
        return self.confirming.drain(safe, self.may_confirm)

    def _left(self, tags: Sequence[int]) -> None:
        """Send the mirrors an instruction about messages that have left the master."""
        if self.is_followed and len(tags):
            self.out.append(instructions.remove(tags))

    def fetch(self, count: int, ack_required: bool) -> list[FetchedMessages]:
        deliveries = self.inner.fetch(count, ack_required)
        if not ack_required:
            for delivery in deliveries:
                self._left(delivery.tags)
        return deliveries

    def drop(self, count: int) -> int:
        # Fetch the messages instead of only counting them, because the mirrors must receive their numbers.
        return self._gone(self.inner.fetch_dropped(count))

    def _gone(self, deliveries: Sequence[FetchedMessages]) -> int:
        dropped = 0
        for delivery in deliveries:
            dropped += self.inner.ack(delivery.tags)
            self._left(delivery.tags)
        return dropped

    def fetch_dropped(self, count: int) -> list[FetchedMessages]:
        return self.inner.fetch_dropped(count)

    def droppable(self) -> bool:
        return self.inner.droppable()

    def drop_expired(self, now: int, limit: int) -> int:
        tags = [message.tag for message in self.inner.fetch_expired(now, limit)]
        self.inner.ack(tags)
        self._left(tags)
        return len(tags)

    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        return self.inner.fetch_expired(now, limit)

    def ack(self, tags: Sequence[int]) -> int:
        known = self.inner.ack(tags)
        if known:
            self._left(tags)
        return known

    def move(self, tags: Sequence[int]) -> int:
        known = self.inner.move(tags)
        if known:
            self._left(tags)
        return known

    def requeue(self, tags: Sequence[int]) -> int:
        return self.inner.requeue(tags)

    def mark_redelivered(self) -> None:
        self.inner.mark_redelivered()

    def purge(self, limit: int = UNLIMITED) -> int:
        # The caller purges in steps until nothing is left, without other operations in between: one instruction is
        # enough.
        count = self.inner.purge(limit)
        if count and not self._is_purging and self.is_followed:
            self.out.append(instructions.purge(list(self.inner.pending_numbers())))
        self._is_purging = count > 0
        return count

    # -- passed on

    def delete_and_terminate(self) -> Dispose:
        return self.inner.delete_and_terminate()

    def available(self, limit: int) -> int:
        return self.inner.available(limit)

    def prepare(self) -> ReadAheadJob | None:
        return self.inner.prepare()

    def prepare_pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        return self.inner.prepare_pending(tags)

    def __len__(self) -> int:
        return len(self.inner)

    def totals(self) -> Totals:
        return self.inner.totals()

    def head(self) -> QueuedMessage | None:
        return self.inner.head()

    def head_expiry(self) -> int | None:
        return self.inner.head_expiry()

    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        return self.inner.pending_messages(tags)

    def pending_numbers(self) -> Iterator[int]:
        return self.inner.pending_numbers()

    def set_queue_mode(self, mode: str) -> None:
        self._mode = mode
        self.inner.set_queue_mode("lazy" if self._is_copying else mode)
