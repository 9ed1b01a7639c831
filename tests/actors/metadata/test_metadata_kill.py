"""kill -9 while clients declare, bind and delete: every change that was answered is there afterwards; one that was not
answered may be there or not (QS-40, QS-41, AB-73).
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pika
import pika.exceptions

from warren.actors.contracts.node import to_node
from warren.running_node import RunningNode
from warren.settings import Settings

KILLS = 6
CLIENTS = 3
NAMES = 6  # so few names that clients use each many times

BROKER = """
import sys, time
from warren.running_node import RunningNode
from warren.settings import Settings
print(RunningNode(Settings(port=0, data_dir=sys.argv[1])).port, flush=True)
time.sleep(60)
"""


class Client:
    """A client that declares and deletes under names of its own.

    `known` says for each thing whether it exists, by the latest answer; a thing whose request was not answered is
    missing.
    """

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        self.names = [f"{number}-{name}" for name in range(NAMES)]
        self.known: dict[tuple[str, ...], bool] = {}
        self.answers = 0

    def run(self, port: int) -> None:
        with suppress(pika.exceptions.AMQPError, OSError):
            channel = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).channel()
            while True:
                self.step(channel)
                self.answers += 1

    def step(self, channel) -> None:
        name, other = self.random.choice(self.names), self.random.choice(self.names)
        verb = self.random.choice(
            ("queue", "queue", "exchange", "exchange", "bind", "bind", "bind", "unbind", "delete", "delete_exchange")
        )
        queue, exchange, binding = ("queue", name), ("exchange", name), ("binding", other, name)
        if verb == "queue":
            self.request({queue: True}, channel.queue_declare, name, durable=True)
        elif verb == "exchange":
            self.request({exchange: True}, channel.exchange_declare, name, "direct", durable=True)
        elif verb == "unbind":
            self.request({binding: False}, channel.queue_unbind, name, other, "k")
        elif verb == "bind":
            if self.known.get(queue) and self.known.get(("exchange", other)):
                self.request({binding: True}, channel.queue_bind, name, other, "k")
        elif verb == "delete":
            self.request(
                {queue: False} | {("binding", source, name): False for source in self.names}, channel.queue_delete, name
            )
        else:
            self.request(
                {exchange: False} | {("binding", name, queue): False for queue in self.names},
                channel.exchange_delete,
                name,
            )

    def request(self, things: dict, method, *arguments, **options) -> None:
        """Call `method`, and note in `known` what is true after its answer."""
        for thing in things:
            self.known.pop(thing, None)
        method(*arguments, **options)
        self.known.update(things)


def there(data_dir: str) -> set[tuple[str, ...]]:
    node = RunningNode(Settings(port=0, data_dir=data_dir))
    try:
        found = {("queue", row["name"]) for row in node.ask_node(to_node.list("queues", None))}
        found |= {("exchange", row["name"]) for row in node.ask_node(to_node.list("exchanges", None))}
        found |= {
            ("binding", row["source_name"], row["destination_name"])
            for row in node.ask_node(to_node.list("bindings", None))
            if row["source_name"]
        }
        return found
    finally:
        node.stop()


def test_what_was_answered_is_there_after_kill_9(tmp_path):
    data_dir = str(tmp_path / "data")
    clients = [Client(number) for number in range(CLIENTS)]
    for number in range(KILLS):
        broker = subprocess.Popen([sys.executable, "-c", BROKER, data_dir], stdout=subprocess.PIPE)
        try:
            port = int(broker.stdout.readline())
            threads = [threading.Thread(target=client.run, args=(port,)) for client in clients]
            for thread in threads:
                thread.start()
            time.sleep(random.Random(number).uniform(0.1, 0.5))
        finally:
            broker.send_signal(signal.SIGKILL)
            broker.wait()
            broker.stdout.close()
        for thread in threads:
            thread.join()
        found = there(data_dir)
        for client in clients:
            wrong = {thing: is_there for thing, is_there in client.known.items() if (thing in found) != is_there}
            assert not wrong, f"after kill {number + 1}"
            # A request that was not answered may have been carried out or not, so look.
            for kind in ("queue", "exchange"):
                client.known.update({(kind, name): (kind, name) in found for name in client.names})
            client.known.update(
                {("binding", a, b): ("binding", a, b) in found for a in client.names for b in client.names}
            )
    assert all(client.answers > 10 * KILLS for client in clients), "they hardly got to do anything"
