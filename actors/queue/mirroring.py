"""How the process of a queue becomes a replica of a mirrored queue, without knowing how replicas work together.

`Mirroring` comes with the node's context. It makes one `Replication` for each replica. The replication exchanges
messages with the other replicas, and decides what the messages of the ring mean and when the replica is the master.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

from ...routing.rows import Member, QueueRow

if TYPE_CHECKING:
    from ...definitions.definitions import Definitions
    from ...routing.arguments.queue_settings import QueueSettings
    from ...runtime.contract import Address, Answer, C, ProcessMessage, Sender
    from ...runtime.exit_reason import ExitReason
    from ...runtime.signal import Signal
    from ...settings import Settings
    from ...store.deduplication.window import Window
    from ...store.queue.backing_queue import BackingQueue
    from ..context.lease import Lease
    from ..context.peers import Peers
    from ..context.replica_limits import ReplicaLimits
    from ..contracts.info_items import InfoItems
    from ..contracts.metadata import ToMetadata
    from ..contracts.resources import ToAlarms
    from .disk.disk_loader import DiskLoader
    from .master.deduplication import Deduplication
    from .replica_state import ReplicaState
    from .role import Role


#: The payloads of the timers of a replication. When one fires, the replication does this, in the same order: send the
#: other members what they may forget; attach again to a neighbour that has not answered; check whether the node has its
#: lease again; check whether the ring makes progress; forget the publishes of channels that this replica does not know;
#: wait no longer for the old master; block publishers, or unblock them, so that a learner can finish its copy.
DONE_TIMER, RETRY_TIMER, LEASE_TIMER, STALL_TIMER, ORPHAN_TIMER, HANDOVER_TIMER, COPY_TIMER = RING_TIMERS = (
    "ring done",
    "ring retry",
    "ring lease",
    "ring stall",
    "ring orphans",
    "ring handover",
    "ring copy",
)

#: The peers under whose names a replication blocks the queue's credit. The first blocks it while the mirrors are too
#: far behind, the second for a part of the time in which a learner copies the queue and does not catch up with its
#: publishers.
RING_PEER, COPY_PEER = "ring", "copy"


class ReplicaContext(Protocol):
    """What the replication of a queue uses of the node's context."""

    @property
    def alarms(self) -> Address[ToAlarms]: ...

    @property
    def definitions(self) -> Definitions: ...

    @property
    def lease(self) -> Lease: ...

    @property
    def node_name(self) -> str: ...

    @property
    def metadata(self) -> Address[ToMetadata]: ...

    @property
    def peers(self) -> Peers: ...

    @property
    def replica_limits(self) -> ReplicaLimits: ...

    @property
    def settings(self) -> Settings: ...


class WindowKeeper(Protocol):
    """What begins, resizes and ends the window of a replica for deduplication."""

    def resize(self, size: int) -> None:
        """Remember the last `size` messages from now on; 0: none."""

    def dispose(self, window: Window) -> None:
        """Free a window that is not used any more, in steps."""


class Replica(Protocol):
    """The process of a replica, as its replication sees it."""

    row: QueueRow
    role: Role
    state: ReplicaState
    backing: BackingQueue

    @property
    def remembering(self) -> WindowKeeper: ...

    def send(self, address: Address[C], message: ProcessMessage[C, object]) -> None: ...

    def ask(
        self, address: Address[C], message: ProcessMessage[C, Answer], timeout: float | None = None
    ) -> Awaitable[Answer]: ...

    def reply(self, sender: Sender, value: object) -> None: ...

    def reply_error(self, sender: Sender, error: Exception) -> None: ...

    def spawn(self, coroutine: Coroutine[object, None, object]) -> None: ...

    def start_timer(self, seconds: float, payload: object = None) -> int: ...

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> Awaitable[None]: ...

    def next_turn(self) -> Awaitable[None]: ...

    def new_signal(self) -> Signal:
        """A signal for which coroutines of this process can wait."""

    async def synced(self) -> None:
        """Return when everything that was written is on the disk, or a full disk has refused it for a while."""

    @property
    def context(self) -> ReplicaContext: ...

    def register(self, name: str) -> None: ...

    @property
    def member(self) -> Member | None: ...

    @property
    def loader(self) -> DiskLoader | None:
        """Reads from the disk; None for a queue in memory."""

    def credit_freed(self) -> None:
        """Continue with paging, which pauses while the queue has no credit."""

    def stop(self, reason: ExitReason) -> None: ...

    def become_master(self) -> None:
        """Serve the clients of the queue from now on."""

    def rest(self) -> None:
        """Keep what clients send from now on, without handling it (`Replication.is_resting`)."""

    def go_on(self) -> None:
        """Handle the messages that were kept, and serve clients again."""

    def acknowledged(self) -> list[int]:
        """The numbers of the messages that consumers have acknowledged since this master was at rest."""


