"""Scenarios of RPC: a client sends a request, and a server answers it."""

from __future__ import annotations

from collections.abc import Callable

from ...amqp.constants import FRAME_HEADER
from ...amqp.frames import split_frames
from ...amqp.methods import BasicDeliver, QueueDeclare, QueueDeclareOk
from ...amqp.properties import Properties, decode_properties, encode_properties
from ..load.broker import LoadClient
from .scenario import QUEUE, Stretch, Stretches, consume, declare, publish

#: The name that a client consumes from to have its answers without a queue.
DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"


class Server(LoadClient):
    """A client that reads the properties of a message, too."""

    def next_properties(self) -> Properties:
        """The properties of the next message. What arrives with it is dropped."""
        while True:
            frames, self._unread = split_frames(self._unread)
            for kind, _, payload in frames:
                if kind == FRAME_HEADER:
                    # Class, weight and size of the body come before them.
                    return decode_properties(payload[12:])
            self._unread += self._received()


def direct_replies(address: str) -> Stretches:
    calls = 20
    with LoadClient(address) as client, Server(address) as server:
        declare(server, QUEUE)
        consume(server, QUEUE)
        consume(client, DIRECT_REPLY_TO)
        # The broker puts the address of this client's channel in place of the name, and it stays the same.
        client.write(publish(QUEUE, encode_properties(Properties(reply_to=DIRECT_REPLY_TO)), body=b""))
        address_of_client = server.next_properties().reply_to
        assert address_of_client is not None
        yield Stretch(calling(client, server, DIRECT_REPLY_TO, address_of_client, calls), calls)


def replies_by_queue(address: str) -> Stretches:
    with LoadClient(address) as client, LoadClient(address) as server:
        declare(server, QUEUE)
        consume(server, QUEUE)
        declared = client.call(QueueDeclare(exclusive=True))
        assert isinstance(declared, QueueDeclareOk)
        consume(client, declared.queue)
        yield Stretch(calling(client, server, declared.queue, declared.queue, 1), 1)


def calling(client: LoadClient, server: LoadClient, reply_to: str, answered_to: str, calls: int) -> Callable[[], None]:
    """A step in which the client sends this many requests at a time, and the server then answers all of them."""
    ids = [str(number) for number in range(calls)]
    requests = b"".join(
        publish(QUEUE, encode_properties(Properties(reply_to=reply_to, correlation_id=name))) for name in ids
    )
    answers = b"".join(publish(answered_to, encode_properties(Properties(correlation_id=name))) for name in ids)

    def step() -> None:
        client.write(requests)
        server.wait_for(BasicDeliver, calls)
        server.write(answers)
        client.wait_for(BasicDeliver, calls)

    return step
