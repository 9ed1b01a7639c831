"""`Options`: what a test does. The names are those of PerfTest's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_URI = "amqp://guest:guest@127.0.0.1:5672"

#: Bytes at the beginning of each body: a sequence number of 4 bytes, and the time of its publish, of 8.
STAMP_BYTES = 12


@dataclass(frozen=True, slots=True)
class Options:
    """What a test does. Unless a field has another meaning of 0, 0 is no limit; rates are messages a second."""

    uris: tuple[str, ...] = (DEFAULT_URI,)
    test_id: str = ""
    producers: int = 1
    consumers: int = 1
    producer_channels: int = 1
    consumer_channels: int = 1
    #: Empty: one queue with a name of the broker's, which ends with the test.
    queues: tuple[str, ...] = ()
    queue_arguments: Mapping[str, int | str | bool] = field(default_factory=dict)
    auto_delete: bool = True
    #: The exchange and the queues exist already.
    predeclared: bool = False
    exchange: str = "direct"
    exchange_type: str = "direct"
    #: None: drawn for the test; for the default exchange, the queue's name.
    routing_key: str | None = None
    #: Bytes of a body; each has at least `STAMP_BYTES`.
    size: int = 0
    persistent: bool = False
    mandatory: bool = False
    #: Publishes of one channel that may wait for their confirms; None: no confirms.
    confirm: int | None = None
    #: Of each producer; None: no limit.
    rate: float | None = None
    #: Of each consumer; None: no limit.
    consumer_rate: float | None = None
    qos: int = 0
    global_qos: int = 0
    auto_ack: bool = False
    #: Deliveries that one acknowledgement covers.
    multi_ack_every: int = 1
    #: Seconds that a consumer works on each message.
    consumer_latency: float = 0.0
    #: Seconds; how long the test runs.
    time: float = 0.0
    #: Messages that each producer publishes.
    producer_messages: int = 0
    #: Messages that each consumer receives.
    consumer_messages: int = 0
    #: Seconds between two lines of the report.
    interval: float = 1.0
    #: Whether bodies carry wall-clock times, which machines have in common, instead of the monotonic clock of one.
    use_wall_clock: bool = False
