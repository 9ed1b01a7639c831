"""`Witness`: the other client. 100 times a second it publishes a message to a queue of its own, which it consumes, or
asks how many messages are in that queue.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

import pika  # type: ignore[import-untyped]

#: Seconds between two messages.
INTERVAL = 0.01


class Waits(NamedTuple):
    """Seconds that the messages of a witness took from publish to delivery, or its questions to their answers."""

    count: int
    p999: float
    longest: float


class Witness:
    """A client in a process of its own. `stop` returns its waits since `begin`."""

    def __init__(self, port: int, publishes: bool = True) -> None:
        self._pipe, far = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_witness, args=(port, far, publishes), daemon=True)
        self._process.start()
        self._pipe.recv()

    def begin(self) -> None:
        """Forget the waits so far."""
        self._pipe.send("begin")

    def stop(self) -> Waits:
        self._pipe.send("stop")
        waits: Waits = self._pipe.recv()
        self._process.join()
        return waits


def _witness(port: int, pipe: Connection, publishes: bool) -> None:
    waits: list[float] = []

    def received(channel: object, method: object, properties: object, body: bytes) -> None:
        waits.append(time.monotonic() - float(body))

    with pika.BlockingConnection(pika.ConnectionParameters(port=port, heartbeat=0)) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_consume(queue, received, auto_ack=True)
        due = time.monotonic()
        sent = 0
        order = ""
        while order != "stop":
            began = time.monotonic()
            if publishes:
                channel.basic_publish("", queue, repr(began).encode())
            else:
                channel.queue_declare(queue, passive=True)
                waits.append(time.monotonic() - began)
            sent += 1
            due = max(due + INTERVAL, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                connection.process_data_events(left)
            if sent == 20:
                pipe.send("ready")
            if sent >= 20 and pipe.poll():
                order = pipe.recv()
                if order == "begin":
                    # A message that is on its way counts: it may meet the beginning of the abuse.
                    waits.clear()
        while len(waits) < 1:
            connection.process_data_events(1)
        waits.sort()
        pipe.send(Waits(len(waits), waits[math.ceil(len(waits) * 0.999) - 1], waits[-1]))
