"""`Queue`: a replica of one queue, and its process (amqp-broker sections 9, 11 and 12; queue-and-store section 3.3).

There is one for each queue and node. It has what a process must have, whatever part its node plays for the queue:
address, mailbox and timers, the monitors and the credit of channels, and the conversation with journal, message stores
and other threads (`replica/`). What the messages mean is the matter of its `Role`: `Master`,
`Stream` or, for the mirrors of a mirrored queue, `Mirror`. A group queue has its own process and role (`group/`).

A role is pure. The handlers below pass it what came in, and it writes what is to be done into `Effects`, which the
replica does at the end of the turn. Effects are also done before somebody who asked is answered, so that, for example,
cancel-ok follows every delivery to the consumer.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...routing.arguments.queue_settings import QueueMode, QueueSettings
from ...routing.phrases import no_queue, queue_phrase
from ...routing.rows import QueueRow
from ...runtime.exit_reason import ExitKind, ExitReason
from ..context.starting import ToNewQueue
from ..contracts.queue import Browsed, LookedUp, Peeked
from .batches import REJECTED_AT_ONCE, fits
from .consumers.consumer import ChannelRecord, Consumer
from .listing import NO_DISK, reading_items
from .message_index.look_up import browse, look_up, peek
from .policed_settings import check_changes
from .replica.member_process import MemberProcess
from .replica.role_runner import PACER
from .role import Steps

if TYPE_CHECKING:
    from ...runtime.contract import Address, Sender
    from ...runtime.coroutines import Slices
    from ..contracts.channel import ConfirmRange, Outcome, ToChannel
    from ..contracts.info_items import InfoItems
    from ..contracts.queue import AtMostOnceEntry, Got, PublishEntry
    from .mirroring import Replication


class Queue(MemberProcess):
    """The process of one queue; `ToQueue` lists the messages that it receives."""

    __slots__ = ()

    contract = ToNewQueue

    @property
    def is_open(self) -> bool:
        """Whether the queue is recovered and not being deleted, for inspection from outside."""
        return self.stage.is_open

    @property
    def queue_id(self) -> str:
        """The id of the queue, for inspection from outside."""
        return self.row.queue_id

    # -- other replicas --------------------------------------------------------------------------------

    def on_reclaim(self, sender: Sender, channel_id: str, ranges: list[ConfirmRange]) -> list[ConfirmRange] | None:
        if self.membership.keeps:
            # Publishes of the channel may be kept. If the channel were answered before them, it would repeat them.
            self.membership.keep(sender, lambda: self.on_reclaim(sender, channel_id, ranges))
            return None
        self.membership.ring.reclaim(sender, channel_id, ranges)
        self.request_turn()  # the answer is sent at the end of a turn, and an idle queue would have none
        return None

    def on_serve_kept(self, sender: Sender) -> Slices[None]:
        if not self.membership.serves:
            return  # the master rests again, and receives another `serve_kept` when it serves clients again
        for number, (asker, handle) in enumerate(self.membership.take_kept(), 1):
            try:
                answer = handle()
                if isinstance(answer, Generator):
                    answer = yield from answer
            except self.reply_errors as error:
                self.reply_error(asker, error)
            else:
                self._returned(answer, asker)
            if number % self.turn_limit == 0:
                yield
            yield from self.state.work.pause()

    def on_group_changed(self, sender: Sender, row: QueueRow) -> None:
        membership = self.membership
        if membership.has_left(row):
            self.on_dismiss(sender)
            return
        self.row = row
        member = membership.take(row)
        if self.stage.is_open and self.context.mirroring is not None:
            self.state.row = row
            if member is None:
                if membership.replication is not None:
                    self._end_mirroring(membership.replication)
            elif membership.replication is None:
                self._begin_replication()
            else:
                membership.replication.change_row()
            self._count_in_sync()

    def _end_mirroring(self, replication: Replication) -> None:
        """Go on alone, because the queue is not mirrored any more."""
        confirms = self.state.confirms
        safe = replication.end()
        self._use(self.backing)
        self.membership.replication = None
        if confirms.deduplication is not None:
            confirms.known += confirms.deduplication.end_mirroring()
        if safe and not self.stage.is_held:
            confirms.collect(safe)
            self.role.confirmed(safe)
        self.remembering.apply(self.settings)
        self._lay_lanes(self.settings)
        self._serve()

    def on_dismiss(self, sender: Sender) -> None:
        # This must not be an orderly end, at which channels would confirm publishes that no queue has accepted.
        self.stop(ExitReason(ExitKind.EXIT, "its replica has left the group of the queue"))

    # -- channels --------------------------------------------------------------------------------------

    def on_link_full(self, sender: Sender, node: str) -> None:
        self.channels.link_full(node)

    def on_link_free(self, sender: Sender, node: str) -> None:
        credit = self.channels.credit
        was_blocked = credit.blocked
        freed = self.channels.link_free(node)
        if was_blocked and not credit.blocked:
            self.credit_freed()
        for record in freed if self.stage.is_open else ():
            self.role.sent(record, 0)

    def on_sent(self, sender: Sender, channel_id: str, count: int) -> None:
        record = self.channels.by_id.get(channel_id)
        if record is not None:
            self.role.sent(record, count)

    def on_limiter_changed(self, sender: Sender, channel_id: str, is_limited: bool) -> None:
        record = self.channels.by_id.get(channel_id)
        if record is not None:
            self.role.limiter_changed(record, is_limited)

    def on_limiter_grant(self, sender: Sender, channel_id: str, count: int) -> None:
        record = self.channels.by_id.get(channel_id)
        if record is not None:
            self.role.limiter_grant(record, count)
            if self._may_deliver:
                # A publish that follows in the same turn may drop the head of a full queue. It must not drop a message
                # that this grant lets the queue deliver.
                self.role.deliver_due()

    def on_leased(
        self, sender: Sender, vhost: str, group: str, first: int, last: int, count: int, sharers: int
    ) -> None:
        if self.stage.is_open:
            self.role.leased((vhost, group), first, last, count, sharers)

    def on_pacer_moved(self, sender: Sender, vhost: str, group: str) -> None:
        if self.stage.is_open:
            self.role.pacer_lost()

    def on_channel_closing(self, sender: Sender, channel_id: str) -> Slices[bool] | None:
        if self.membership.keeps:
            self.membership.keep(sender, lambda: self.on_channel_closing(sender, channel_id))
            return None
        return self._close_channel(channel_id)

    def _close_channel(self, channel_id: str) -> Slices[bool]:
        yield from self.forget_channel(channel_id)
        self.demonitor(channel_id)
        if self.membership.replication is not None:
            self.membership.replication.channel_gone(channel_id, True)
        self.runner.do_effects()
        return True

    def on_down(self, name: str, reason: ExitReason) -> Slices[None] | None:
        """A channel has ended without `channel_closing`, and `name` is its id; or a pacer has."""
        if name.startswith(PACER):
            self.runner.pacer_down(name)
            return None
        if self.membership.keeps:
            self.membership.keep(self.myAddress, lambda: self.on_down(name, reason))
            return None
        if self.membership.replication is not None:
            self.membership.replication.channel_gone(name, not reason.is_noconnection)
        return self.forget_channel(name)

    def forget_channel(self, channel_id: str) -> Slices[None]:
        """Forget a channel that has ended or ends, after accepting its earlier publishes."""
        self._take_delayed()
        record = self.channels.forget(channel_id)
        if record is not None:
            try:
                if self.stage.is_open:
                    yield from self.runner.in_slices(self.role.forget_channel(record))
            finally:
                # A queue that is ending does not find this record among its channels, so nothing else would free it.
                record.drop_consumers()

    # -- publishing ------------------------------------------------------------------------------------

    def on_publish(
        self,
        sender: Address[ToChannel],
        channel_id: str,
        entries: list[PublishEntry],
        user: str = "",
        floor: int = 0,
        repeated: int = 0,
    ) -> None:
        replication = self.membership.replication
        if replication is not None:
            if self.membership.keeps:
                fields = channel_id, entries, user, floor, repeated
                self.membership.keep(sender, lambda: self.on_publish(sender, *fields))
                return
            if floor:
                replication.answered(channel_id, floor)
        record = self.channels.by_id.get(channel_id) or self.channels.find(channel_id, sender)
        record.user = user
        if repeated:
            record.repeated_below = repeated
        if self.role.is_bounded:
            self._make_room()
        self.role.publish(record, entries)

    def on_publish_at_most_once(self, sender: Sender, entries: list[AtMostOnceEntry]) -> None:
        if self.membership.keeps:
            self.membership.keep(sender, lambda: self.on_publish_at_most_once(sender, entries))
        else:
            self.role.publish_at_most_once(entries)

    def on_take_dead_letters(self, sender: Sender, entries: list[AtMostOnceEntry], is_repeated: bool) -> None:
        if not self.stage.is_open or self.stage.is_held:
            raise no_queue(self.row.vhost, self.row.name)
        if self.membership.keeps:
            self.membership.keep(sender, lambda: self.on_take_dead_letters(sender, entries, is_repeated))
        else:
            first = self.state.confirms.await_dead_letters(sender, sum([len(entry[1]) for entry in entries]))
            self.role.take_dead_letters(entries, first, is_repeated)

    # -- consuming -------------------------------------------------------------------------------------

    def on_consume(
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
    ) -> bool | Coroutine[object, None, bool] | None:
        self._check_not_ending()
        if self.membership.keeps:
            fields = channel_id, address, tag, no_ack, exclusive, prefetch, is_limited, priority, arguments, user
            self.membership.keep(sender, lambda: self.on_consume(sender, *fields))
            return None
        record = self.channels.find(channel_id, address)
        record.is_limited = is_limited
        consumer = Consumer(record, tag, no_ack, exclusive, prefetch, priority, arguments, user)
        return self.runner.go_through(self.role.consume(consumer))

    def on_cancel(self, sender: Sender, channel_id: str, tag: str) -> bool:
        self._catch_up()
        if self.stage.is_open:  # a queue that is ending forgets its consumers in steps, and may have forgotten this one
            self.role.cancel(channel_id, tag)
        self.runner.do_effects()  # cancel-ok follows every delivery already decided
        return True

    def on_get(
        self, sender: Sender, channel_id: str, address: Address[ToChannel], no_ack: bool
    ) -> Got | Coroutine[object, None, Got] | None:
        self._check_not_ending()
        if self.membership.keeps:
            self.membership.keep(sender, lambda: self.on_get(sender, channel_id, address, no_ack))
            return None
        return self.runner.go_through(self.role.get(None if no_ack else self.channels.find(channel_id, address)))

    def on_get_several(
        self, sender: Sender, channel_id: str, address: Address[ToChannel], no_ack: bool, count: int
    ) -> list[Got] | Coroutine[object, None, list[Got]] | None:
        self._check_not_ending()
        if self.membership.keeps:
            self.membership.keep(sender, lambda: self.on_get_several(sender, channel_id, address, no_ack, count))
            return None
        record = None if no_ack else self.channels.find(channel_id, address)
        return self.runner.go_through(self._several(record, count))

    def _several(self, record: ChannelRecord | None, count: int) -> Steps[list[Got]]:
        """Take up to `count` messages. Only the first one is waited for: the channel asks again for the others."""
        answers = [(yield from self.role.get(record))]
        while answers[-1][0] is not None and len(answers) < count:
            self.state.work.left -= 1
            steps = self.role.get(record)
            try:
                next(steps)
            except StopIteration as stop:
                answers.append(stop.value)
            except AmqpError:
                break
            else:
                steps.close()
                break
        return answers

    def on_settle(
        self, sender: Sender, channel_id: str, outcome: Outcome, pieces: list[Sequence[int]]
    ) -> Slices[None] | None:
        record = self.channels.by_id.get(channel_id)
        if record is None or not self.stage.is_open:
            return None
        if self.membership.keeps and (outcome != "ack" or not self.membership.takes_acks):
            if outcome == "ack":
                self.membership.keep_acks(record, pieces)
            self.membership.keep(sender, lambda: self.on_settle(sender, channel_id, outcome, pieces))
            return None
        if outcome == "requeue" and self.role.is_bounded:
            self._make_room()
        work = self.state.work
        needed = fits(pieces, min(work.left, REJECTED_AT_ONCE if outcome == "reject" else work.left), self.backing)
        if not needed:
            return self.runner.in_slices(self.role.settle_in_slices(record, outcome, pieces))
        work.left -= needed
        self.role.settle(record, outcome, pieces)
        return None

    def _make_room(self) -> None:
        """Have a queue with a length limit deliver what earlier messages of this turn have made due, such as an ack. A
        publish or a requeue would otherwise meet a full queue, and have it drop or refuse a message although a consumer
        has room for the one at the head.
        """
        if self._may_deliver:
            self.role.make_room()

    def _check_not_ending(self) -> None:
        self._catch_up()
        if self.stage.is_ending:
            raise no_queue(self.row.vhost, self.row.name)

    def _catch_up(self) -> None:
        """Accept and deliver what has become due before this message, as if every message had a turn of its own: an ack
        in front of basic.cancel lets the consumer have one more message.
        """
        self._take_delayed()
        if self._may_deliver:
            self.role.deliver_due()

    # -- the queue as a whole --------------------------------------------------------------------------

    def on_apply_settings(self, sender: Sender, settings: QueueSettings) -> Slices[bool] | None:
        if self.membership.is_resting:
            self.membership.keep(sender, lambda: self.on_apply_settings(sender, settings))
            return None
        return self._use_settings(settings)

    def _use_settings(self, settings: QueueSettings) -> Slices[bool]:
        before = self.settings
        check_changes(before, settings, queue_phrase(self.row.vhost, self.row.name))
        self._take_delayed()
        self.settings = settings
        if self.stage.is_open:
            self._lay_lanes(before)
            self._apply()
            yield from self.role.apply_to_consumers()
            if self.stage.is_released and not self.stage.is_held:
                self.role.release()
            self.state.head_read.prepare()
        return True

    def on_set_queue_mode(self, sender: Sender, mode: QueueMode) -> Slices[None]:
        change = self.on_apply_settings(sender, replace(self._policed_settings(), queue_mode=mode))
        if change is not None:
            yield from change

    def on_counts(self, sender: Sender) -> tuple[int, int] | Coroutine[object, None, tuple[int, int]]:
        self._take_delayed()
        self.role.use()
        return self.role.counts()

    def on_purge(self, sender: Sender) -> Slices[Coroutine[object, None, int]] | None:
        if self.membership.keeps:
            self.membership.keep(sender, self._purge)
            return None
        return self._purge()

    def _purge(self) -> Slices[Coroutine[object, None, int]]:
        self._catch_up()
        count = yield from self.runner.in_slices(self.role.purge())
        return self._purged(count)

    async def _purged(self, count: int) -> int:
        """Answer a purge as soon as it is on the disk."""
        if self.durability is not None and count:
            await self.durability.synced()
        return count

    def on_info(self, sender: Sender) -> InfoItems | Coroutine[object, None, InfoItems]:
        return self.info_items()

    def info_items(self) -> InfoItems:
        """What the queue answers to `info`. A listing reads this between two turns, without a message."""
        items = self.role.info()
        items.update(NO_DISK if self.durability is None else self.durability.items())
        if self.indexing is not None:
            items["index_lag"] = self.indexing.lag
        if self.membership.replication is not None:
            items["synchronisation"] = self.membership.replication.copies
        return items

    def statistics(self) -> InfoItems:
        """What management shows of the queue beside its row. Read between two turns, without a message."""
        items = self.info_items() if self.stage.is_open else {}
        items.update(vhost=self.row.vhost, name=self.row.name, counts=self.state.counts.values())
        return items

    def on_reading_info(self, sender: Sender) -> InfoItems:
        self._check_not_ending()
        consumers = self.role.counts()[1]
        return reading_items(self.backing, consumers, self.settings.window or 0)

    def on_look_up(self, sender: Sender, numbers: list[int]) -> Coroutine[object, None, list[LookedUp]]:
        self._check_not_ending()
        return look_up(numbers, self.backing, self._disk.loader, self.channels.by_id, lambda: self.stage.is_open)

    def on_browse(self, sender: Sender, first: int | None, most: int) -> Coroutine[object, None, Browsed | None]:
        self._check_not_ending()
        loader = None if self.durability is None else self.durability.loader
        return browse(first, most, self.backing, loader, self.channels.by_id, lambda: self.stage.is_open)

    def on_peek(self, sender: Sender, position: int) -> Coroutine[object, None, Peeked | None]:
        self._check_not_ending()
        loader = None if self.durability is None else self.durability.loader
        return peek(position, self.backing, loader, self.channels.by_id, lambda: self.stage.is_open)

    def on_consumers_info(self, sender: Sender) -> Slices[list[InfoItems]]:
        return self.channels.name_nodes(self.role.consumers_info(), self.context.node_name)

    def on_delete(self, sender: Sender, if_unused: bool, if_empty: bool) -> Coroutine[object, None, int] | None:
        # A queue that ends anyway does not answer: at its end the asker gets ProcessDown.
        return None if self.stage.is_ending else self._delete_if(if_unused, if_empty)

    async def _delete_if(self, if_unused: bool, if_empty: bool) -> int:
        self._catch_up()
        phrase = queue_phrase(self.row.vhost, self.row.name)
        ready, consumers = self.role.counts()
        if if_empty and ready:
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} not empty")
        if if_unused and consumers:
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} in use")
        await self._delete("deleted")
        return ready
