"""`Scenario` and `Stretch`: one operation as a client repeats it. Also the names and frames that scenarios share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from ...amqp.fields import table_from
from ...amqp.frames import build_content, method_frame
from ...amqp.methods import BasicConsume, BasicPublish, ExchangeDelete, QueueDeclare, QueueDelete
from ...amqp.properties import NO_PROPERTIES, Properties, encode_properties
from ..load.broker import FRAME_MAX, LoadClient

QUEUE = "bench.operations"
#: The second queue of a scenario that needs two, such as that of its dead letters.
OTHER_QUEUE = "bench.operations.other"
#: The queues of a fanout.
FANOUT_QUEUES = [f"bench.operations.fanout.{number}" for number in range(10)]
EXCHANGE = "bench.operations"
BODY = bytes(200)
PERSISTENT = encode_properties(Properties(delivery_mode=2))


class Stretch(NamedTuple):
    """A part of a scenario that is measured."""

    #: Does some operations, and returns when the broker has answered or delivered what shows that they are done.
    step: Callable[[], None]
    #: How many operations a step does.
    operations: int
    #: How often the step can be repeated before the scenario has to prepare again; None if there is no limit.
    most: int | None = None


Stretches = Generator[Stretch, None, None]
#: Prepares the broker at this address, and yields a stretch after each preparation. The time between two stretches is
#: not measured.
Scenario = Callable[[str], Stretches]


def declare(client: LoadClient, queue: str, durable: bool = False, arguments: Mapping[str, Any] | None = None) -> None:
    client.call(QueueDeclare(queue=queue, durable=durable, arguments=table_from(arguments or {})))


def consume(client: LoadClient, queue: str, no_ack: bool = True) -> None:
    client.call(BasicConsume(queue=queue, no_ack=no_ack))


def publish(
    routing_key: str, props: bytes = NO_PROPERTIES, exchange: str = "", mandatory: bool = False, body: bytes = BODY
) -> bytes:
    """The frames of a message that is published on channel 1."""
    method = BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    return method_frame(1, method) + build_content(1, props, body, FRAME_MAX)


def clean(address: str) -> None:
    """Delete the queues and the exchange that scenarios declare, of an interrupted run too."""
    with LoadClient(address) as client:
        for queue in (QUEUE, OTHER_QUEUE, *FANOUT_QUEUES):
            client.call(QueueDelete(queue=queue))
        client.call(ExchangeDelete(exchange=EXCHANGE))
