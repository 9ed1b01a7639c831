"""Direct reply-to: replies that reach a client without a queue (AB-140 to AB-143).

A client consumes from `amq.rabbitmq.reply-to` and publishes requests with that reply-to; the broker replaces it by
`amq.rabbitmq.reply-to.<system>.<channel id>.<key>`. A message published to that name through the default exchange goes
straight from the publishing channel to the consuming one, which may be on another node. The system finds the node, and
whether it is still the same run of that node; the channel id finds the process; the key makes the name unguessable.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Container

from ...amqp import methods
from ...amqp.errors import AmqpError
from ...amqp.frames import method_frame
from ...routing.phrases import generated_name
from ...runtime.contract import Address
from ...runtime.process import Process
from ..context.node_context import NodeContext
from ..contracts.channel import ChannelConfig, ToChannel
from ..contracts.metadata import to_metadata
from .client_output import ClientOutput

REPLY_TO = "amq.rabbitmq.reply-to"
REPLY_TO_PREFIX = REPLY_TO + "."


def parse_reply_key(name: str) -> tuple[str, str, str]:
    """The parts of a reply consumer's name: the short name of its node's system, the channel's id, and the secret key.

    A short name has no dot, but a channel id may have one. Of any other name at least one part is empty or unknown, so
    no channel is found and the reply is dropped.
    """
    rest, _, key = name.removeprefix(REPLY_TO_PREFIX).rpartition(".")
    system, _, channel_id = rest.partition(".")
    return system, channel_id, key


class ReplyConsumer:
    """The consumer of direct replies of one channel, which has at most one."""

    __slots__ = ("_config", "_context", "_output", "_process", "key", "tag")

    def __init__(self, process: Process, context: NodeContext, config: ChannelConfig, output: ClientOutput) -> None:
        self._process = process
        self._context = context
        self._config = config
        self._output = output
        #: The consumer tag; None while there is no consumer.
        self.tag: str | None = None
        self.key = ""

    async def consume(self, method: methods.BasicConsume, taken_tags: Container[str]) -> None:
        """Handle basic.consume from `amq.rabbitmq.reply-to`; `taken_tags` are the tags of ordinary consumers."""
        process, channel_id = self._process, self._config.channel_id
        if self.tag is not None:
            raise AmqpError(406, "reply consumer already set")
        if not method.no_ack:
            raise AmqpError(406, "reply consumer cannot acknowledge")
        tag = method.consumer_tag or generated_name("amq.ctag", process.random_bytes(16))
        if tag in taken_tags:
            raise AmqpError(530, f"attempt to reuse consumer tag '{tag}'")
        self.tag = tag
        self.key = urlsafe_b64encode(process.random_bytes(16)).decode("ascii").rstrip("=")
        await process.ask(self._context.metadata, to_metadata.register_reply(channel_id, process.myAddress))
        if not method.nowait:
            self._output.put_method(methods.BasicConsumeOk(tag))

    async def cancel(self) -> None:
        self.tag, self.key = None, ""
        await self._process.ask(self._context.metadata, to_metadata.unregister_reply(self._config.channel_id))

    def has_key(self, key: str) -> bool:
        return self.tag is not None and key == self.key

    def name(self) -> str:
        """The name that replaces the reply-to `amq.rabbitmq.reply-to` of a request (AB-141)."""
        if self.tag is None:
            raise AmqpError(406, "fast reply consumer does not exist")
        return f"{REPLY_TO_PREFIX}{self._context.peers.own}.{self._config.channel_id}.{self.key}"

    def channel(self, system: str, channel_id: str) -> Address[ToChannel] | None:
        """The address of the channel with this id, which may be on another node; None if there is none."""
        if system == self._context.peers.own:
            found: Address[ToChannel] | None = self._context.routing.reply_channel(channel_id)
            return found
        return self._context.peers.channel(system, channel_id)

    def deliver(self, exchange: str, routing_key: str, contents: list[bytes], next_tag: int) -> None:
        """Append replies to the output, all with the delivery tag `next_tag`, which they do not use up (AB-142)."""
        if self.tag is None:
            return
        output = self._output
        frame = method_frame(output.number, methods.BasicDeliver(self.tag, next_tag, False, exchange, routing_key))
        for content in contents:
            output.frames.append(frame)
            output.put_content(content)
