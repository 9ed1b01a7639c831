"""How publishes enter a queue (AB-101, AB-111, AB-123; FC-33).

A publish may first wait in `PublishDelay`, while deliveries have priority over publishes. Then its runs wait until the
end of the queue's turn (`Arrivals`). At the end of the turn `Intake` decides for each run: its messages are refused,
handed straight to consumers, expired at once, or stored.

Each decision is a call of the backing queue, which numbers the messages. Only what it reports as safe is confirmed, so
a backing queue that shares its messages with other replicas decides alone when that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from ....amqp.dead_letter_headers import EXPIRED, MAXLEN, PACED
from ....runtime.credit import CreditFlow
from ....runtime.turn_work import TurnWork
from ....seams import seam
from ....store.messages.message import any_of, have_expirations, slice_of
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.levels.fair_queue import FairQueue
from ....store.queue.range_read import SupportsRangeRead
from ..arrivals import Arrival, Arrivals
from ..consumers.consumer import ChannelRecord
from ..consumers.consumers import Consumers, Share
from ..disk.transit import Transit
from ..effects import Effects
from ..pacing.admission import Admission
from ..publisher_confirms import PublisherConfirms
from .dead_letters.dead_letterer import DeadLetterer
from .dispatch import Dispatch
from .length_limit import LengthLimit
from .message_expiry import MessageExpiry

if TYPE_CHECKING:
    from .deduplication import Deduplication

#: What blocks the credit of publishers while a queue has no time for what they publish, because of its dead letters.
DEAD_LETTERS = "dead letters"


class Intake(Arrivals):
    """Decides what becomes of each run that is published to a queue."""

    __slots__ = (
        "backing",
        "_asked",
        "_confirms",
        "_consumers",
        "_credit",
        "_dead_letterer",
        "_dispatch",
        "_effects",
        "_expiry",
        "_fair",
        "_length_limit",
        "_numbered",
        "_sampled",
        "_work",
        "admission",
        "dying",
    )

    def __init__(
        self,
        persistence: bool | None,
        backing: BackingQueue,
        consumers: Consumers,
        dispatch: Dispatch,
        expiry: MessageExpiry,
        length_limit: LengthLimit,
        dead_letterer: DeadLetterer,
        confirms: PublisherConfirms,
        transit: Transit | None,
        deduplication: Deduplication | None,
        effects: Effects,
        credit: CreditFlow,
        work: TurnWork,
    ) -> None:
        super().__init__(persistence, transit, deduplication)
        self.use_backing(backing)
        self._consumers = consumers
        self._dispatch = dispatch
        self._expiry = expiry
        self._length_limit = length_limit
        self._dead_letterer = dead_letterer
        self._confirms = confirms
        self._effects = effects
        self._credit = credit
        self._work = work
        #: Messages that die instead of entering the queue, each run with the reason, whose dead letters are neither
        #: recorded nor sent yet. While there are some, later arrivals wait, and publishers get no credit.
        self.dying: tuple[tuple[str, Arrival], ...] = ()
        #: None: the queue is not paced.
        self.admission: Admission | None = None
        #: The publishes, of all queues of the node, whose time until a consumer gets them is measured.
        self._sampled = dispatch.histograms.samples.on_the_way
        #: By id: channels whose limiters must answer before arrivals are accepted.
        self._asked: dict[str, ChannelRecord] = {}

    def use_backing(self, backing: BackingQueue) -> None:
        self.backing = backing
        self._fair = backing if isinstance(backing, FairQueue) else None
        #: The backing queue if it can be read by number, because it then records when its messages arrived. None
        #: otherwise.
        self._numbered = backing if isinstance(backing, SupportsRangeRead) else None

    # -- accepting ----------------------------------------------------------------------------------

    def accept_arrivals(self) -> None:
        if self._asked or self.dying:
            return
        arrivals = self.take()
        if arrivals and self._numbered is not None:
            self._numbered.stamp(self._expiry.now())
        if self._fair is not None and self._length_limit.limits_lanes:
            arrivals = list(self._by_lane(arrivals, self._fair))
        if self._expiry.has_one_expiry:
            arrivals = [part for arrival in arrivals for part in _by_expiration(arrival)]
        for at, arrival in enumerate(arrivals):
            if self.dying:
                self.arrivals = arrivals[at:]
                return
            if arrival.digests is not None:
                waiting = self._accept_new(arrival)
                if waiting:
                    self.arrivals = waiting + arrivals[at + 1 :]
                    return
                continue
            admission = self.admission
            if admission is not None and not arrival.is_handed and not self._is_admitted(arrival, admission):
                continue
            if not self._accept(arrival):
                self.arrivals = arrivals[at:]
                return

    def _accept_new(self, arrival: Arrival) -> list[Arrival]:
        """Accept the messages of an arrival that the queue has not accepted before, and drop the others. Returns what
        must wait until the limiters of some channels answer, or behind messages that die.
        """
        deduplication = self.deduplication
        assert deduplication is not None and arrival.digests is not None
        stretches = deduplication.stretches(arrival.digests)
        if stretches == [(len(arrival.contents), False)]:
            return [] if self._accept_admitted(arrival) else [arrival]
        pieces = list(arrival.stretches([end for end, _ in stretches]))
        for at, (piece, (_, are_duplicates)) in enumerate(zip(pieces, stretches)):
            if are_duplicates:
                # The first message of a key may have been refused since the stretches were found. Then its duplicate is
                # a new message.
                singles = list(piece.singles()) if self._has_new(piece) else [piece]
                for index, single in enumerate(singles):
                    if self.dying:
                        return singles[index:] + pieces[at + 1 :]
                    if self._has_new(single):
                        self._accept_admitted(single)
                    else:
                        self._drop_duplicates(single)
            elif self.dying or not self._accept_admitted(piece):
                return pieces[at:]
        return []

    def _has_new(self, arrival: Arrival) -> bool:
        """Whether the queue has to accept some of the messages as new ones."""
        deduplication = self.deduplication
        assert deduplication is not None
        return not all(map(deduplication.is_known, arrival.digests or ()))

    def _accept_admitted(self, arrival: Arrival) -> bool:
        """Decide what becomes of the messages. False: they must wait until the limiters of some channels answer."""
        if self.admission is not None and not self._is_admitted(arrival, self.admission):
            return True
        return self._accept(arrival)

    @seam("which publishes a queue drops because it has had them")
    def _drop_duplicates(self, arrival: Arrival) -> None:
        """Drop messages that the queue has accepted before. They get no numbers."""
        deduplication = self.deduplication
        assert deduplication is not None and arrival.digests is not None
        self._confirms.known += deduplication.dropped_duplicates(arrival.digests, arrival.parts)

    def _remember(self, numbers: range, arrival: Arrival) -> None:
        """Note that the queue has accepted the arrival under these numbers, if it has keys for deduplication."""
        if self.deduplication is not None and arrival.digests is not None:
            self.deduplication.accepted(numbers.start, arrival.digests, arrival.origin.persistent)

    @staticmethod
    def _by_lane(arrivals: list[Arrival], fair: FairQueue) -> Iterator[Arrival]:
        """The arrivals, cut so that the messages of each enter one lane, which may be full."""
        for arrival in arrivals:
            while (count := fair.same_lane(arrival.origins, arrival.contents)) < len(arrival.contents):
                yield arrival.cut(count)
            arrival.origin = any_of(arrival.origins)
            yield arrival

    def answered(self, record: ChannelRecord) -> None:
        """Go on with the arrivals that wait for the limiter of the channel, which has answered or never will."""
        if self._asked.pop(record.channel_id, None) is None:
            return
        self._consumers.resume(record)
        if not self._asked:
            self._go_on()

    def give_up_asking(self) -> None:
        """Accept the arrivals that wait for limiters without their grants."""
        while self._asked:
            self._asked.clear()
            self._go_on()

    def _go_on(self) -> None:
        self._dispatch.keeps_grants = False
        self._dispatch.is_due = True  # grants that these arrivals do not use are returned
        self.accept_arrivals()

    # -- deciding -----------------------------------------------------------------------------------

    def _accept(self, arrival: Arrival) -> bool:
        """Decide what becomes of the messages. False: they must wait until the limiters of some channels answer."""
        limit, backing, consumers = self._length_limit, self.backing, self._consumers
        count = len(arrival.contents)
        origin = arrival.origin
        has_expirations = (
            origin.expiration is not None or isinstance(arrival.origins, list) and have_expirations(arrival.origins)
        )
        if arrival.expiries is None and (has_expirations or self._expiry.ttl is not None):
            arrival.expiries = self._expiry.of(arrival.origins)
        if has_expirations or self._persistence is not None and origin.persistent is not self._persistence:
            arrival.origins = self.as_stored(arrival.origins)
            arrival.origin = any_of(arrival.origins)
        if limit.rejects_publish and limit.refuses(arrival, count, arrival.body_bytes):
            if count == 1 or limit.refuses(arrival, 1, 0):
                self._refuse(arrival)
            else:
                # There is room for some of the messages, and which ones depends on their sizes (AB-101).
                for single in arrival.singles():
                    single.has_asked = True
                    self._accept(single)
            return True
        if len(consumers) and not len(backing) and self._dispatch.pacing is None and not consumers.looks_at_head:
            shares, taken = consumers.share(count)
            if taken and not consumers.is_uniform:
                if not self._hand_over_one_by_one(shares, arrival):
                    return True
            elif taken == count:
                self._hand_over(shares, arrival)
                return True
            elif taken:
                self._hand_over(shares, arrival.cut(taken))
            if not arrival.has_asked and self._would_drop(arrival) and self._ask(arrival):
                return False
        if self._expires_at_once(arrival) and (not len(backing) or self._is_never_kept):
            # A TTL of 0, and no consumer can take the messages (AB-96). Behind others they wait to become the head.
            if self._expire(arrival):
                return True
        parts, awaits_confirm = arrival.parts, arrival.awaits_confirm
        if arrival.is_handed:
            self.take_over(arrival)
        numbers = backing.publish(
            arrival.origins,
            arrival.contents,
            arrival.body_bytes,
            arrival.expiries,
            awaits_confirm or arrival.digests is not None,
            parts,
            arrival.shared,
            arrival.is_handed,
            arrival.is_redelivered,
        )
        if arrival.digests is not None:
            self._remember(numbers, arrival)
        if awaits_confirm:
            self._confirms.recent.append((numbers.start, numbers.stop - 1, parts))
        if self._sampled:
            self._dispatch.follow(parts, numbers)
        if self._effects.index is not None:
            self._effects.index.came(numbers.start, arrival.contents)
        if limit.drops_head:
            limit.drop_overflow()
        self._dispatch.is_due = True
        return True

    def _is_admitted(self, arrival: Arrival, admission: Admission) -> bool:
        """Whether all of the messages would get their slots in time. Otherwise accept those that would, and do with the
        others what the policy's `pace-overflow` asks for (QP-102).
        """
        count = len(arrival.contents)
        admitted = admission.admit(arrival.contents)
        if admitted == count:
            return True
        if admitted:
            self._accept(arrival.cut(admitted))
        if self._persistence is not None:
            arrival.origins = self.as_stored(arrival.origins)
        if admission.overflow == "nack":
            self.backing.discard(arrival.origins, len(arrival.contents), False, arrival.parts)
            self._confirms.refused += arrival.parts
            return False
        if admission.overflow == "dead-letter":
            self._die(PACED, arrival)
            return False
        self._dead_letterer.count(PACED, len(arrival.contents))
        numbers = self._discard(arrival)
        if self._effects.index is not None:
            self._effects.index.gone("dropped", numbers, PACED)
        if self._transit is not None:
            self._transit.close()
        return False

    def _expire(self, arrival: Arrival) -> bool:
        """Drop messages that expire on arrival. False if some are left, which must enter the queue and expire there:
        very many queues get their dead letters, or those of messages before them, or these have to be safe elsewhere
        before the messages may leave, or this turn has done enough.
        """
        dead_letterer, messages = self._dead_letterer, arrival.messages()
        while dead_letterer.waiting is None and self._work.left > 0:
            is_recorded, dead = dead_letterer.publish_first(EXPIRED, messages)
            if not dead:
                return False
            messages = messages[dead:]
            numbers = self._discard(arrival.cut(dead) if messages else arrival, is_recorded)
            dead_letterer.report_gone(EXPIRED, numbers)
            if self._transit is not None:
                self._transit.close()
            if not messages:
                return True
        return False

    def _expires_at_once(self, arrival: Arrival) -> bool:
        """Whether the messages of an arrival have expired already, because their TTL is 0.

        Then it is the TTL of all of them (see `have_same_fate`).
        """
        expiries = arrival.expiries
        return expiries is not None and not isinstance(expiries, list) and expiries <= self._expiry.now()

    def _would_drop(self, arrival: Arrival) -> bool:
        """Whether the empty queue would drop messages of this arrival at once if no consumer took them."""
        if self._expires_at_once(arrival):
            return True
        limit = self._length_limit
        return limit.drops_head and limit.is_exceeded_by(len(arrival.contents), arrival.body_bytes)

    def _ask(self, arrival: Arrival) -> bool:
        """Ask the limiters without whose grants consumers cannot take messages. False if there are none.

        Other messages wait in the queue for the grant; the messages of this arrival would be dropped before it comes.
        """
        arrival.has_asked = True
        for record in self._consumers.channels_without_grant():
            self._asked[record.channel_id] = record
            self._dispatch.grants.request_now(record, len(arrival.contents))
        self._dispatch.keeps_grants = bool(self._asked)
        return bool(self._asked)

    @property
    def _is_never_kept(self) -> bool:
        """Whether a message that no consumer can take at once is dropped even behind others in the queue."""
        return self._expiry.ttl == 0 and not self._dead_letterer.is_enabled

    @seam("what becomes of a publish that is refused")
    def _refuse(self, arrival: Arrival) -> None:
        """Overflow `reject-publish`: the messages get numbers, but nobody waits until these are safe (AB-101)."""
        if self._length_limit.dead_letters_refused:
            self._die(MAXLEN, arrival)
        else:
            self._give_up(arrival)

    def _die(self, reason: str, arrival: Arrival) -> None:
        """Have messages become dead letters instead of entering the queue (AB-101, QP-102). Publishers get their
        answers when the dead letters are handed over or sent, which may take several turns.
        """
        self.dying += ((reason, arrival),)
        self._dead_letterer.refuse(reason, arrival.messages(), self.died)
        if self.dying:
            self._credit.relate(DEAD_LETTERS, kind=DEAD_LETTERS)
            self._credit.block(DEAD_LETTERS)

    def died(self, count: int, is_recorded: bool) -> None:
        """Give numbers and answers to the next `count` messages that die, because their dead letters are recorded in
        the journal or sent.
        """
        reason, arrival = self.dying[0]
        if count < len(arrival.contents):
            arrival = arrival.cut(count)
        else:
            self.dying = self.dying[1:]
            if not self.dying:
                self._credit.unblock(DEAD_LETTERS)
        if reason == PACED:
            numbers = self._discard(arrival, is_recorded)
            if self._effects.index is not None:
                self._effects.index.gone("dead-lettered", numbers, PACED)
        else:
            self._give_up(arrival)
        if self._transit is not None:
            self._transit.close()

    def _give_up(self, arrival: Arrival) -> None:
        """Give numbers to messages that are refused, and answer their publishers so."""
        if arrival.is_handed:
            self.take_over(arrival, is_kept=False)
        self.backing.discard(arrival.origins, len(arrival.contents), False, arrival.parts)
        self._confirms.refused += arrival.parts

    def _discard(self, arrival: Arrival, is_recorded: bool = False) -> range:
        """Give numbers to messages that do not enter the queue, and return these numbers.

        `is_recorded`: the journal has their dead letters.
        """
        if arrival.is_handed:
            self.take_over(arrival, is_kept=False)
        parts, awaits_confirm = arrival.parts, arrival.awaits_confirm
        confirm = awaits_confirm or arrival.digests is not None
        numbers = self.backing.discard(arrival.origins, len(arrival.contents), confirm, parts, is_recorded)
        self._remember(numbers, arrival)
        if awaits_confirm:
            self._confirms.recent.append((numbers.start, numbers.stop - 1, parts))
        if self._effects.index is not None:
            self._effects.index.came(numbers.start, arrival.contents)
        return numbers

    def _hand_over(self, shares: list[Share], arrival: Arrival) -> None:
        """Give messages straight to consumers, which all acknowledge or none does (AB-123)."""
        outbox = self._dispatch.outbox
        origins, contents, is_redelivered = arrival.origins, arrival.contents, arrival.is_redelivered
        if self._sampled:
            self._dispatch.handed_over(arrival.parts)
        if shares[0][0].no_ack:
            numbers = self._discard(arrival)
            if self._effects.index is not None:
                self._effects.index.gone("acked", numbers)
            if len(shares) == 1:
                outbox.put(shares[0][0], (origins, is_redelivered, None, contents))
                return
            for consumer, start, stop, step in shares:
                piece = slice(start, stop, step)
                outbox.put(consumer, (slice_of(origins, piece), is_redelivered, None, contents[piece]))
            return
        parts, awaits_confirm = arrival.parts, arrival.awaits_confirm
        if arrival.is_handed:
            self.take_over(arrival)
        confirm = awaits_confirm or arrival.digests is not None
        tags = self.backing.publish_delivered(
            origins,
            contents,
            arrival.body_bytes,
            arrival.expiries,
            confirm,
            parts,
            arrival.shared,
            arrival.is_handed,
            is_redelivered,
        )
        if arrival.digests is not None:
            self._remember(tags, arrival)
        if awaits_confirm:
            self._confirms.recent.append((tags.start, tags.stop - 1, parts))
        if self._effects.index is not None:
            self._effects.index.came(tags.start, contents)
        for consumer, start, stop, step in shares:
            piece = slice(start, stop, step)
            own_tags = tags[piece]
            outbox.put_unacked(
                consumer, (slice_of(origins, piece), is_redelivered, own_tags, contents[piece]), own_tags
            )

    def _hand_over_one_by_one(self, shares: list[Share], arrival: Arrival) -> bool:
        """Give messages to consumers of which only some acknowledge. Returns whether messages are left."""
        for consumer, start, stop, _ in shares:
            count = stop - start
            if count == len(arrival.contents):
                self._hand_over([(consumer, 0, count, 1)], arrival)
                return False
            self._hand_over([(consumer, 0, count, 1)], arrival.cut(count))
        return True


def _by_expiration(arrival: Arrival) -> Iterable[Arrival]:
    """The arrival in parts of which each has one expiration."""
    origins = arrival.origins
    if not isinstance(origins, list):
        return (arrival,)
    sizes = [len(list(group)) for _, group in groupby(origins, key=attrgetter("expiration"))]
    return arrival.stretches(accumulate(sizes)) if len(sizes) > 1 else (arrival,)
