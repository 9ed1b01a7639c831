"""TODO: what the processes of this folder receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from ...amqp.errors import AmqpError
    from ...amqp.method import Method
    from ..node.context import NodeContext

Notice = tuple[Any, str, str, int]


class ToChannelOwner(Contract):
    """What the owner of a channel receives from it: a client's `Connection`, or the embedded program's `DirectClient`."""

    @message
    def output(self, data: bytes, notices: list[Notice]) -> None:
        """Bytes for the client. Each notice counts the deliveries of one queue in them, see `Notice`."""

    @message
    def bump(self, channel_id: str, amount: int) -> None:
        """Credit for that many more publishes."""

    @message
    def pause_input(self, number: int, paused: bool) -> None:
        """The channel has too many methods waiting, or few again (FC-34)."""

    @message
    def channel_error(self, number: int, code: int, text: str) -> None:
        """The channel ends with an error; its channel.close follows as output."""

    @message
    def channel_failed(self, number: int, error: AmqpError) -> None:
        """A connection exception raised by the channel (AB-55)."""

    @message
    def channel_closed(self, channel_id: str, crossed: bool, data: bytes, notices: list[Notice]) -> None:
        """The channel is done, and `data` is the last of its output. `crossed`: both sides sent close, so the client still owes a close-ok, unless it has come already."""


class ToDirectClient(ToChannelOwner):
    """What `DirectClient` (`actors/channel/direct_client.py`) receives."""

    @message
    def start(self, context: NodeContext) -> None:
        """TODO"""

    @message
    def publish(self, vhost: str, exchange: str, routing_key: str, props: bytes, body: bytes, mandatory: bool) -> bool:
        """TODO"""

    @message
    def get(self, vhost: str, queue: str, consume: bool) -> tuple | None:
        """TODO"""

    @message
    def call(self, vhost: str, method: Any) -> Method:
        """TODO"""

    @message
    def forget_vhost(self, vhost: str) -> None:
        """It is deleted: what is asked of it is refused, and its channel ends (AB-170)."""


class ToChannel(Contract):
    """What `Channel` (`actors/channel/process.py`) receives."""

    @message
    def start(
        self,
        context: NodeContext,
        channel_id: str,
        connection_id: str,
        connection_name: str,
        number: int,
        vhost: str,
        user: str,
        frame_max: int,
        cancel_notify: bool,
    ) -> None:
        """TODO"""

    @message
    def input(self, events: list[tuple]) -> None:
        """TODO"""

    @message
    def shut_down(self) -> None:
        """The connection ends: do what the client sent before, give back everything, then answer (AB-28)."""

    @message
    def confirm(self, queue_id: str, ranges: list[tuple[int, int]]) -> None:
        """TODO"""

    @message
    def refuse(self, queue_id: str, ranges: list[tuple[int, int]]) -> None:
        """TODO"""

    @message
    def deliver(self, queue_id: str, consumer_tag: str, runs: list[tuple]) -> None:
        """TODO"""

    @message
    def reading_ended(self, queue_id: str, consumer_tag: str, error: AmqpError | None) -> None:
        """A consumer that reads by number has all it asked for, or cannot have it."""

    @message
    def reply_to(self, key: str, exchange: str, routing_key: str, contents: list[bytes]) -> None:
        """TODO"""

    @message
    def has_reply_key(self, key: str) -> bool:
        """Whether the direct replies of that name reach somebody here (AB-143)."""

    @message
    def limiter_request(self, queue_id: str, wanted: int) -> None:
        """TODO"""

    @message
    def limiter_return(self, queue_id: str, count: int) -> None:
        """TODO"""

    @message
    def bump(self, peer: str, amount: int) -> None:
        """TODO"""

    @message
    def info(self) -> dict[str, Any]:
        """rabbitmqctl's info items of this channel."""


to_channel_owner = ToChannelOwner()
to_direct_client = ToDirectClient()
to_channel = ToChannel()
