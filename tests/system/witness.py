"""A well-behaved client that shares the broker with badly behaved ones."""

from __future__ import annotations

import time

from warren.amqp.methods import BasicGet, BasicGetOk, QueueDeclare, QueueDeclareOk

from .wire import Address, Wire


class Witness:
    """An open connection with a queue. `check` proves that it and new clients are served."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.wire = Wire.open(address)
        self.wire.open_channel(1)
        self.queue = self.wire.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue

    def round_trip(self) -> float:
        """Publish a message and get it back; return the seconds that it took."""
        start = time.monotonic()
        self.wire.publish(1, b"still there?", routing_key=self.queue)
        self.wire.call(1, BasicGet(queue=self.queue, no_ack=True), BasicGetOk)
        assert self.wire.content(1)[1] == b"still there?"
        return time.monotonic() - start

    def check(self) -> None:
        self.round_trip()
        with Wire.open(self.address) as newcomer:
            newcomer.open_channel(1)
            newcomer.close()

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.hang_up()
