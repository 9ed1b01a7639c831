"""`GroupQueue`: the process of a group (QP-75 to QP-80).

It is the process of a queue with the role `Group`, and it does what this role cannot: it finds the members in the
routing table, consumes from them while the group has consumers, asks them when a client uses basic.get or asks for
counts, and takes what they send. Metadata notifies it of each queue that comes or goes.

A member whose process ends is dropped; its successor is a new member, of which Metadata notifies the group. A member
that cannot be reached, or that refuses the group because another consumer has it for itself, is tried again later.
"""

from __future__ import annotations

import logging
from bisect import insort
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from ....amqp.errors import AmqpError
from ....amqp.fields import Table
from ....definitions import patterns
from ....definitions.access import Access
from ....routing.arguments.group_arguments import GROUP_ARGUMENT, may_be_member
from ....runtime.errors import ProcessDown
from ....runtime.signal import Signal
from ....runtime.turn_work import STEP
from ...context.starting import ToNewGroup
from ...contracts.queue import to_queue
from ...metadata.info_items import with_member_items
from ..process import Queue
from .group import Group
from .members import GroupMember

if TYPE_CHECKING:
    from ....runtime.contract import Address, Sender
    from ....runtime.coroutines import Slices
    from ....runtime.exit_reason import ExitReason
    from ....store.messages.message import FetchedMessages
    from ...contracts.channel import DeliveryRun, ToChannel
    from ...contracts.info_items import InfoItems
    from ...contracts.queue import Got
    from ..role import Role

log = logging.getLogger("warren.queue")

#: In front of a queue id: the name of the monitor of a member, and the payload of the timer that tries one again.
MEMBER = "member "

#: Seconds after which a member that could not be used is tried again.
RETRY = 1.0

#: With this prefetch or more, a consumer of a group with the schedule `strict` may hold many messages of later members
#: when an earlier member gets some. The log has a warning about such a consumer.
LOOSE_PREFETCH = 11


