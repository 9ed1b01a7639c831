"""`ChannelRecords`: the channels that use one replica of a queue, and the credit between them and the queue.

A channel is known from its first message that publishes or consumes until it closes or ends. The record of a channel of
another node remembers whether the link to that node is full: the queue delivers nothing across a full link, and it
gives publishers no credit, because their messages may become dead letters for a queue behind the link (CL-15).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....routing.arguments.consumer_arguments import consumer_group
from ....runtime.credit import CreditFlow, link_peer, pair_across_links
from ....runtime.process import Process
from ....runtime.system.address import is_elsewhere, node_of, system_of
from ....runtime.turn_work import STEP
from ...contracts.channel import to_channel
from ...events.credit_events import trace_credit
from ..consumers.consumer import UNSENT_LIMIT, ChannelRecord, Consumer

if TYPE_CHECKING:
    from ....runtime.contract import Address
    from ....runtime.coroutines import Slices
    from ...context.node_context import NodeContext
    from ...contracts.channel import ToChannel
    from ...contracts.info_items import InfoItems
    from ..effects import Effects


class ChannelRecords:
    """Belongs to the replica whose process is `process`."""

    __slots__ = ("_process", "by_id", "credit")

    #: With channels, and with journal, message stores and links. There is none before `begin`.
    credit: CreditFlow

    def __init__(self, process: Process) -> None:
        self._process = process
        self.by_id: dict[str, ChannelRecord] = {}

    def begin(self, context: NodeContext, phrase: str, effects: Effects) -> None:
        """Begin when the replica has its row. Credit for channels goes to `effects`; events call the queue `phrase`."""
        self.credit = CreditFlow(
            context.settings.credit_flow_default_credit,
            effects.grant,
            clock=self._process.clocks()[0],
            hold=context.settings.flow_hold_queue / 1000,
        )
        trace_credit(self._process, self.credit, context, phrase)

    def find(self, channel_id: str, address: Address[ToChannel]) -> ChannelRecord:
        """The record of the channel. A new one is monitored."""
        record = self.by_id.get(channel_id)
        if record is None:
            record = self.by_id[channel_id] = ChannelRecord(channel_id, address)
            if is_elsewhere(address, self._process.myAddress):
                record.is_elsewhere = True
                is_full = link_peer(node_of(system_of(address))) in self.credit.credit_blocked
                record.unsent_limit = 0 if is_full else UNSENT_LIMIT
                self.credit.relate(channel_id, pair_across_links(self.credit.pair))
            self._process.monitor(address, channel_id)
        return record

    def forget(self, channel_id: str) -> ChannelRecord | None:
        """Remove the record of a channel that has ended or is about to end, and return it."""
        record = self.by_id.pop(channel_id, None)
        self.credit.peer_down(channel_id)
        if record is not None:
            record.has_ended = True
        return record

    def grant(self, queue_id: str, grants: list[tuple[str, int]]) -> None:
        """Send channels the credit that the queue has given them."""
        for channel_id, amount in grants:
            record = self.by_id.get(channel_id)
            if record is not None:
                self._process.send(record.address, to_channel.bump(queue_id, amount))

    # -- links to other nodes ---

    def link_full(self, node: str) -> None:
        """Have nothing delivered to channels of that node, and give publishers no credit while the link is full,
        because their messages may become dead letters for a queue there.
        """
        peer = link_peer(node)
        self.credit.relate(peer, kind="link")
        self.credit.block(peer)
        for record in self._of_node(node):
            record.unsent_limit = 0

    def link_free(self, node: str) -> list[ChannelRecord]:
        """Return the channels of the node, to which the queue may deliver again."""
        self.credit.unblock(link_peer(node))
        freed = self._of_node(node)
        for record in freed:
            record.unsent_limit = UNSENT_LIMIT
        return freed

    def _of_node(self, node: str) -> list[ChannelRecord]:
        return [
            record
            for record in self.by_id.values()
            if record.is_elsewhere and node_of(system_of(record.address)) == node
        ]

    # -- for whoever shows them ---

    def name_nodes(self, consumers: Iterator[InfoItems], own_node: str) -> Slices[list[InfoItems]]:
        """Return the items of the consumers, each with the node that its channel is on.

        A consumer of a group also has `lowest_unacked`, the lowest number of a message that it holds (QP-111).
        """
        here = system_of(self._process.myAddress)
        named: list[InfoItems] = []
        for items in consumers:
            channel = self.by_id.get(items["channel"])  # a queue that is being deleted has none any more
            system = here if channel is None else system_of(channel.address)
            items["node"] = own_node if system == here else node_of(system)
            named.append(items)
            if len(named) % STEP == 0:
                yield
        lowest: dict[str, dict[str, int]] = {}
        for at, items in enumerate(named, 1):
            if consumer_group(items["arguments"]):
                channel_id = items["channel"]
                if channel_id not in lowest:
                    channel = self.by_id.get(channel_id)
                    lowest[channel_id] = {} if channel is None else (yield from _lowest_held(channel))
                items["lowest_unacked"] = lowest[channel_id].get(items["consumer_tag"])
            if at % STEP == 0:
                yield
        return named


def _lowest_held(channel: ChannelRecord) -> Slices[dict[str, int]]:
    """By consumer tag: the lowest ack tag among the messages that this consumer of the channel holds. It is the number
    of a message.
    """
    lowest: dict[str, int] = {}
    for count, (ack_tag, owner) in enumerate(zip(channel.pending, channel.pending.owners()), 1):
        if isinstance(owner, Consumer):
            lowest[owner.tag] = min(ack_tag, lowest.get(owner.tag, ack_tag))
        if count % STEP == 0:
            yield
    return lowest
