"""Kill a broker again and again while clients work, and check each time that no message is missing or surplus.

    torture = Torture(directory, seed=1, files=SMALL)
    torture.run(30)                      raises Violation, BrokerFailed, or what a client met

In each life the broker starts; sometimes it is killed during recovery and starts again. All queues are checked, and
some of their messages are settled. Clients work for some tenths of a second, and longer on a busy machine, until the
broker has confirmed enough of their messages. Then the broker is killed, or stopped with SIGTERM, or killed while it
stops. The seed decides what clients do and when the broker ends, but not which of their methods the broker has handled
by then.

`directory` then contains `data`, the broker's data directory; `before`, a copy of it from before the last start;
`broker.log`; and `account`, with one line for each event.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from warren.amqp import methods as m
from warren.amqp.properties import Properties, encode_properties
from warren.simulation import bodies
from warren.simulation.bodies import Key
from warren.tests.behaviour.wire import Channel, Client

from .broker import AS_IT_IS, BrokerFailed, TorturedBroker
from .clients import CONSUMED, Consumer, Getter, Publisher, Sweeper, Transactor, Worker, declare, found, new_model
from .model import Entry, Violation

TIMEOUT = 30.0
#: Least number of confirmed messages for each second that the clients work. An idle machine confirms several times as
#: many, so it decides only on a busy one.
CONFIRMED_PER_SECOND = 300


class Torture:
    """One run. `on_note` is called with each line of the account."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        files: tuple[int, int, int] = AS_IT_IS,
        fault: str = "",
        on_note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.directory = directory
        self.seed = seed
        self.chooser = random.Random(seed)
        self.model = new_model()
        self.broker = TorturedBroker(directory / "data", directory / "broker.log", files, fault)
        self.kills = self.stops = self.kills_in_recovery = self.kills_in_stop = 0
        #: The messages since the last clean stop that have shown that all dead letters had arrived. A kill loses their
        #: acknowledgements if the disk was still busy with the records before them, so they may come again.
        self._arrived: set[Key] = set()
        self._on_note = on_note
        self._began = time.monotonic()
        self._recovery = self._stop = 0.05  # the seconds that the last recovery and the last stop took
        self._failure: BaseException | None = None

    def run(self, kills: int, messages: int = 0) -> None:
        """Go on until there were `kills` kills, `messages` messages were confirmed, and as many were found after
        starts.
        """
        model = self.model
        with self.broker:
            try:
                while self.kills < kills or model.confirmed < messages or model.found < messages:
                    self.live(kills)
                self.end()
            except BaseException as error:
                self.note(f"FAILED: {error!r}")
                raise

    def note(self, line: str) -> None:
        line = f"{time.monotonic() - self._began:7.2f}  life {self.model.life}: {line}"
        with (self.directory / "account").open("a") as account:
            account.write(line + "\n")
        self._on_note(line)

    # -- a life ---

    def live(self, kills: int) -> None:
        choose = self.chooser
        while choose.random() < 0.3 and self.kills + 1 < kills:
            self.start_and_kill()
        url = self.start()
        self.check(url)
        seconds = choose.choice((0.05, 0.2, 0.2, 0.4, 0.8)) * choose.uniform(0.5, 1.5)
        workers = self.clients(url)
        for worker in workers:
            worker.start()
        seconds = self._work(seconds)
        way = choose.random() if self._failure is None else 0.0
        end = "killed"
        if way < 0.7:
            self.broker.kill()
            is_clean = False
        else:
            grace = None if way < 0.85 else choose.uniform(0, 1.2 * self._stop)
            is_clean = self.stop(grace)
            end = "stopped" if is_clean else f"killed {1000 * (grace or 0):.0f} ms after SIGTERM"
        self.model.is_over = True
        for worker in workers:
            worker.join(TIMEOUT)
            if worker.is_alive() and self._failure is None:
                self._failure = BrokerFailed(f"{worker.name} does not end")
        self.model.is_over = False
        self._ended(is_clean, f"{end} after {seconds:.2f} s of work")
        if self._failure is not None:
            raise self._failure

    def clients(self, url: str) -> list[Worker]:
        queues = [queue for queue in CONSUMED if self.chooser.random() < 0.7]
        workers: list[Worker] = []

        def add(kind: type[Worker], name: str, **options: object) -> None:
            chooser = random.Random(f"{self.seed} {self.model.life} {name}")
            workers.append(kind(name, url, self.model, chooser, self._client_failed, **options))

        for number in range(3):
            add(Publisher, f"publisher {number}")
        for number in range(2):
            if queues[number::2]:
                add(Consumer, f"consumer {number}", queues=queues[number::2])
        for kind in (Getter, Transactor, Sweeper):
            if self.chooser.random() < 0.7:
                add(kind, kind.__name__.lower())
        return workers

    def _work(self, seconds: float) -> float:
        """Let the clients work for `seconds`, and until enough messages are confirmed; return the seconds that it took.

        Returns at once when a client fails.
        """
        model = self.model
        began = time.monotonic()
        with model.lock:
            wanted = model.confirmed + CONFIRMED_PER_SECOND * seconds
            model.changed.wait_for(lambda: self._failure is not None, seconds)
            if not model.changed.wait_for(lambda: self._failure is not None or model.confirmed >= wanted, TIMEOUT):
                self._failure = BrokerFailed(f"the broker does not confirm {wanted:.0f} messages")
        return time.monotonic() - began

    def _client_failed(self, error: BaseException) -> None:
        with self.model.lock:
            if self._failure is None:
                error.add_note(f"in {threading.current_thread().name}")
                self._failure = error
            self.model.changed.notify_all()

    # -- starting and ending ---

    def start(self) -> str:
        """Start the broker and return its URL."""
        self._begin()
        began = time.monotonic()
        url = self.broker.url()
        self._recovery = time.monotonic() - began
        return url

    def start_and_kill(self) -> None:
        self._begin()
        seconds = self.chooser.uniform(0, 1.2 * self._recovery)
        self.broker.is_ready(seconds)
        self.broker.kill()
        self.kills_in_recovery += 1
        self._ended(False, f"killed {1000 * seconds:.0f} ms after it began to recover")

    def _begin(self) -> None:
        before, data = self.directory / "before", self.directory / "data"
        shutil.rmtree(before, ignore_errors=True)
        if data.exists():
            shutil.copytree(data, before)
        self.broker.begin()

    def stop(self, grace: float | None) -> bool:
        """Stop the broker, and kill it if it has not ended after `grace` seconds; return whether it ended cleanly.

        With a `grace` of None, a broker that does not stop raises BrokerFailed.
        """
        began = time.monotonic()
        self.model.is_stopping = True
        self.broker.terminate()
        if self.broker.ended(TIMEOUT if grace is None else grace):
            self._stop = time.monotonic() - began
            return True
        if grace is None:
            raise BrokerFailed(f"the broker did not stop within {TIMEOUT:.0f} s")
        self.broker.kill()
        self.kills_in_stop += 1
        return False

    def _ended(self, is_clean: bool, end: str) -> None:
        model = self.model
        self.note(
            f"{end}; so far {model.confirmed:,} confirmed, {model.delivered:,} delivered, {model.settled:,} settled; "
            f"{self.kills + (not is_clean)} kills"
        )
        if is_clean:
            self.stops += 1
            self._arrived.clear()
            model.stopped()
        else:
            self.kills += 1
            model.crashed()

    # -- checking ---

    def check(self, url: str, keep_most: int | None = None) -> None:
        """Compare all queues with the model; then settle messages, so that at most `keep_most` stay in each queue."""
        client = Client(url)
        try:
            declare(client.channel())
            self._let_dead_letters_arrive(client)
            sizes = []
            for name in self.model.queues:
                keep = self.chooser.choice((0, 20, 200, 600)) if keep_most is None else keep_most
                sizes.append(f"{name} {self._check(client, name, keep)}")
            client.close()
        finally:
            client.abort()
        self.note(f"recovered in {1000 * self._recovery:.0f} ms; present: {', '.join(sizes)}")

    def _let_dead_letters_arrive(self, client: Client) -> None:
        """Wait until the dead letters that were in transit when the broker ended are in their queues.

        Dead letters arrive in the order in which the messages died, so another one that has arrived shows that these
        have, except those that have become dead letters once more on the way: for them there is a second one.
        """
        channel = client.channel()
        channel.expect_ready("expiring", 0)
        tag = channel.consume("dead")
        for _ in range(2):
            with self.model.lock:
                key = Key(self.model.new_publisher(), 1)
                self.model.publish(key, ("expiring",), 0, True)
            properties = Properties(delivery_mode=2, correlation_id=f"{key.publisher}.{key.number}")
            body = bodies.body(key, 10_000)
            channel.send(m.BasicPublish(routing_key="expiring"), body, encode_properties(properties))
            while found("dead", (event := channel.delivery())).key != key:
                pass
            channel.ack(event.tag)
            with self.model.lock:
                for name in ("expiring", "dead"):
                    del self.model.queues[name].entries[key]
                self._arrived.add(key)
        channel.cancel(tag)
        channel.close()
        with self.model.lock:
            for entry in self.model.queues["dead"].entries.values():
                entry.maybe_delivered = True

    def _check(self, client: Client, name: str, keep_most: int) -> int:
        channel = client.channel()
        count = channel.ready(name)
        tag = channel.consume(name)
        events = channel.deliveries(count)
        channel.cancel(tag)
        if channel.pending:
            raise Violation(f"{name}: queue.declare counted {count} messages, but {len(channel.pending)} more arrived")
        for event in [event for event in events if found(name, event).key in self._arrived]:
            channel.ack(event.tag)
            events.remove(event)
        there = [found(name, event) for event in events]
        count = len(there)
        self.model.check(name, there)
        entries = self.model.queues[name].entries
        settled = self._chosen(list(range(count)), keep_most)
        held: list[Entry] = []
        for at in settled:
            held.append(entries[there[at].key])
            self.model.settle(name, held[-1])
            channel.ack(events[at].tag)
        if self.chooser.random() < 0.5 and count > len(settled):
            channel.call(m.BasicRecover(requeue=True))
        self._flush(channel)
        self.model.flushed(held)
        channel.close()
        return count

    def _chosen(self, places: list[int], keep_most: int) -> list[int]:
        """Choose the places to settle: at the head, anywhere, or at both ends so that the middle stays."""
        count = max(0, len(places) - keep_most)
        way = self.chooser.randrange(3)
        if way == 0:
            return places[:count]
        if way == 1:
            return self.chooser.sample(places, count)
        return places[: count // 2] + places[len(places) - (count - count // 2) :]

    def _flush(self, channel: Channel) -> None:
        channel.qos(0)

    # -- the end ---

    def end(self) -> None:
        """Settle all messages, and check that none is left after a clean stop."""
        self.check(self.start(), keep_most=0)
        if not self.stop(None):
            raise BrokerFailed("the broker was killed")
        self._ended(True, "drained and stopped")
        self.check(self.start(), keep_most=0)
        left = {name: len(queue.order) for name, queue in self.model.queues.items() if queue.order}
        if left:
            raise Violation(f"all messages were settled and the broker stopped cleanly, but these are left: {left}")
        self.stop(None)