class GroupQueue(Queue):
    """The process of one group; `ToGroup` lists the messages that it receives."""

    __slots__ = ("_access", "_changed", "_is_found", "_is_searching", "_refusing", "_were_found")

    contract = ToNewGroup
    role: Group

    def __init__(self) -> None:
        super().__init__()
        self._is_searching = self._is_found = False
        self._were_found = Signal(self)
        #: Names of queues that changed while the members were looked for.
        self._changed: set[str] = set()
        #: The members that refuse the group, of which the log has a line each.
        self._refusing: set[str] = set()
        #: The permissions of each user who has consumed.
        self._access: dict[str, Access] = {}

    def new_role(self) -> Role:
        role = Group(self.state, self.settings)
        role.join, role.leave_members, role.may_read = self._join_all, self._leave_all, self._may_read
        return role

    # -- finding the members ------------------------------------------------------------------------

    async def _find_members(self) -> None:
        """Return when the members are known. They are looked for when they are needed for the first time."""
        if self._is_searching:
            await self._were_found.wait_for(lambda: self._is_found)
            return
        self._is_searching = True
        group, routing, vhost = self.role.arguments, self.context.routing, self.row.vhost
        if group.pattern is None:
            names = list(group.members)
        else:
            names = [row.name for row in routing.queues(vhost)]
        for at in range(0, len(names), STEP):
            if at:
                await self.next_turn()
            for name in names[at : at + STEP]:
                self._look_at(name)
        self._is_found = True
        changed, self._changed = self._changed, set()
        for name in changed:
            self._look_at(name)
        self._were_found.wake_all()

    def on_queue_changed(self, sender: Sender, name: str) -> None:
        if self._is_found:
            self._look_at(name)
        elif self._is_searching:
            self._changed.add(name)

    def _look_at(self, name: str) -> None:
        """Make the queue of this name a member at its present address, if it may be one. A member of this name that no
        longer fits is dropped.
        """
        row = self.context.routing.queue(self.row.vhost, name)
        if row is not None and not (row.state == "running" and may_be_member(row) and self._is_wanted(name)):
            row = None
        for member in [member for member in self.role.members if member.name == name]:
            if row is not None and (row.queue_id, row.address) == (member.row.queue_id, member.address):
                return
            self._drop(member)
        if row is not None:
            group = self.role.arguments
            order = None if group.pattern is not None else {name: at for at, name in enumerate(group.members)}
            member = GroupMember(row, group.weight_of(name))
            insort(self.role.members, member, key=lambda each: each.name if order is None else order[each.name])
            if len(self.role.consumers):
                self.spawn(self._join(member))

    def _is_wanted(self, name: str) -> bool:
        group = self.role.arguments
        return name in group.members if group.pattern is None else patterns.matches(group.pattern, name)

    def _drop(self, member: GroupMember) -> None:
        if member.is_joined:
            self.demonitor(MEMBER + member.row.queue_id)
        self.role.remove_member(member)

    # -- consuming from the members -----------------------------------------------------------------

    @property
    def _tag(self) -> str:
        """The consumer tag of the group at its members."""
        return f"group {self.row.name}"

    def _join_all(self) -> None:
        for member in self.role.members:
            if not member.is_joined:
                self.spawn(self._join(member))

    async def _join(self, member: GroupMember) -> None:
        """Consume from a member."""
        member.is_joined = True
        member.joins += 1
        member.questions += 1
        join = member.joins
        self.monitor(member.address, MEMBER + member.row.queue_id)
        # The group consumes as a channel does, at its own address: of all that a queue sends channels, a member sends
        # the group deliveries and requests to a limiter only, and the group handles these.
        here = cast("Address[ToChannel]", self.myAddress)
        marked = Table(((GROUP_ARGUMENT, "S", self.row.name.encode("utf-8", "surrogateescape")),))
        consume = to_queue.consume(self.role.take_id, here, self._tag, False, False, 0, True, 0, marked, "")
        try:
            await self.ask(member.address, consume)
        except ProcessDown:
            return  # `on_down` drops the member
        except AmqpError as error:
            if member.joins != join:
                self.role.answered(member)
                return  # the group has left and joined again meanwhile, and that has an answer of its own
            if member.name not in self._refusing:
                self._refusing.add(member.name)
                log.warning("%s gets nothing from its member '%s': %s", self.label, member.name, error.text)
            if member in self.role.members:
                self._drop(member)
                self._try_again(member)
            return
        self._refusing.discard(member.name)
        await self._ask_for_offer(member)

    async def _ask_for_offer(self, member: GroupMember) -> None:
        """Have the member handle everything that was sent to it before. An offer that it makes then comes in front of
        its answer, because it makes offers at the end of each turn.
        """
        with suppress(ProcessDown):  # `on_down` drops the member
            await self.ask(member.address, to_queue.info())
            self.role.answered(member)

    def after_batch(self) -> None:
        super().after_batch()
        if self.stage.is_open and self.role.to_ask:
            asked, self.role.to_ask = self.role.to_ask, []
            for member in asked:
                self.spawn(self._ask_for_offer(member))

    def _leave_all(self) -> None:
        for member in self.role.members:
            if member.is_joined:
                member.is_joined = False
                self.demonitor(MEMBER + member.row.queue_id)
                self.send(member.address, to_queue.cancel(self.role.take_id, self._tag))

    def _try_again(self, member: GroupMember) -> None:
        self.start_timer(RETRY, MEMBER + member.name)

    def on_timer(self, payload: str) -> None:
        if payload.startswith(MEMBER):
            self._look_at(payload.removeprefix(MEMBER))
        else:
            super().on_timer(payload)

    def on_down(self, name: str, reason: ExitReason) -> Slices[None] | None:
        if not name.startswith(MEMBER):
            return super().on_down(name, reason)
        member = self.role.member(name.removeprefix(MEMBER))
        if member is not None:
            self.role.remove_member(member)
            if reason.is_noconnection:
                self._try_again(member)
        return None

    # -- from members -------------------------------------------------------------------------------

    def on_deliver(self, sender: Sender, queue_id: str, consumer_tag: str, runs: list[DeliveryRun]) -> None:
        member = self.role.member(queue_id)
        if member is not None:
            self.role.delivered(member, runs)

    def on_limiter_request(self, sender: Sender, queue_id: str, wanted: int) -> None:
        member = self.role.member(queue_id)
        if member is not None:
            self.role.offer(member, wanted)

    def on_limiter_request_now(self, sender: Sender, queue_id: str, wanted: int) -> None:
        member = self.role.member(queue_id)
        if member is not None:
            self.role.offer_now(member, wanted)

    def on_limiter_return(self, sender: Sender, queue_id: str, count: int) -> None:
        member = self.role.member(queue_id)
        if member is not None:
            self.role.returned(member, count)

    def on_reading_ended(self, sender: Sender, queue_id: str, consumer_tag: str, error: AmqpError | None) -> None:
        """A group does not read by number."""

    # -- from channels ------------------------------------------------------------------------------

    def _may_read(self, user: str, queue: str) -> bool:
        try:
            self._access_of(user).check("read", "queue", queue)
        except AmqpError:
            return False
        return True

    def _access_of(self, user: str) -> Access:
        found = self._access.get(user)
        if found is None:
            # The broker itself has no name, and may do everything.
            found = self._access[user] = Access(self.context.definitions, user or None, self.row.vhost)
        return found

    async def on_check_reader(self, sender: Sender, user: str) -> bool:
        await self._find_members()
        for member in self.role.members:
            self._access_of(user).check("read", "queue", member.name)
        return True

    async def on_consume(
        self,
        sender: Sender,
        channel_id: str,
        address: Address[ToChannel],
        tag: str,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        is_limited: bool,
        priority: int,
        arguments: Table,
        user: str,
    ) -> bool:
        await self.on_check_reader(sender, user)
        if self.role.arguments.schedule == "strict" and (no_ack or not 0 < prefetch < LOOSE_PREFETCH):
            log.warning(
                "the consumer '%s' of %s has a prefetch of %s. It may hold that many messages of later members when "
                "one of an earlier member arrives; with a prefetch of 1 it holds at most one",
                tag,
                self.label,
                prefetch if prefetch and not no_ack else "no limit",
            )
        answer = super().on_consume(
            sender, channel_id, address, tag, no_ack, exclusive, prefetch, is_limited, priority, arguments, user
        )
        assert answer is not None, "only replicas of mirrored queues keep messages"
        return answer if isinstance(answer, bool) else await answer

    async def on_get(self, sender: Sender, channel_id: str, address: Address[ToChannel], no_ack: bool) -> Got:
        await self._find_members()
        self._check_not_ending()
        self.role.use()
        record = None if no_ack else self.channels.find(channel_id, address)
        for member in self.role.in_order():
            found = await self._get_from(member)
            if found is None:
                continue
            if record is not None and self.channels.by_id.get(channel_id) is not record:
                self.role.settle_at(member, "requeue", found.tags)  # the channel has ended while the member was asked
                break
            delivery = self.role.got(member, record, found)
            return delivery, (await self._of_members())["messages_ready"]
        return None, 0

    async def _get_from(self, member: GroupMember) -> FetchedMessages | None:
        here = cast("Address[ToChannel]", self.myAddress)
        try:
            found, _ = await self.ask(member.address, to_queue.get(self.role.take_id, here, False))
        except (ProcessDown, AmqpError):  # it is being deleted, or has ended
            return None
        return None if member.is_gone else found

    # -- the group as a whole -----------------------------------------------------------------------

    async def _of_members(self) -> InfoItems:
        """The info items of the group, with what its members have."""
        await self._find_members()
        asked = [(member.address, to_queue.info()) for member in self.role.members]
        timeout = self.context.settings.channel_operation_timeout / 1000
        answers = await self.ask_each(asked, timeout)
        return with_member_items(self.role.info(), [each for each in answers if isinstance(each, dict)])

    async def on_counts(self, sender: Sender) -> tuple[int, int]:
        self.role.use()
        items = await self._of_members()
        return items["messages_ready"], len(self.role.consumers)

    async def on_info(self, sender: Sender) -> InfoItems:
        disk = {} if self.durability is None else self.durability.items()
        return {**disk, **await self._of_members()}
