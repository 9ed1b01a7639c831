"""TODO: what the processes of this folder receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...routing.rows import QueueRow
    from ...runtime.contract import Address
    from ...store.messages.message_ids import StoredSpan
    from ..channel.contract import ToChannel
    from ..node.context import NodeContext
    from .durability import Recovery, VhostStorage


class ToQueue(Contract):
    """What `Queue` (`actors/queue/process.py`) receives."""

    @message
    def start(
        self, context: NodeContext, row: QueueRow, storage: VhostStorage | None = None, recovery: Recovery | None = None
    ) -> bool | dict[int, list[StoredSpan]]:
        """Answered True; with a `recovery` by which persistent bodies are wanted, number -> `StoredSpan`s, and then it wants to hear `open` before all else."""

    @message
    def open(self, wanted: dict[int, list[StoredSpan]]) -> int:
        """The persistent store runs: go on recovering with what `start` was answered. Answered with the messages there are."""

    @message
    def recovered(self) -> None:
        """Exchanges, queues and bindings are all there: only now may messages leave by themselves, for they may become dead letters (queue-and-store section 10.1)."""

    @message
    def bump(self, peer: str, amount: int) -> None:
        """TODO"""

    @message
    def sent(self, channel_id: str, count: int) -> None:
        """The connection wrote `count` of this channel's deliveries to its socket (FC-32)."""

    @message
    def channel_closing(self, channel_id: str) -> bool:
        """The channel ends in order: when it has the answer its messages are back in the queue (AB-53)."""

    @message
    def publish(self, channel_id: str, entries: list[tuple]) -> None:
        """Entries `(origin, contents, body_bytes, first_confirm, shared)`, one credit per content."""

    @message
    def publish_at_most_once(self, entries: list[tuple]) -> None:
        """Dead letters of another queue, or of this one (AB-147), and traces (AB-81): entries `(origin, contents, body_bytes, shared)`, neither credited nor confirmed."""

    @message
    def limiter_changed(self, channel_id: str, is_limited: bool) -> None:
        """The channel has a channel-wide prefetch from now on, or none any more."""

    @message
    def limiter_grant(self, channel_id: str, count: int) -> None:
        """TODO"""

    @message
    def expire_more(self) -> None:
        """TODO"""

    @message
    def batch_lost(self, by: str) -> None:
        """TODO"""

    @message
    def durable(self, position: int) -> None:
        """The journal has synced what this queue wrote up to there."""

    @message
    def stored(self, kind: str, ids: list[bytes]) -> None:
        """A message store has these bodies on disk, or need not write them any more."""

    @message
    def flush_synced(self) -> bool:
        """For the journal: have everything in segments, and these synced."""

    @message
    def synced(self, position: int) -> None:
        """TODO"""

    @message
    def loaded(self) -> None:
        """TODO"""

    @message
    def flushed(self) -> None:
        """TODO"""

    @message
    def go_on_paging(self) -> None:
        """TODO"""

    @message
    def ram_duration_target(self, seconds: float) -> None:
        """The memory monitor wants less in memory, or allows more."""

    @message
    def next_turn(self) -> bool:
        """To itself, for what goes on when others have had their turn."""

    @message
    def set_queue_mode(self, mode: str) -> None:
        """`default` or `lazy`, from now on; a queue with a backlog gets there in steps."""

    @message
    def hold(self) -> bool:
        """The node stops: nothing leaves by itself any more. Answered True when all dead letters are on their way; only then may the queues they go to be told to end."""

    @message
    def terminate(self) -> dict[str, Any] | None:
        """The node stops: keep everything, answer with the terms for its next start, and end. One that is still starting has none."""

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
        arguments: Any,
        user: str,
    ) -> bool:
        """Registers a consumer; the answer reaches the channel before the first delivery (AB-119)."""

    @message
    def cancel(self, channel_id: str, tag: str) -> bool:
        """TODO"""

    @message
    def get(self, channel_id: str, address: Address[ToChannel], no_ack: bool) -> tuple[tuple | None, int]:
        """`(delivery or None, ready messages left)`."""

    @message
    def settle(self, channel_id: str, outcome: str, pieces: list[Sequence[int]]) -> None:
        """`pieces` are sequences of ack tags; outcome `ack`, `requeue` or `reject`."""

    @message
    def counts(self) -> tuple[int, int]:
        """Ready messages and consumers, for a declare: a use of the queue (AB-93)."""

    @message
    def purge(self) -> int:
        """Answered when nothing of what is purged can come back (C-16)."""

    @message
    def delete(self, if_unused: bool, if_empty: bool) -> int:
        """Ends the queue unless the conditions forbid it; Metadata takes it out of the routing table. One that is ending answers by its end."""

    @message
    def info(self) -> dict[str, Any]:
        """TODO"""

    @message
    def consumers_info(self) -> list[dict[str, Any]]:
        """TODO"""


to_queue = ToQueue()
