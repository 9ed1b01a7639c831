"""`Witness`: the other client. 100 times a second it publishes a message to a queue of its own, which it consumes, or
asks how many messages are in that queue.

A wait has three parts, and only the first says something about the broker: the processor time of the broker's main
thread between the publish and the delivery, which is what the broker did first; the time in which that thread could run
and other programs had the cores; and the rest, in which it waited for a disk, for another of its threads or for the
witness itself. So the witness reads the kernel's account of that thread, and of its own, before it publishes and after
it receives. Where the witness itself had no core, the first part is too large: the broker may have gone on meanwhile.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import pika  # type: ignore[import-untyped]

#: Seconds between two messages.
INTERVAL = 0.01

#: Seconds without a core from which on a wait of the witness does not count for `most_processor`.
OWN = 0.001


class Account(NamedTuple):
    """What a thread has had since its start, or between two looks, in seconds."""

    processor: float
    #: Time in which it could run and had no core.
    coreless: float


class WitnessWait(NamedTuple):
    """One message from publish to delivery, or one question until its answer."""

    seconds: float
    #: What the broker's main thread had meanwhile; None for a broker whose process is not known.
    broker: Account | None
    #: How long the witness itself could run and had no core. The broker may have worked for others meanwhile.
    own_coreless: float


class Waits(NamedTuple):
    """The waits of a witness."""

    count: int
    p999: float
    longest: WitnessWait
    #: The most processor time that the broker used during one of the waits in which the witness had a core; 0 if it is
    #: not known.
    most_processor: float


def account_of(pid: int) -> Account | None:
    """The account of the main thread of a process; None where the kernel keeps none."""
    try:
        processor, coreless, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    except OSError:
        return None
    return Account(int(processor) / 1e9, int(coreless) / 1e9)


class Witness:
    """A client in a process of its own. `stop` returns its waits since `begin`; `pid` is the broker's process."""

    def __init__(self, port: int, publishes: bool = True, pid: int | None = None) -> None:
        self._pipe, far = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_witness, args=(port, far, publishes, pid), daemon=True)
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


def _waits(found: list[WitnessWait]) -> Waits:
    found.sort(key=lambda wait: wait.seconds)
    processor = [wait.broker.processor for wait in found if wait.broker is not None and wait.own_coreless < OWN]
    return Waits(len(found), found[math.ceil(len(found) * 0.999) - 1].seconds, found[-1], max(processor, default=0.0))


def _witness(port: int, pipe: Connection, publishes: bool, pid: int | None) -> None:
    waits: list[WitnessWait] = []
    #: Messages in flight, by their bodies: when each was sent, and at that time the broker's account and how long the
    #: witness had been without a core.
    under_way: dict[bytes, tuple[float, Account | None, float]] = {}
    own_pid = os.getpid()

    def look() -> Account | None:
        return None if pid is None else account_of(pid)

    def own_coreless() -> float:
        account = account_of(own_pid)
        return 0.0 if account is None else account.coreless

    def ended(began: float, before: Account | None, coreless: float) -> None:
        seconds, now = time.monotonic() - began, look()
        broker = None
        if before is not None and now is not None:
            broker = Account(now.processor - before.processor, now.coreless - before.coreless)
        waits.append(WitnessWait(seconds, broker, own_coreless() - coreless))

    def received(channel: object, method: object, properties: object, body: bytes) -> None:
        ended(*under_way.pop(body))

    with pika.BlockingConnection(pika.ConnectionParameters(port=port, heartbeat=0)) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_consume(queue, received, auto_ack=True)
        due = time.monotonic()
        sent = 0
        order = ""
        while order != "stop":
            before, coreless = look(), own_coreless()
            began = time.monotonic()
            if publishes:
                body = b"%d" % sent
                under_way[body] = began, before, coreless
                channel.basic_publish("", queue, body)
            else:
                channel.queue_declare(queue, passive=True)
                ended(began, before, coreless)
            sent += 1
            due = max(due + INTERVAL, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                connection.process_data_events(left)
            if sent == 20:
                pipe.send("ready")
            if sent >= 20 and pipe.poll():
                order = pipe.recv()
                if order == "begin":
                    # A message that is in flight now is kept: it may arrive after the abuse has begun, and its wait
                    # counts then.
                    waits.clear()
        while len(waits) < 1:
            connection.process_data_events(1)
        pipe.send(_waits(waits))
