"""`Mirror`: the role of a replica that follows the master of its queue.

It has no clients. Channels reach the master by the queue's row. A channel whose message reaches a mirror has an older
row, in which this replica was still the master, or a newer one, in which it will be. The message is dropped, as if it
had been sent to a process that has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..actors.queue.listing import replica_items
from ..actors.queue.role import Role, Steps
from ..routing.phrases import no_queue

if TYPE_CHECKING:
    from ..actors.contracts.channel import Outcome
    from ..actors.contracts.disk import HandedEntry
    from ..actors.contracts.info_items import InfoItems
    from ..actors.contracts.queue import AtMostOnceEntry, PublishEntry
    from ..actors.queue.consumers.consumer import ChannelRecord, Consumer
    from ..actors.queue.replica_state import ReplicaState
    from ..routing.arguments.queue_settings import QueueSettings
    from ..runtime.coroutines import Slices
    from ..store.messages.message import FetchedMessages
    from .backing.mirrored_queue import MirroredQueue


class Mirror(Role):
    """See the module."""

    __slots__ = ("_backing", "_state")

    def __init__(self, state: ReplicaState, settings: QueueSettings, backing: MirroredQueue) -> None:
        self._state = state
        self._backing = backing

    def apply(self, settings: QueueSettings) -> None:
        """Do nothing: only the master applies limits, expiry and dead-lettering."""

    def release(self) -> None:
        """Do nothing: no message leaves a mirror by itself."""

    def leave(self) -> None:
        """Do nothing: a mirror has delivered nothing, so it has nothing to give back."""

    @property
    def is_quiet(self) -> bool:
        return True

    def end_turn(self, is_held: bool) -> None:
        """Do nothing: the replication handles what the ring has brought."""

    def timer_fired(self, name: str) -> None: ...

    def head_loaded(self) -> None:
        self._backing.remove_more()

    def publish(self, record: ChannelRecord, entries: list[PublishEntry]) -> None: ...

    def publish_at_most_once(self, entries: list[AtMostOnceEntry]) -> None: ...

    def take_dead_letters(self, entries: list[AtMostOnceEntry], first: int, is_repeated: bool) -> None: ...

    def take_handed_over(self, entries: list[HandedEntry]) -> None: ...

    def take_delayed(self) -> None: ...

    def deliver_due(self) -> None: ...

    def consume(self, consumer: Consumer) -> Steps[bool]:
        self._refuse()

    def cancel(self, channel_id: str, tag: str) -> None: ...

    def get(self, record: ChannelRecord | None) -> Steps[tuple[FetchedMessages | None, int]]:
        self._refuse()

    def settle(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> None: ...

    def settle_in_slices(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> Slices[None]:
        yield from ()

    def sent(self, record: ChannelRecord, count: int) -> None: ...

    def limiter_changed(self, record: ChannelRecord, is_limited: bool) -> None: ...

    def limiter_grant(self, record: ChannelRecord, count: int) -> None: ...

    def forget_channel(self, record: ChannelRecord) -> Slices[None]:
        yield from ()

    def use(self) -> None: ...

    def counts(self) -> tuple[int, int]:
        return self._backing.totals().depth, 0

    def purge(self) -> Slices[int]:
        self._refuse()

    def info(self) -> InfoItems:
        return {**replica_items(self._state, ()), "consumers": 0}

    def consumers_info(self) -> Iterator[InfoItems]:
        return iter(())

    def _refuse(self) -> NoReturn:
        row = self._state.row
        raise no_queue(row.vhost, row.name)
