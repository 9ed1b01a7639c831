"""`QueueLinks`: the queues that a channel uses, and the messages gathered for them.

The channel watches each queue that it has published to, consumed from or fetched from. Publishes and settlements are
gathered by queue and sent once a batch, or before the channel asks a queue something, so that a queue receives
everything in the client's order.

A queue that crashes is restarted by its supervisor, under the same queue id and at another address. A method that finds
the queue dead waits for the restart and asks the new process, up to `ATTEMPTS` times (AB-63).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ...amqp.errors import AmqpError
from ...routing.arguments.catalogue_arguments import CATALOGUE, refuse_catalogue
from ...routing.phrases import no_queue, queue_locked, queue_unavailable
from ...routing.rows import QueueRow
from ...routing.shards import shards_of
from ...runtime.contract import Address, ProcessMessage
from ...runtime.credit import CreditFlow, pair_across_links
from ...runtime.errors import ProcessDown, ProcessTimeout
from ...runtime.exit_reason import ExitKind, ExitReason
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...runtime.system.address import is_elsewhere, system_of
from ..context.node_context import NodeContext
from ..contracts.channel import ChannelConfig, ConfirmRange, Outcome
from ..contracts.group import ToGroup
from ..contracts.metadata import to_metadata
from ..contracts.queue import ToQueue, to_queue

if TYPE_CHECKING:
    from ..contracts.queue import PublishEntry

#: On how many processes of one queue a method is tried. The method itself may make the queue crash.
ATTEMPTS = 3

#: Seconds after which a channel that has lost a mirrored queue tries its master again, to which there may be a
#: connection by then.
RECLAIM_SECONDS = 0.5

#: Shared by all channels that have never lost the master of a mirrored queue: an empty dict for each takes 64 bytes.
_NO_SIGNALS: dict[str, Signal] = {}
_NO_NUMBERS: dict[str, int] = {}

Answer = TypeVar("Answer")
Key = TypeVar("Key")

#: Ack tags of deliveries of one queue, grouped by outcome in the client's order.
Settlement = list[tuple[Outcome, list[Sequence[int]]]]


def gather(settlements: dict[Key, Settlement], key: Key, outcome: Outcome, tags: Sequence[int]) -> None:
    """Add the settlement of deliveries with these ack tags to that of `key`."""
    outcomes = settlements.get(key)
    if outcomes is None:
        settlements[key] = [(outcome, [tags])]
    elif outcomes[-1][0] != outcome:
        outcomes.append((outcome, [tags]))
    else:
        pieces = outcomes[-1][1]
        last = pieces[-1]
        if type(tags) is type(last) is range and last.stop == tags.start and last.step == tags.step == 1:
            # A client that settles one message at a time, in order, costs the queue one range.
            pieces[-1] = range(last.start, tags.stop)
        else:
            pieces.append(tags)


class QueueLinks:
    """The queues of one channel by queue id, and what is gathered for each."""

    __slots__ = (
        "_config",
        "_context",
        "_credit",
        "_process",
        "floor_of",
        "held",
        "last_declared",
        "publishes",
        "repeated",
        "rows",
        "settlements",
    )

    #: Returns, for a queue id, the publish number below which the channel awaits no answer of that queue.
    floor_of: Callable[[str], int]

    def __init__(self, process: Process, context: NodeContext, config: ChannelConfig, credit: CreditFlow) -> None:
        self._process = process
        self._context = context
        self._config = config
        self._credit = credit
        #: The watched queues, all of them alive as far as the channel has been notified.
        self.rows: dict[str, QueueRow] = {}
        #: Name of the most recently declared queue (AB-62).
        self.last_declared = ""
        #: Publishes gathered by queue id. A queue is watched before it gets an entry.
        self.publishes: dict[str, tuple[QueueRow, list[PublishEntry]]] = {}
        #: Settlements gathered by queue id.
        self.settlements: dict[str, Settlement] = {}
        #: Mirrored queues that have lost their master, by queue id. What is gathered for them waits (`Failover`). This
        #: dict and the next are the same empty one in all channels, until a channel has lost a master.
        self.held: dict[str, Signal] = _NO_SIGNALS
        #: By queue id of a mirrored queue: publishes below this number may have been sent to an earlier master. The
        #: entry is removed when the number has been sent to the present master.
        self.repeated: dict[str, int] = _NO_NUMBERS

    # -- finding a queue ---

    def name_or_last_declared(self, name: str) -> str:
        """`name`, or if it is empty the most recently declared queue (AB-62)."""
        if name or self.last_declared:
            return name or self.last_declared
        raise AmqpError(404, "no previously declared queue")

    def row(self, name: str) -> QueueRow:
        """The row of a queue that this connection may use.

        Raise AmqpError 404 if there is none or it cannot be used (AB-63), 405 if it is exclusive to another connection
        (AB-84).
        """
        vhost = self._config.vhost
        row = self._context.routing.queue(vhost, name)
        if row is None:
            raise refuse_catalogue() if name == CATALOGUE else no_queue(vhost, name)
        if row.state != "running":
            raise queue_unavailable(vhost, name, row.state, row.node)
        if row.exclusive_owner is not None and row.exclusive_owner != self._config.connection_id:
            raise queue_locked(row.vhost, row.name)
        return row

    def shards(self, row: QueueRow) -> tuple[QueueRow, ...]:
        """All shards of a logical queue; none for an ordinary one.

        Raise AmqpError 404 if one of them cannot be used (AB-63).
        """
        if not row.shards:
            return ()
        found = shards_of(self._context.routing, row)
        for shard in found:
            if shard.state != "running":
                raise queue_unavailable(shard.vhost, shard.name, shard.state, shard.node)
        if len(found) < row.shards:
            raise queue_unavailable(row.vhost, row.name, "stopped", row.node)
        return found

    def read_name(self, name: str) -> str:
        """The queue whose read permission allows reading this queue: for a shard its logical queue (FC-88)."""
        row = self._context.routing.queue(self._config.vhost, name)
        return name if row is None or row.shard_of is None else row.shard_of

    async def counts(self, row: QueueRow) -> tuple[int, int]:
        """The ready messages of a queue, of all shards of a logical one, and its consumers (FC-96)."""
        ready, consumers = await self.ask(row, to_queue.counts())
        for shard in self.shards(row):
            ready += (await self.ask(shard, to_queue.counts()))[0]
        return ready, consumers

    async def purge(self, row: QueueRow) -> int:
        """Purge a queue, or all shards of a logical one, and return how many messages these had."""
        purged = 0
        for each in self.shards(row) or (row,):
            purged += await self.ask(each, to_queue.purge())
        return purged

    def is_routed_to(self, row: QueueRow) -> bool:
        """Whether the queue is still in the routing table, and not another one declared under the same name since."""
        current = self._context.routing.queue(row.vhost, row.name)
        return current is not None and current.queue_id == row.queue_id

    def is_mirrored(self, row: QueueRow) -> bool:
        """Whether another node may go on with the queue when its home is lost."""
        current = self._context.routing.queue(row.vhost, row.name)
        return current is not None and current.queue_id == row.queue_id and current.group is not None

    # -- watching ---

    def watch(self, row: QueueRow) -> None:
        """Watch a queue: its end settles its confirms, and cancels its consumers or has them consume again."""
        known = self.rows.get(row.queue_id)
        if known is not None and known.address != row.address:
            # The restarted queue is in the routing table before this channel was notified of the crash. The crash has
            # to be handled first: it refuses the confirms and disowns the deliveries of the dead process.
            self._process.on_down(row.queue_id, ExitReason(ExitKind.CRASH, "restarted meanwhile"))
            known = None
        if known is None:
            self.rows[row.queue_id] = row
            if is_elsewhere(row.address, self._process.myAddress):
                pair = pair_across_links(self._context.settings.credit_flow_default_credit)
                self._credit.relate(row.queue_id, pair)
            self._process.monitor(row.address, row.queue_id)

    def is_watched(self, queue_id: str, address: Address[ToQueue]) -> bool:
        """Whether the channel watches the process of this queue at `address`, and not a later one.

        On another node a queue has a name in place of the address of its process, so any process of that node counts.
        """
        row = self.rows.get(queue_id)
        if row is None or row.address == address:
            return row is not None
        system = system_of(address)
        return system != system_of(self._process.myAddress) and system == system_of(row.address)

    def remove(self, queue_id: str) -> tuple[QueueRow | None, list[PublishEntry]]:
        """Forget a queue that has ended. Return its row if it was watched, and the publishes gathered for it."""
        self._credit.peer_down(queue_id)
        gathered = None if queue_id in self.held else self.publishes.pop(queue_id, None)
        self.settlements.pop(queue_id, None)
        return self.rows.pop(queue_id, None), [] if gathered is None else gathered[1]

    def hold(self, queue_id: str) -> None:
        """Keep what is gathered for a mirrored queue that has lost its master, until `go_on`."""
        if not self.held:
            self.held = {}
        self.held[queue_id] = Signal(self._process)

    def go_on(self, queue_id: str, repeated: int) -> None:
        """Send the queue what was gathered; publishes below `repeated` may have been sent to an earlier master."""
        if repeated:
            if not self.repeated:
                self.repeated = {}
            self.repeated[queue_id] = repeated
        ended = self.held.pop(queue_id)
        if not self.held:
            self.held = _NO_SIGNALS
        ended.wake_all()

    # -- sending ---

    def flush(self) -> None:
        """Send each queue what was gathered for it: settlements first, then publishes at one credit a message."""
        process, channel_id, user = self._process, self._config.channel_id, self._config.user
        if self.settlements:
            self.send_settlements()
        if self.publishes:
            publishes, self.publishes = self.publishes, {}
            for queue_id, (row, entries) in publishes.items():
                if queue_id in self.held:
                    self.publishes[queue_id] = row, entries
                    continue
                floor = self.floor_of(queue_id) if row.group is not None and entries[0][4] else 0
                # While a transaction held the publish back, its queue may have been restarted at another address.
                row = self.rows.get(queue_id, row)
                count = len(entries[0][1]) if len(entries) == 1 else sum([len(entry[1]) for entry in entries])
                self._credit.spend(queue_id, count)
                repeated = self.repeated.pop(queue_id, 0) if self.repeated else 0
                process.send(row.address, to_queue.publish(channel_id, entries, user, floor, repeated))

    def send_settlements(self) -> None:
        """Send each queue what was settled of its deliveries."""
        process, channel_id = self._process, self._config.channel_id
        settlements, self.settlements = self.settlements, {}
        for queue_id, outcomes in settlements.items():
            row = self.rows.get(queue_id)
            if row is None:
                continue  # the queue has ended, and its messages with it (AB-86)
            for outcome, pieces in outcomes:
                process.send(row.address, to_queue.settle(channel_id, outcome, pieces))

    async def ask(
        self,
        row: QueueRow,
        message: ProcessMessage[ToQueue, Answer] | ProcessMessage[ToGroup, Answer],
        is_watched: bool = False,
    ) -> Answer:
        """Ask a queue, behind everything gathered for it; a queue that has crashed is asked again when it runs again.

        With `is_watched` the channel watches the queue from then on. Raise AmqpError 404 if the queue is gone or stays
        down (AB-63).
        """
        while row.queue_id in self.held:
            await self.held[row.queue_id].wait()
        self.flush()
        for _ in range(ATTEMPTS):
            if is_watched:
                self.watch(row)
            try:
                return await self._process.ask(row.address, message)
            except ProcessDown as down:
                # nothing but the queue's own node could restart it
                if down.reason.is_noconnection and not self.is_mirrored(row):
                    raise queue_unavailable(row.vhost, row.name, "down", row.node) from None
                row = await self.restarted(row)
        raise queue_unavailable(row.vhost, row.name, "crashed", row.node)

    async def leave(self, queue_ids: set[str]) -> None:
        """Take leave of these queues: each forgets the channel's consumers and takes back the messages that the channel
        holds.

        Waits for one queue after the other, for each at most `channel_operation_timeout` (AB-178).
        """
        # Iterate in the order of the links. The order of the set differs between operating-system processes, so the
        # seed of a simulation would not decide it.
        for row in [row for queue_id, row in self.rows.items() if queue_id in queue_ids]:
            try:
                await self._process.ask(
                    row.address,
                    to_queue.channel_closing(self._config.channel_id),
                    timeout=self._context.settings.channel_operation_timeout / 1000,
                )
            except (ProcessDown, ProcessTimeout):
                pass

    async def reclaim(self, row: QueueRow, owed: list[ConfirmRange]) -> tuple[QueueRow, list[ConfirmRange]]:
        """The row of the present master of a mirrored queue, and which of the publishes `owed` that master has.

        `row` is that of the master which cannot be reached. If only the connection to it was lost, the same master is
        asked again when there is a connection. Raises AmqpError 404 if no node goes on with the queue, the AmqpError of
        a master that was recovered from its disk, and ProcessTimeout if no master answers in
        `channel_operation_timeout`.
        """
        process = self._process
        end = process.now() + self._context.settings.channel_operation_timeout / 1000
        while True:
            with suppress(ProcessDown):
                question = to_queue.reclaim(self._config.channel_id, owed)
                return row, await process.ask(row.address, question, timeout=max(end - process.now(), 0))
            with suppress(ProcessTimeout):
                row = await self.restarted(row, min(RECLAIM_SECONDS, max(end - process.now(), 0)))
            if process.now() >= end:
                raise ProcessTimeout

    def usable(self, row: QueueRow) -> QueueRow | None:
        """The row of the same queue as it is now, if it can be used."""
        current = self._context.routing.queue(row.vhost, row.name)
        if current is None or current.queue_id != row.queue_id or current.state != "running":
            return None
        return None if current.address is None or current.address == row.address else current

    async def restarted(self, row: QueueRow, seconds: float | None = None) -> QueueRow:
        """Wait until the queue whose process at `row.address` has died runs again, and return its new row.

        Raises AmqpError 404 if that takes longer than `channel_operation_timeout`, or if the queue does not run again,
        as when the node stops meanwhile. With `seconds`, raises ProcessTimeout after these.
        """
        try:
            again = await self._process.ask(
                self._context.metadata,
                to_metadata.await_restart(row.vhost, row.name, row.address),
                timeout=self._context.settings.channel_operation_timeout / 1000 if seconds is None else seconds,
            )
        except ProcessTimeout:
            if seconds is not None:
                raise
            raise queue_unavailable(row.vhost, row.name, "timeout", row.node) from None
        except ProcessDown:  # the node stops, and Metadata has ended before the connections
            raise queue_unavailable(row.vhost, row.name, "stopped", row.node) from None
        if again.queue_id != row.queue_id:
            raise no_queue(row.vhost, row.name)  # the queue was deleted, and another one has its name
        return again
