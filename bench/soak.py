"""Runs a broker under mixed churn and load, and watches its memory.

    python -m warren.bench.soak --minutes 30

One client makes and removes entities of every kind (`tests/system_crash/churns.py`), except those that need an embedded
broker. Another publishes with confirms, consumes, acknowledges and rejects, lets messages expire, and reads by number.
The queue of a third one is never empty, and its messages come and go one by one.
The table has the least and the most of the broker's anonymous memory in each minute. The most goes up and down by 15
MB with the messages that wait at the moment, so the least says whether anything is left behind.

Exit code 0 if the least of the last minute is that of the second minute, give or take 10 MB; 1 if it is more, 2 if
nothing could be measured.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..amqp import methods
from ..amqp.constants import FRAME_METHOD
from ..amqp.decoding import decode_method
from ..amqp.fields import table_from
from ..tests.system.wire import Wire
from ..tests.system_crash.churns import CHURNS, LARGE, frames, message, open_channel, read_until
from .load.broker import BrokerFailed, Warren, memory

#: Looks at the memory in a minute.
SAMPLES = 60
#: Bytes that the broker may have more in its last minute than in its second.
GROWTH = 10_000_000
#: Entities of one kind, before the churn goes on with the next kind.
ENTITIES = 60
#: Milliseconds after which messages of the load expire.
EXPIRE_MS = 2000
EXPIRE_SECONDS = EXPIRE_MS / 1000
#: Seconds that an answer may take. The machine may be busy with other work.
ANSWER_SECONDS = 120.0
#: Messages that the load publishes in one round. A third is acknowledged, a third rejected, the rest expires.
MESSAGES = 150
#: Seconds from the start of one such round to the next. What waits to expire is then the same on a fast machine and on
#: a slow one: without a pause it is what the machine publishes within `EXPIRE_SECONDS`, from 1,600 messages to 6,500.
ROUND_SECONDS = 0.25
#: Messages that always wait in the queue that is never empty, and how many more are with its consumer.
READY, UNACKED = 100, 20
#: Churns that need the controls of an embedded broker.
EMBEDDED = {"vhosts", "requests_of_the_program"}


class SoakBroker:
    """A broker as churns use it. Queues are declared by AMQP."""

    def __init__(self, port: int) -> None:
        self.host, self.port = "127.0.0.1", port

    def declare_queue(self, name: str) -> None:
        self._call(methods.QueueDeclare(queue=name))

    def delete_queue(self, name: str) -> None:
        self._call(methods.QueueDelete(queue=name))

    def _call(self, method: methods.QueueDeclare | methods.QueueDelete) -> None:
        with open_channel(self) as wire:
            wire.call(1, method)
            wire.close()


def churn(server: SoakBroker, is_over: threading.Event) -> None:
    for number in itertools.count(step=ENTITIES):
        for kind, make in CHURNS.items():
            if is_over.is_set():
                return
            if kind not in EMBEDDED:
                make(server, range(number, number + ENTITIES))


def load(server: SoakBroker, is_over: threading.Event) -> None:
    with open_channel(server) as wire:
        dead = table_from(
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": EXPIRE_MS}
        )
        wire.call(1, methods.QueueDeclare(queue="load", durable=True, arguments=dead))
        wire.call(1, methods.QueueDeclare(queue="dead", durable=True, arguments=table_from({"x-max-length": 5000})))
        wire.call(1, methods.ConfirmSelect())
        wire.call(1, methods.BasicQos(0, MESSAGES, False))
        tag = sent = 0
        while not is_over.is_set():
            next_round = time.monotonic() + ROUND_SECONDS
            wire.send(*(message("load", bytes(LARGE if number % 3 == 0 else 200)) for number in range(MESSAGES)))
            sent += MESSAGES
            confirmed_up_to(wire, sent)
            wire.send(frames(1, methods.BasicConsume(queue="load", consumer_tag="load")))
            last = delivered_up_to(wire, tag)
            third = (last - tag) // 3
            if third:
                wire.send(
                    frames(1, methods.BasicAck(tag + third, True), methods.BasicNack(tag + 2 * third, True, False)),
                )
            if last > tag:
                wire.send(frames(1, methods.BasicNack(0, True, True)))
            tag = last
            read_dead_letters(server)
            is_over.wait(max(0.0, next_round - time.monotonic()))


def stand(server: SoakBroker, is_over: threading.Event) -> None:
    with open_channel(server) as wire:
        wire.call(1, methods.QueueDeclare(queue="standing", durable=True))
        wire.call(1, methods.BasicQos(0, UNACKED, False))
        content = message("standing", bytes(200))
        wire.send(*[content] * (READY + UNACKED), frames(1, methods.BasicConsume(queue="standing")))
        while not is_over.is_set():
            method = next_method(wire)
            if isinstance(method, methods.BasicDeliver):
                wire.send(content, frames(1, methods.BasicAck(method.delivery_tag, False)))


def confirmed_up_to(wire: Wire, number: int) -> None:
    while True:
        method = next_method(wire)
        if isinstance(method, methods.BasicAck) and method.delivery_tag >= number:
            return


def delivered_up_to(wire: Wire, tag: int) -> int:
    """Cancel the consumer after `MESSAGES` / 3 * 2 deliveries, or fewer if messages have expired meanwhile, as they do
    on a busy machine. Returns the tag of the last delivery; `tag` is that of the delivery before.
    """
    last = tag
    with suppress(TimeoutError):
        while last < tag + MESSAGES // 3 * 2:
            method = next_method(wire, EXPIRE_SECONDS)
            if isinstance(method, methods.BasicDeliver):
                last = method.delivery_tag
    wire.send(frames(1, methods.BasicCancel("load")))
    while not isinstance(method := next_method(wire), methods.BasicCancelOk):
        if isinstance(method, methods.BasicDeliver):
            last = method.delivery_tag
    return last


def next_method(wire: Wire, timeout: float = ANSWER_SECONDS) -> object:
    """The next method on channel 1; contents are dropped."""
    while True:
        found = wire.on(1, timeout)
        if found.kind == FRAME_METHOD:
            return decode_method(found.payload)


def read_dead_letters(server: SoakBroker) -> None:
    """Read the newest dead letters by number, without consuming them."""
    with open_channel(server) as wire:
        wire.call(1, methods.BasicQos(0, 20, False))
        wire.call(
            1,
            methods.BasicConsume(queue="dead", arguments=table_from({"x-warren-read-from": -20})),
            methods.BasicConsumeOk,
        )
        read_until(wire, 1, methods.BasicDeliver, 1)
        wire.close()


def measure(broker: Warren, minutes: int, failures: list[BaseException]) -> list[int]:
    """Print the least and the most memory of each minute, and return the least."""
    found = []
    for minute in range(1, minutes + 1):
        samples = []
        for _ in range(SAMPLES):
            time.sleep(60 / SAMPLES)
            if failures:
                raise failures[0]
            samples.append(memory(broker.pid)["RssAnon"])
        found.append(min(samples))
        print(f"{minute:4} min {min(samples) / 1e6:9.1f} to {max(samples) / 1e6:5.1f} MB", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=30)
    options = parser.parse_args()
    is_over = threading.Event()
    failures: list[BaseException] = []

    def run(work: Callable[[SoakBroker, threading.Event], None], server: SoakBroker) -> None:
        try:
            work(server, is_over)
        except BaseException as error:
            failures.append(error)

    with (
        tempfile.TemporaryDirectory() as directory,
        # The churns make a thousand errors a minute.
        Warren(Path(directory) / "data", {"disk_free_limit": 0}, is_silent=True) as broker,
    ):
        try:
            broker.start()
            server = SoakBroker(broker.port)
            threads = [threading.Thread(target=run, args=(work, server)) for work in (churn, load, stand)]
            for thread in threads:
                thread.start()
            try:
                found = measure(broker, options.minutes, failures)
            finally:
                is_over.set()
                for thread in threads:
                    thread.join()
        except (AssertionError, BrokerFailed, OSError) as error:
            print(f"nothing was measured: {error!r}", file=sys.stderr)
            return 2
    return int(found[-1] > found[min(1, len(found) - 1)] + GROWTH)


if __name__ == "__main__":
    sys.exit(main())