class Replication(Protocol):
    """What makes a process a replica of a mirrored queue."""

    @property
    def backing(self) -> BackingQueue:
        """The backing queue that the role uses, around that of the process."""

    def role(self) -> Callable[[ReplicaState, QueueSettings], Role] | None:
        """The role of a replica that is not the master; None for the master."""

    def change_row(self) -> None:
        """Use the changed row of the queue, of whose group this replica is still a member."""

    def end(self) -> list[tuple[int, int]]:
        """Leave the queue to this replica, which goes on alone because the queue is not mirrored any more. Returns the
        closed ranges of messages that are safe here and whose confirms have waited for other replicas.
        """

    def receive(
        self, sender: Sender, generation: int, integers: list[int], kinds: bytes, contents: list[bytes]
    ) -> None:
        """Handle a frame of the ring that the member with this generation has sent."""

    @property
    def serves(self) -> bool:
        """Whether this replica is the master and has begun to serve clients."""

    def reclaim(self, sender: Sender, channel_id: str, ranges: list[tuple[int, int]]) -> None:
        """Answer a channel which of these publishes this replica has taken, as soon as they are safe.

        The answer is an AmqpError if this replica was recovered from the disk, which does not record who has published
        a message.
        """

    def answered(self, channel_id: str, floor: int) -> None:
        """Note that the channel awaits no answer for publishes below `floor`."""

    def channel_gone(self, channel_id: str, is_certain: bool) -> None:
        """Note that the channel has ended, or, if that is not certain, that the connection to its node was lost."""

    def confirms_sent(self) -> None:
        """Note that the confirms of this turn have been sent."""

    def node_met(self, node: str) -> None:
        """Go on with the members on a node to which there is a connection again."""

    def copy_lags(self, generation: int) -> bool:
        """Note that a learner copies the queue and does not catch up with its publishers (`ToQueue.copy_lags`)."""

    def copy_progress(self, generation: int, progress: InfoItems) -> int:
        """Note how far the copy of a learner is (`ToQueue.copy_progress`)."""

    @property
    def copies(self) -> list[InfoItems]:
        """What each learner of this master has reported of its copy, with the name of its node."""

    def follows(self, generation: int) -> None:
        """Note that a learner has all messages of the queue."""

    async def chunk(self, first: int) -> tuple[int, int, list[bytes]]:
        """Messages with numbers from `first` on, for a learner (`ToQueue.sync_chunk`).

        Raises AmqpError if it has to ask another member.
        """

    async def held(self, first: int, limit: int) -> tuple[int, int, int, list[tuple[int, int]], bytes]:
        """Which messages there are below `limit`, for a learner that compares them (`ToQueue.sync_held`).

        Raises AmqpError as `chunk` does.
        """

    def numbers(self) -> list[tuple[int, int, int]]:
        """The oldest numbers that the queue has (`ToQueue.sync_numbers`). Raises AmqpError as `chunk` does."""

    def floors(self) -> tuple[int, list[int]]:
        """The lowest numbers with which a master of the present reign may have begun (`ToQueue.sync_floors`). Raises
        AmqpError as `chunk` does.
        """

    def window(self, at: int) -> tuple[int, int, int, int, bytes, bytes]:
        """A part of what the queue remembers for deduplication (`ToQueue.sync_window`). Raises AmqpError as `chunk`
        does.
        """

    def remembers(self, deduplication: Deduplication, size: int) -> None:
        """Note that the replica remembers the last `size` publishes from now on; 0: it no longer deduplicates."""

    def synchronise(self, is_wanted: bool) -> bool:
        """Have a learner copy the queue, or stop that (`ToQueue.synchronise`)."""

    async def quiesce(self) -> int:
        """Have the master come to rest (`ToQueue.quiesce`)."""

    @property
    def is_resting(self) -> bool:
        """Whether the master is at rest or about to be, so that nothing may be added to its stream."""

    @property
    def takes_acks(self) -> bool:
        """Whether the master, although it is about to be at rest, still takes acknowledgements."""

    def go_on(self) -> None:
        """Go on as the master after coming to rest."""

    def take_handover(self, epoch: int, acknowledged: bytes) -> None:
        """Become the master of this epoch, without the acknowledged messages (`ToQueue.handover`)."""

    def standing(self) -> tuple[int, int, int]:
        """How far this member of the ring is (`ToQueue.standing`)."""

    def status(self) -> InfoItems:
        """How far this replica is, for operators.

        received    the position up to which it has received the stream
        stored      the position up to which it has stored the stream safely; at the master, up to which all others have
        waiting     how many instructions have not been sent to its right neighbour yet
        messages    how many messages it has
        stage       `following` if it has all messages, `copying` while it gets them, `comparing` while it finds out
                    which of its own it may keep, `waiting` while it does none of these

        A learner adds the items of `CopyProgress` (`mirror/sync/copy_progress.py`).
        """

    def timer_fired(self, payload: str) -> None:
        """Handle one of the `RING_TIMERS` of the process, which the replication has started."""

    def process_ended(self) -> None:
        """Give back what this replica has of the node's `replica_limits`, because its process has ended."""

    def end_turn(self) -> None:
        """Send the other replicas what the role has done in this turn, and find out which messages may be confirmed."""


class Mirroring(Protocol):
    """Makes the replications of a node."""

    def replication(self, replica: Replica) -> Replication:
        """The replication of a process whose row has a group with its `member`."""
