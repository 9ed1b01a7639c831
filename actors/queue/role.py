"""`Role`: what a replica of a queue does with the messages that it receives.

A replica (`process.py`) is the process of one queue on one node: an address, a mailbox, timers, and the conversation
with journal, message stores and other threads. What the messages *mean* is the matter of its role. The replica calls
the methods below, one after the other; the role changes its own state and the backing queue, and writes everything else
that is to happen into the `Effects` that it shares with the replica. So a role needs no process, and neither does a
test of one.

A replica can get another role while it runs (`Queue.take_role`). Address, mailbox, backing queue, the table of channels
and the confirms that publishers await are the replica's and stay.

A method whose work grows with what a client chooses yields between two slices of it (`Slices`); the replica does
nothing else in between.

A method that may have to wait is a generator of `Steps`: it yields what it waits for, and the replica goes on with it
when that has come. It is given up, and the asker is refused, if the queue ends meanwhile or the replica gets another
role.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from ...routing.arguments.queue_settings import QueueSettings
    from ...runtime.coroutines import Slices
    from ...store.messages.message import FetchedMessages
    from ...store.queue.backing_queue import BackingQueue
    from ..contracts.channel import ConfirmRange, Outcome
    from ..contracts.disk import HandedEntry
    from ..contracts.info_items import InfoItems
    from ..contracts.pace import ClockName
    from ..contracts.queue import AtMostOnceEntry, PublishEntry
    from .consumers.consumer import ChannelRecord, Consumer
    from .master.deduplication import Deduplication


class Wait(enum.Enum):
    """What an operation of a role waits for."""

    #: The head of the queue is in memory, or the queue is empty.
    HEAD = "head"
    #: The messages that wait in the mailbox now had their turn.
    NEXT_TURN = "next turn"
    #: Everything that the queue has written is on the disk, or a full disk has refused it for a while.
    SYNCED = "synced"


Result = TypeVar("Result")

Steps = Generator[Wait, None, Result]


class Role(Protocol):
    """The interface between a replica and its role. Methods without a docstring handle the message of that name."""

    # -- life

    def apply(self, settings: QueueSettings) -> None:
        """Use these settings from now on. Called first of all, and whenever they change."""

    def deduplicate(self, deduplication: Deduplication | None) -> None:
        """Look for duplicates among publishes from now on, or do so no longer."""
        return

    def apply_to_consumers(self) -> Slices[None]:
        """Give the consumers what the settings ask for. Called when the settings have changed."""
        yield from ()

    def release(self) -> None:
        """Let messages leave from now on, because whatever may receive their dead letters is recovered.

        Called after each change of the settings as well, since new settings may make messages leave.
        """

    def use_backing(self, backing: BackingQueue) -> None:
        """Use this backing queue from now on, because the queue has become mirrored, or is mirrored no longer, or
        because it has got or lost its fair lanes. The new backing queue has the same messages as the old one, under the
        same numbers.
        """
        raise AssertionError("queues with this role are neither mirrored nor have lanes")

    def leave(self) -> None:
        """Forget the consumers, and requeue the messages that they have not acknowledged, because the replica gets
        another role.
        """

    def end(self) -> None:
        """Give back what other processes have lent, because the queue ends."""
        return

    @property
    def is_quiet(self) -> bool:
        """Whether no message that has left the queue waits, for the disk or for another turn, before it becomes a dead
        letter.
        """

    @property
    def awaits_targets(self) -> bool:
        """Whether dead letters are in flight to queues that have not taken them yet."""
        return False

    # -- turns

    def end_turn(self, is_held: bool) -> None:
        """Do what the messages of this turn, all of which have been handled, have made due.

        `is_held`: store what was published, but let nothing leave, since the node stops.
        """

    def confirmed(self, safe: Sequence[ConfirmRange]) -> None:
        """Note that these messages are safe, on all replicas if there are several. Called at the end of a turn."""
        return

    def timer_fired(self, name: str) -> None: ...

    def head_loaded(self) -> None:
        """Go on with what waited for the head of the queue: more of it is in memory."""

    # -- publishing

    #: Whether a publish may exceed a limit on the length of the queue. Then `make_room` is called before `publish`.
    is_bounded: bool = False

    def make_room(self) -> None:
        """Deliver what is due, after accepting what was published before it became due."""
        return

    def publish(self, record: ChannelRecord, entries: list[PublishEntry]) -> None: ...

    def publish_at_most_once(self, entries: list[AtMostOnceEntry]) -> None: ...

    def take_dead_letters(self, entries: list[AtMostOnceEntry], first: int, is_repeated: bool) -> None:
        """Take dead letters, which are numbered from `first` on (`PublisherConfirms.await_dead_letters`)."""

    def take_handed_over(self, entries: list[HandedEntry]) -> None:
        """Take dead letters from the journal."""

    def take_delayed(self) -> None:
        """Accept everything that was published before this: a message that asks the queue something must see it."""

    def rest(self) -> None:
        """Accept everything that was published before this, because nothing may be accepted for a while."""
        self.take_delayed()

    # -- consuming

    def deliver_due(self) -> None:
        """Deliver what a message of this turn has made deliverable."""

    def consume(self, consumer: Consumer) -> Steps[bool]: ...

    def cancel(self, channel_id: str, tag: str) -> None: ...

    def get(self, record: ChannelRecord | None) -> Steps[tuple[FetchedMessages | None, int]]:
        """`record` is None if the message needs no acknowledgement."""

    def settle(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> None: ...

    def settle_in_slices(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> Slices[None]:
        """As `settle`, for more messages than one turn may settle."""

    def sent(self, record: ChannelRecord, count: int) -> None: ...

    def limiter_changed(self, record: ChannelRecord, is_limited: bool) -> None: ...

    def limiter_grant(self, record: ChannelRecord, count: int) -> None: ...

    def leased(self, clock: ClockName, first: int, last: int, count: int, sharers: int) -> None:
        """A clock that the queue has asked has slots for it. See `ToQueue.leased`."""
        return

    def pacer_lost(self) -> None:
        """Ask the pacers for slots again: a pacer has ended, or no longer holds its clock, so an earlier request may be
        lost.
        """
        return

    def forget_channel(self, record: ChannelRecord) -> Slices[None]:
        """Handle the end of the channel."""

    def forget_consumers(self, most: int) -> bool:
        """Forget up to `most` consumers, because the queue ends and its channels are forgotten. Whether there are more.

        They get no cancel from this: their channels monitor the queue.
        """
        return False

    # -- the queue as a whole

    def use(self) -> None:
        """Note that a client has declared the queue again, which keeps it from expiring (AB-93)."""

    def counts(self) -> tuple[int, int]: ...

    def purge(self) -> Slices[int]: ...

    def info(self) -> InfoItems: ...

    def consumers_info(self) -> Iterator[InfoItems]:
        """The info items of each consumer. The consumers do not change while these are read."""
