"""What the process of a queue receives, and the shapes of these messages' fields.

A queue exchanges most of its messages with channels: publishes, consumers and settlements come from them; deliveries,
confirms and credit go back. On a node with a data directory the journal, the message stores and the memory monitor of
the virtual host send it messages as well. Its `QueueSupervisor` starts and stops it, and `Metadata` deletes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.contract import message
from ...runtime.credit import STORE_PAIR, Pair
from ...store.disk.progress import NO_PROGRESS, RecoveryProgress
from ...store.queue.variable.placement import EMBED_BELOW
from .channel import ToDeliverer
from .disk import ToDiskUser
from .membership import ToLinkSender
from .resources import ToMemoryUser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...amqp.fields import Table
    from ...routing.arguments.queue_settings import QueueMode, QueueSettings
    from ...routing.rows import QueueRow
    from ...runtime.contract import Address
    from ...store.disk.disk import Disk
    from ...store.messages.lives import Numbering
    from ...store.messages.message import FetchedMessages, Origin, Origins, QueuedMessage
    from ...store.messages.message_ids import StoredSpan
    from .channel import ConfirmRange, Outcome, ToChannel
    from .disk import ToJournal, ToMessageStore
    from .info_items import InfoItems
    from .resources import ToMemoryMonitor

    #: A run that is published: origins, contents, body bytes, publish number of the first content, whether the channel
    #: awaits confirms, id of the first content (`store/messages/message_ids.py`) if other queues get the same large
    #: bodies, else 0. Each content costs the channel one credit.
    PublishEntry = tuple[Origins, Sequence[bytes], int, int, bool, int]

    #: A run that is neither credited nor confirmed: origin, contents, body bytes, id of the first content or 0.
    AtMostOnceEntry = tuple[Origin, Sequence[bytes], int, int]

    #: The answer to a get: the message, as a run of one, or None if there is none; and how many ready messages are
    #: left.
    Got = tuple[FetchedMessages | None, int]

    #: Messages whose bodies a recovering queue needs from the persistent store, by level (the number that a queue, or
    #: one of its priorities, has in the journal).
    NeededBodies = dict[int, list[StoredSpan]]

    #: What a queue writes at a clean end for its next start: a tree of plain values, msgpack on the disk.
    Terms = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VhostStorage:
    """Where the queues of a virtual host keep their messages: its processes and its directory."""

    journal: Address[ToJournal]
    persistent: Address[ToMessageStore]
    transient: Address[ToMessageStore]
    memory_monitor: Address[ToMemoryMonitor]
    disk: Disk
    #: Entries of a segment file.
    segment_entries: int
    #: Bodies of fewer bytes are embedded in the journal and the segments.
    embed_below: int = EMBED_BELOW
    #: The pair (I, M) of a queue with the journal and with each store.
    credit: Pair = STORE_PAIR
    #: Is notified of files that queues scan when they are recovered.
    progress: RecoveryProgress = NO_PROGRESS


class LookedUp(NamedTuple):
    """A message that is in a queue."""

    number: int
    #: The channel that has it unacknowledged, if any.
    channel_id: str | None
    #: None if the queue has priorities, or if the answer has too many bytes already.
    message: QueuedMessage | None


class Browsed(NamedTuple):
    """Messages that were read by number."""

    #: The lowest number that a message of the queue may have, and the number that the next message gets.
    first: int
    next: int
    messages: list[LookedUp]
    #: The number to go on with; None if the queue has no further message.
    more_from: int | None


#: A ready message as `peek` shows it: its exchange, its routing keys, its properties as they are on the wire, the first
#: bytes of its body, and how often it was returned to the queue. A plain tuple, which can cross to another node.
Peeked = tuple[str, list[str], bytes, bytes, int]


@dataclass(frozen=True, slots=True)
class QueueRecovery:
    """How a queue that existed before is to be recovered."""

    #: What its last process returned at a clean end; None after an unclean one.
    terms: Terms | None
    #: Whether only this queue crashed, so that journal and stores have been running since.
    is_alone: bool = False
    #: The numbers of its priority levels that have a directory; None: the queue has to find out.
    on_disk: frozenset[int] | None = None
    #: Set if the queue has no message to recover: the numbering of each of its priorities, by priority. Such a queue is
    #: open at once, and receives no `open`.
    numberings: dict[int, Numbering] | None = None
    #: Whether this replica follows another one, which gives the numbers (`DiskQueue.recover`).
    is_copy: bool = False


class ToQueue(ToDiskUser, ToMemoryUser, ToDeliverer, ToLinkSender):
    """What `Queue` (`actors/queue/process.py`) receives."""

    # -- from the queue supervisor and Metadata -----------------------------------------------------

    @message
    def open(self, needed: NeededBodies) -> int:
        """From the supervisor, when the persistent store runs: finish the recovery.

        `needed` is the answer that the queue gave to `start`. Answered with the number of messages in the queue.
        """

    @message
    def recovered(self) -> None:
        """From the supervisor: all exchanges, queues and bindings of the virtual host are recovered.

        Only from then on may messages expire or exceed a limit: they may become dead letters, and before that the
        exchanges and queues that receive them might be missing (queue-and-store section 10.1).
        """

    @message
    def group_changed(self, row: QueueRow) -> None:
        """From Metadata of the same node, in the turn in which the row changes: the queue's new row, whose `group` says
        which members have its messages. The row has no address.
        """

    @message
    def reclaim(self, channel_id: str, ranges: list[ConfirmRange]) -> list[ConfirmRange]:
        """From channels that have lost the master of a mirrored queue: answered with those of these publishes that are
        in the queue.

        The new master answers when every replica has them. No replica has the publishes that the answer leaves out.
        Raises AmqpError if the master was recovered from its disk, which does not record who has published a message.
        """

    @message
    def dismiss(self) -> bool:
        """From the supervisor: this replica is not in the group of the queue any more. The replica ends and never
        answers, so the supervisor's ask ends with ProcessDown.
        """

    @message
    def node_met(self, node: str) -> None:
        """From Metadata of the same node: there is a connection to the node again, or the first one."""

    @message
    def ring(self, generation: int, integers: list[int], kinds: bytes, contents: list[bytes]) -> None:
        """From the replica with this generation on another node: a frame of the ring of a mirrored queue."""

    @message
    def follows(self, generation: int) -> None:
        """From a replica that is no member of the ring yet, to the master: it has all messages of the queue."""

    @message
    def standing(self) -> tuple[int, int, int]:
        """From the master of this mirrored queue when its ring stalls, and from operations that move the master:
        answered with the position up to which this member has received the stream, the one up to which it has stored
        it, and how many instructions wait for its neighbour.
        """

    @message
    def replica_status(self) -> InfoItems:
        """From operations on any node: how far this replica of a mirrored queue is (`Replication.status`)."""

    @message
    def sync_chunk(self, first: int) -> tuple[int, int, list[bytes]]:
        """From a learner of this mirrored queue: answered with messages from the number `first` on.

        The answer is the position of the stream at which the queue has these messages, the `first` of the next request,
        and the messages as runs.

        Raises AmqpError if this replica does not have all messages itself.
        """

    @message
    def sync_numbers(self) -> list[tuple[int, int, int]]:
        """From a learner of this mirrored queue, which waits: answered with each level of the queue, its oldest number,
        and the one that its next message gets.

        Raises AmqpError if this replica does not have all messages itself.
        """

    @message
    def sync_floors(self) -> tuple[int, list[int]]:
        """From a new learner of this mirrored queue: answered with the present reign, which is the epoch at which the
        present master became the master, and for each level with the lowest number with which that master may have
        begun.

        Raises AmqpError if this replica does not have all messages itself.
        """

    @message
    def sync_window(self, at: int) -> tuple[int, int, int, int, bytes, bytes]:
        """From a learner of this mirrored queue that has all messages: answered with a part of what the queue remembers
        for deduplication, from the place `at` on, which is 0 at first.

        The answer is the position of the stream at which the queue remembers that, how wide the window is, or 0 if the
        queue does not deduplicate, the generation of the window, the `at` of the next request or 0 at the end, and
        joined digests of persistent messages and of transient ones (`store/deduplication/window.py`).

        Raises AmqpError if this replica does not have all messages itself.
        """

    @message
    def copy_progress(self, generation: int, progress: InfoItems) -> int:
        """From a learner of this mirrored queue, with this generation, to the master: how far its copy is, when that
        changes, and each second at most. Answered how many messages the queue has.

        Raises AmqpError if this replica is not the master.
        """

    @message
    def copy_lags(self, generation: int) -> bool:
        """From a learner of this mirrored queue, with this generation: it has copied for a while without catching up,
        because clients publish faster than it copies. Take messages more slowly until it has all of them, or has ended.
        Answered whether this replica is the master and does so.
        """

    @message
    def sync_held(self, first: int, limit: int) -> tuple[int, int, int, list[tuple[int, int]], bytes]:
        """From a learner of this mirrored queue that has messages of an earlier life: answered with which of the
        numbers from `first` to before `limit` the queue has, so that the learner can compare them with its own. Both
        numbers are of one level.

        The answer is the position of the stream, the `first` of the next request, the number that the next message of
        the level gets, closed ranges of numbers, and a digest of the body sizes (`mirror/sync/held.py`).

        Raises AmqpError if this replica does not have all messages itself.
        """

    @message
    def synchronise(self, is_wanted: bool) -> bool:
        """From operations on any node, to a learner: copy the queue now, or stop copying if `is_wanted` is False.

        Answered False if there was nothing to do: the learner has everything already, or was not copying.
        """

    @message
    def quiesce(self) -> int:
        """From operations on any node, and from Metadata, to the master of this mirrored queue: come to rest, so that
        another member may become the master. Answered with the epoch when all members have everything. `go_on` must
        follow if none does.

        Raises AmqpError if this replica is not the master, or if the others do not have everything in time.
        """

    @message
    def handover(self, epoch: int, acknowledged: bytes) -> None:
        """From the old master of a mirrored queue, to the one of this epoch: the numbers of messages that consumers
        have acknowledged while the old master was at rest, as spans. The new master begins to serve then.
        """

    @message
    def go_on(self) -> None:
        """From the sender of `quiesce`: this member stays the master."""

    @message
    def serve_kept(self) -> None:
        """From the queue itself, which serves clients from now on: handle the messages that were kept while it did not,
        in slices and in their order, before any other message.
        """

    @message
    def set_queue_mode(self, mode: QueueMode) -> None:
        """From any node: use this mode until the process ends or its settings change."""

    @message
    def apply_settings(self, settings: QueueSettings) -> bool:
        """From Metadata of the same node: these settings replace all that the queue had. They are used from now on:
        messages that are in the queue keep their expiry, and messages above a lowered limit are dropped if the
        queue drops its head.

        Answered True. Refused with an AmqpError 406 if they differ in what is fixed when a queue is declared. A queue
        with a backlog changes its mode in steps.
        """

    @message
    def hold(self) -> bool:
        """From the supervisor, when the node stops: let no message leave by itself any more.

        Answered True when the dead letters of all messages rejected so far are sent. Only after that may the queues
        that receive them be asked to end.
        """

    @message
    def terminate(self) -> Terms | None:
        """From the supervisor, after `hold`: keep everything and end.

        Answered with the terms for the next start; None if the queue is not durable, is still starting, or must be
        scanned at the next start.
        """

    # -- from channels: publishing ------------------------------------------------------------------

    @message
    def publish(
        self, channel_id: str, entries: list[PublishEntry], user: str = "", floor: int = 0, repeated: int = 0
    ) -> None:
        """From channels: runs of messages, in the order in which the client published them. `user` is the client's
        user: only messages of the same user can be duplicates of one another (SP-30). `floor` and `repeated` are for
        mirrored queues: the channel awaits no answer for publishes with numbers below `floor` (CL-65), and may have
        sent those below `repeated` to another master, which may have delivered them.
        """

    @message
    def publish_at_most_once(self, entries: list[AtMostOnceEntry]) -> None:
        """From queues, this one included: dead letters that need not survive (AB-147). From channels: traced messages
        (AB-81).
        """

    @message
    def take_dead_letters(self, entries: list[AtMostOnceEntry], is_repeated: bool) -> bool:
        """From queues, this one included: dead letters. Answered when they are safe, on all replicas if this queue has
        several, or when the queue has refused them because it is full. `is_repeated`: they were sent before, and an
        earlier process of this queue may have taken them.

        Raises AmqpError if this queue is not open, or its node stops.
        """

    # -- from channels: consuming -------------------------------------------------------------------

    @message
    def consume(
        self,
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
        """From channels: register a consumer, or a reader if `arguments` ask for one.

        Answered True before the first delivery (AB-119); refused with an AmqpError. `is_limited`: the channel has a
        channel-wide prefetch.
        """

    @message
    def cancel(self, channel_id: str, tag: str) -> bool:
        """From channels: remove the consumer. Answered True after every delivery to it (AB-120)."""

    @message
    def get(self, channel_id: str, address: Address[ToChannel], no_ack: bool) -> Got:
        """From channels, for basic.get: take one message."""

    @message
    def get_several(self, channel_id: str, address: Address[ToChannel], no_ack: bool, count: int) -> list[Got]:
        """From channels of the same node, for `count` basic.get in a row: take up to `count` messages.

        Answered with what `get` would answer to each of them. The list ends with the first None; it may end earlier if
        the queue has to wait, and then the channel asks again.
        """

    @message
    def settle(self, channel_id: str, outcome: Outcome, pieces: list[Sequence[int]]) -> None:
        """From channels: deliveries with these ack tags are acknowledged, requeued or rejected."""

    @message
    def limiter_changed(self, channel_id: str, is_limited: bool) -> None:
        """From channels: the channel has a channel-wide prefetch from now on (AB-127), or no longer has one.

        Earlier grants do not count any more.
        """

    @message
    def limiter_grant(self, channel_id: str, count: int) -> None:
        """From channels, after `limiter_request`: up to `count` more messages may be delivered to the channel.

        The queue returns what it does not use with `limiter_return`.
        """

    # -- from pacers --------------------------------------------------------------------------------

    @message
    def leased(self, vhost: str, group: str, first: int, last: int, count: int, sharers: int) -> None:
        """From a pacer, after `lease`: these slots of a pace group are for messages of this queue (QP-106).

        Times are in ns from the moment at which this is received. `sharers` queues use the clock now.
        """

    @message
    def pacer_moved(self, vhost: str, group: str) -> None:
        """From a pacer that no longer holds this clock: ask the one that does."""

    # -- from channels that end ---------------------------------------------------------------------

    @message
    def channel_closing(self, channel_id: str) -> bool:
        """From channels that close in order: forget the channel.

        Answered True when its unacknowledged messages are back in the queue (AB-53).
        """

    # -- from channels and Metadata: the queue as a whole -------------------------------------------

    @message
    def counts(self) -> tuple[int, int]:
        """From channels, for queue.declare: answered with the ready messages and the consumers.

        It is a use of the queue: it restarts the queue's expiry (AB-93).
        """

    @message
    def purge(self) -> int:
        """From channels: remove all ready messages.

        Answered with their number when none of them can come back (C-16).
        """

    @message
    def delete(self, if_unused: bool, if_empty: bool) -> int:
        """From Metadata: end, unless a condition forbids it (AmqpError 406).

        Answered with the number of ready messages. A queue that is ending already gives no answer: the asker gets
        ProcessDown at its end.
        """

    @message
    def info(self) -> InfoItems:
        """From the node, for listings: the info items of the queue."""

    @message
    def reading_info(self) -> InfoItems:
        """From channels, for the catalogue: the info items that a range reader needs. The question does not count as a
        use of the queue, and reads nothing from the disk.
        """

    @message
    def look_up(self, numbers: list[int]) -> list[LookedUp]:
        """From operations: the messages with these numbers that are in the queue. They stay as they are."""

    @message
    def browse(self, first: int | None, most: int) -> Browsed | None:
        """From operations: up to `most` messages from this number on, or from the lowest one; None if the queue cannot
        be read by number. They stay as they are.
        """

    @message
    def peek(self, position: int) -> Peeked | None:
        """From operations: the ready message at this place, where 1 is the head; None if there is none, or if the queue
        cannot be read by number. It stays as it is.
        """

    @message
    def page_out(self) -> None:
        """From operations: move messages to the disk that need not be in memory."""

    @message
    def consumers_info(self) -> list[InfoItems]:
        """From the node, for listings: the info items of each consumer and of each reader."""


to_queue = ToQueue()
