"""`Group`: the role of the replica of a group queue, which delivers what its members have (QP-75 to QP-80).

    Consumers         the consumers of the group, and which of them gets the next message
    GroupMember       a queue that offers messages (`members.py`)
    MemberSchedule    which member is next (`schedule.py`)
    Holdings          the ack tags of what the consumers have

    member has messages  ->  limiter_request, its offer
    a consumer has room  ->  the schedule chooses a member; `Consumers.share` reserves a place for each of its messages
                         ->  limiter_grant to the member
    member delivers      ->  each message goes to the consumer that has a place for it
    consumer settles     ->  settle at the member

So the group never has a message itself: what its consumers have is unacknowledged in the members, and comes back there
if the group or the consumer ends.

Limits: the process finds the members, joins them and asks them for their info items (`process.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ....amqp.constants import ACCESS_REFUSED
from ....amqp.errors import AmqpError
from ....amqp.fields import FieldError, Table
from ....amqp.frames import content_properties, with_properties
from ....amqp.properties import decode_properties, encode_properties
from ....routing.arguments.group_arguments import check_not_group, group_arguments
from ....routing.arguments.queue_settings import QueueSettings
from ....routing.phrases import queue_phrase
from ....seams import seam
from ....store.messages.message import slice_of
from ...contracts.channel import to_channel
from ...contracts.queue import to_queue
from ..batches import batches
from ..consumers.consumer import ChannelRecord, Consumer
from ..consumers.consumers import Consumers
from ..consumers.grants import Grants
from ..listing import replica_items
from ..master.queue_expiry import QueueExpiry
from ..role import Role, Steps
from .members import GroupMember, Holdings
from .schedule import schedule_of

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices
    from ....store.messages.message import FetchedMessages
    from ...contracts.channel import DeliveryRun, Outcome
    from ...contracts.disk import HandedEntry
    from ...contracts.info_items import InfoItems
    from ...contracts.queue import AtMostOnceEntry, PublishEntry
    from ..replica_state import ReplicaState

#: The header that names the member, if the declaration asks for it.
SOURCE_HEADER = "x-warren-queue"


class Group(Role):
    """The role of one group. `take_id` is the id under which the group consumes from its members."""

    __slots__ = (
        "_grants",
        "_had_consumer",
        "_is_due",
        "_queue_expiry",
        "_schedule",
        "_state",
        "_users",
        "arguments",
        "consumers",
        "holdings",
        "join",
        "leave_members",
        "may_read",
        "members",
        "take_id",
        "to_ask",
    )

    def __init__(self, state: ReplicaState, settings: QueueSettings) -> None:
        self._state = state
        self.arguments = group_arguments(state.row.arguments)
        self.take_id = f"{state.row.queue_id} {state.random_bytes(8).hex()}"
        self.consumers = Consumers(settings.single_active_consumer)
        self.holdings = Holdings()
        #: In the order of the group's definition. Only the process adds and removes members.
        self.members: list[GroupMember] = []
        #: Set by the process: called when the first consumer comes, called when the last one leaves, and whether a user
        #: may read a member.
        self.join: Callable[[], None] = _nothing
        self.leave_members: Callable[[], None] = _nothing
        self.may_read: Callable[[str, str], bool] = lambda user, queue: True
        #: Members that the process has to ask a question after it has sent them the messages of this turn. A member's
        #: offer arrives before its answer, so once it has answered, the group knows whether it has messages.
        self.to_ask: list[GroupMember] = []
        self._schedule = schedule_of(self.arguments)
        self._grants = Grants(state.row.queue_id, state.effects)
        self._queue_expiry = QueueExpiry(state.effects, state.now)
        self._had_consumer = False
        #: How many consumers each user has.
        self._users: Counter[str] = Counter()
        #: Whether a message may have become deliverable.
        self._is_due = False

    # -- life ---------------------------------------------------------------------------------------

    def apply(self, settings: QueueSettings) -> None:
        self._queue_expiry.apply(settings)

    def release(self) -> None:
        self._is_due = True

    def leave(self) -> None:
        """Do nothing: the process of a group has no other role."""

    @property
    def is_quiet(self) -> bool:
        return True

    # -- turns --------------------------------------------------------------------------------------

    def end_turn(self, is_held: bool) -> None:
        if self._is_due and not is_held:
            self._grant()

    def timer_fired(self, name: str) -> None:
        if name == "queue_expiry" and self._queue_expiry.timer_fired():
            self._state.effects.end("expired")

    def head_loaded(self) -> None:
        """Do nothing: a group has no head."""

    # -- members ------------------------------------------------------------------------------------

    def member(self, queue_id: str) -> GroupMember | None:
        return next((member for member in self.members if member.row.queue_id == queue_id), None)

    def answered(self, member: GroupMember) -> None:
        """Note that the member has answered a question. If it has messages, its offer came before the answer."""
        member.questions -= 1
        self._is_due = True

    def remove_member(self, member: GroupMember) -> None:
        """Remove a member that has ended or no longer belongs to the group. Its queue requeues what consumers hold."""
        member.is_gone = True
        self.members.remove(member)
        for consumer, count in member.give_up_places(member.granted):
            self._give_back_place(consumer, count)
        member.granted = member.offered = 0
        self._is_due = True

    def offer(self, member: GroupMember, count: int) -> None:
        """Note an offer: the member has `count` ready messages."""
        member.offered, member.offered_since = count, self._state.now()
        self._is_due = True

    def offer_now(self, member: GroupMember, count: int) -> None:
        """As `offer`, but answered with a grant at once, perhaps of 0, because the member does not wait for one."""
        taken, _ = self._reserve(member, count)
        member.granted += taken
        self._state.effects.send(member.address, to_queue.limiter_grant(self.take_id, taken))

    def returned(self, member: GroupMember, count: int) -> None:
        """Take back `count` grants that the member does not use."""
        member.granted -= count
        for consumer, room in member.give_up_places(count):
            self._give_back_place(consumer, room)

    def _grant(self) -> None:
        """Grant what the consumers have room for, in the order of the schedule."""
        self._is_due = False
        consumers, effects, now = self.consumers, self._state.effects, self._state.now()
        granted: dict[GroupMember, int] = {}
        members: Sequence[GroupMember] = self.members
        while len(consumers):
            found = self._schedule.choose(members, now)
            if found is None:
                break
            member, most = found
            taken, is_barred = self._reserve(member, most)
            if taken:
                self._schedule.served(member, taken)
                member.offered -= taken
                granted[member] = granted.get(member, 0) + taken
            elif is_barred:
                members = [other for other in members if other is not member]
            else:
                self._request_grants(member.offered)
                break
        for member, count in granted.items():
            # The member offers its other messages again when it has used the grant.
            member.offered = 0
            member.granted += count
            effects.send(member.address, to_queue.limiter_grant(self.take_id, count))
        if self._grants.unused and not any([member.offered for member in self.members]):
            self._grants.give_back_all()

    def _request_grants(self, wanted: int) -> None:
        for record in self.consumers.channels_without_grant():
            self._grants.request(record, wanted)

    def _reserve(self, member: GroupMember, most: int) -> tuple[int, bool]:
        """Reserve places for up to `most` messages of a member. Returns how many, and whether a consumer with room may
        not read the member (QP-80).
        """
        consumers, places = self.consumers, member.places
        barred = {user for user in self._users if not self.may_read(user, member.name)}
        if not barred:
            shares, taken = consumers.share(most)
            places.extend([(consumer, len(range(start, stop, step))) for consumer, start, stop, step in shares])
            return taken, False
        held_back: list[Consumer] = []
        taken = 0
        while taken < most:
            shares, count = consumers.share(1)
            if not count:
                break
            consumer = shares[0][0]
            if consumer.user in barred:
                held_back.append(consumer)
            else:
                places.append((consumer, 1))
                taken += 1
        for consumer in held_back:
            self._give_back_place(consumer, 1)
        return taken, bool(held_back)

    def _give_back_place(self, consumer: Consumer, count: int) -> None:
        """Free `count` places of the consumer, because the messages for which they were reserved do not come."""
        record = consumer.channel
        record.unsent -= count
        if not consumer.no_ack:
            consumer.unacked -= count
        if record.is_limited:
            self._state.effects.send(record.address, to_channel.limiter_return(self._state.row.queue_id, count))
        if not record.has_ended:
            self.consumers.resume(record)
        self._is_due = True

    def delivered(self, member: GroupMember, runs: list[DeliveryRun]) -> None:
        """Hand messages of a member to the consumers that have places for them."""
        for origins, redelivered, tags, contents in runs:
            assert tags is not None, "a group acknowledges"
            at = 0
            for consumer, count in self._takers(member, len(contents)):
                piece = slice(at, at + count)
                run = slice_of(origins, piece), redelivered, tags[piece], contents[piece]
                self._hand_over(member, consumer, run)
                at += count
            left = self._without_taker(tags[at:])
            if left:
                self.settle_at(member, "requeue", left)
            member.granted -= len(contents)
            self._state.effects.send(member.address, to_queue.sent(self.take_id, len(contents)))
        self._is_due = True

    @seam("which deliveries a group returns to their member")
    def _without_taker(self, tags: Sequence[int]) -> Sequence[int]:
        """The messages that no consumer can take, because the consumers that had places for them have left."""
        return tags

    def _takers(self, member: GroupMember, count: int) -> list[tuple[Consumer, int]]:
        """The consumers of the next `count` messages that the member delivers. Others take the places of consumers that
        have left.
        """
        found: list[tuple[Consumer, int]] = []
        left = 0
        for consumer, room in member.take_places(count):
            if self.consumers.find(consumer.channel.channel_id, consumer.tag) is consumer:
                found.append((consumer, room))
            else:
                self._give_back_place(consumer, room)
                left += room
        if left:
            # `_reserve` puts the new places behind those for later messages of the member, so take them from that end.
            taken, _ = self._reserve(member, left)
            found += member.give_up_places(taken)
        return found

    def _hand_over(self, member: GroupMember, consumer: Consumer, run: DeliveryRun) -> None:
        origins, redelivered, tags, contents = run
        assert tags is not None
        outbox = self._state.effects.outbox
        contents = self._with_source(member, contents)
        if consumer.no_ack:
            outbox.put(consumer, (origins, redelivered, None, contents))
            self.settle_at(member, "ack", tags)
        else:
            own = self.holdings.add(member, tags)
            outbox.put_unacked(consumer, (origins, redelivered, own, contents), own)

    def _with_source(self, member: GroupMember, contents: Sequence[bytes]) -> Sequence[bytes]:
        if not self.arguments.has_source_header:
            return contents
        return [with_properties(each, _with_source(content_properties(each), member.name)) for each in contents]

    def in_order(self) -> Sequence[GroupMember]:
        """The members, in the order in which basic.get asks them."""
        return self._schedule.order(self.members)

    def got(self, member: GroupMember, record: ChannelRecord | None, delivery: FetchedMessages) -> FetchedMessages:
        """Handle what a member answered to basic.get. `record` is None if the message needs no acknowledgement."""
        self._schedule.served(member, 1)
        contents = list(self._with_source(member, delivery.contents))
        if record is None:
            self.settle_at(member, "ack", delivery.tags)
            return delivery._replace(contents=contents)
        own = self.holdings.add(member, delivery.tags)
        record.pending.add(own, None)
        return delivery._replace(tags=own, contents=contents)

    def settle_at(self, member: GroupMember, outcome: Outcome, tags: Sequence[int]) -> None:
        if outcome == "requeue" and self.arguments.schedule == "strict" and member not in self.to_ask:
            # The member has a message again, which must be delivered before those of later members. The member offers
            # it in its next turn; the question makes the group wait for that offer.
            member.questions += 1
            self.to_ask.append(member)
        self._state.effects.send(member.address, to_queue.settle(self.take_id, outcome, [tags]))

    # -- publishing ---------------------------------------------------------------------------------

    def publish(self, record: ChannelRecord, entries: list[PublishEntry]) -> None:
        raise AssertionError("nothing is routed to a group")

    def publish_at_most_once(self, entries: list[AtMostOnceEntry]) -> None:
        raise AssertionError("nothing is routed to a group")

    def take_dead_letters(self, entries: list[AtMostOnceEntry], first: int, is_repeated: bool) -> None:
        raise AssertionError("nothing is routed to a group")

    def take_handed_over(self, entries: list[HandedEntry]) -> None:
        raise AssertionError("nothing is routed to a group")

    def take_delayed(self) -> None:
        """Do nothing: nothing is published to a group."""

    # -- consuming ----------------------------------------------------------------------------------

    def deliver_due(self) -> None:
        if self._is_due:
            self._grant()

    def consume(self, consumer: Consumer) -> Steps[bool]:
        consumers = self.consumers
        if (consumers.single_active and consumer.exclusive) or consumers.has_exclusive():
            raise self._in_exclusive_use()
        if consumer.exclusive and len(consumers):
            raise self._in_exclusive_use()
        consumers.add(consumer)
        self._users[consumer.user] += 1
        self._had_consumer = self._is_due = True
        self._queue_expiry.enter()
        self._state.effects.change_consumers()
        if len(consumers) == 1:
            self.join()
        yield from ()
        return True

    def _in_exclusive_use(self) -> AmqpError:
        row = self._state.row
        return AmqpError(ACCESS_REFUSED, f"{queue_phrase(row.vhost, row.name)} in exclusive use")

    def cancel(self, channel_id: str, tag: str) -> None:
        consumer = self.consumers.find(channel_id, tag)
        if consumer is not None:
            self._remove(consumer)
            if not consumer.channel.consumers:
                self._grants.give_back(consumer.channel)
            self._consumers_left(1)

    def _remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self._users[consumer.user] -= 1
        if not self._users[consumer.user]:
            del self._users[consumer.user]

    def _consumers_left(self, count: int) -> None:
        """Handle that this many consumers have left. The group may have to end now (AB-93)."""
        if not count:
            return
        self._is_due = True
        self._queue_expiry.leave(count)
        self._state.effects.change_consumers()
        if not len(self.consumers):
            self.leave_members()
            if self._state.row.auto_delete and self._had_consumer:
                self._state.effects.end("auto-delete")

    def get(self, record: ChannelRecord | None) -> Steps[tuple[FetchedMessages | None, int]]:
        raise AssertionError("the process asks the members")

    def settle(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> None:
        for tags in pieces:
            for member, theirs in self.holdings.take(record.take_pending(tags)).items():
                self.settle_at(member, outcome, theirs)
        if self.consumers.resume(record) or outcome == "requeue":
            self._is_due = True

    def settle_in_slices(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> Slices[None]:
        work = self._state.work
        for batch in batches(pieces, lambda: work.most, each=True):
            yield from work.pause()
            work.left = 0
            self.settle(record, outcome, batch)

    def sent(self, record: ChannelRecord, count: int) -> None:
        record.unsent -= count
        if self.consumers.resume(record):
            self._is_due = True

    def limiter_changed(self, record: ChannelRecord, is_limited: bool) -> None:
        self._grants.set_limited(record, is_limited)
        self.consumers.limit_changed(record)
        self.consumers.resume(record)
        self._is_due = True

    def limiter_grant(self, record: ChannelRecord, count: int) -> None:
        if record.is_limited:
            self._grants.add(record, count)
            if not self.consumers.resume(record):
                self._grants.give_back(record)
            self._is_due = True

    def forget_channel(self, record: ChannelRecord) -> Slices[None]:
        gone = list(record.consumers)
        for consumer in gone:
            self._remove(consumer)
        self._state.effects.outbox.forget_channel(record)
        self._grants.forget(record)
        work = self._state.work
        while record.pending:
            yield from work.pause()
            tags = record.pending.take_last(max(1, work.left))
            work.left -= len(tags)
            for member, theirs in self.holdings.take(tags).items():
                self.settle_at(member, "requeue", theirs)
        self._consumers_left(len(gone))

    def forget_consumers(self, most: int) -> bool:
        return self.consumers.forget(most)

    # -- the queue as a whole -----------------------------------------------------------------------

    def use(self) -> None:
        self._queue_expiry.use()

    def counts(self) -> tuple[int, int]:
        """How many ready messages and consumers the group has. It has no message itself, so it counts as empty when it
        is deleted.
        """
        return 0, len(self.consumers)

    def purge(self) -> Slices[int]:
        check_not_group(self._state.row)
        yield from ()
        return 0

    def info(self) -> InfoItems:
        """The group's info items, to which the process adds the messages of the members."""
        state, active = self._state, self.consumers.active
        exclusive = next(iter(self.consumers)) if self.consumers.has_exclusive() else None
        return {
            **replica_items(state, ()),
            "unsent": sum(record.unsent for record in state.channels.values()),
            "consumers": len(self.consumers),
            "single_active_consumer_tag": active.tag if active else "",
            "exclusive_consumer_tag": exclusive.tag if exclusive else "",
            "exclusive_consumer": exclusive.channel.channel_id if exclusive else None,
            "group_members": [member.name for member in self.members],
        }

    def consumers_info(self) -> Iterator[InfoItems]:
        row = self._state.row
        return self.consumers.info(row.name, row.vhost)


def _nothing() -> None:
    """The value of `join` and `leave_members` until the process has set them."""


@lru_cache(64)
def _with_source(props: bytes, queue: str) -> bytes:
    """The properties with the header that names the queue. Properties that cannot be decoded stay as they are."""
    try:
        properties = decode_properties(props)
    except FieldError:
        return props
    name = queue.encode("utf-8", "surrogateescape")
    others = (properties.headers or Table()).without(SOURCE_HEADER)
    return encode_properties(replace(properties, headers=Table((*others, (SOURCE_HEADER, "S", name)))))
