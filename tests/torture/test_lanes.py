"""Random changes of what decides about the lanes of a durable queue, with restarts and kills: no confirmed message is
lost, and none is in the queue twice (QP-66, QP-70).
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from time import monotonic

import pytest

from warren import Broker
from warren.amqp.fields import table_to_dict
from warren.amqp.frames import build_content
from warren.amqp.properties import Properties, encode_properties
from warren.store.bodies.store_client import StoreClient
from warren.store.data_dir.vhost_dir import queue_directory
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.real_disk import RealDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.message import Origin
from warren.store.queue.variable.variable_queue import VariableQueue
from warren.tests.behaviour.inside import Inside
from warren.tests.behaviour.wire import Client, table
from warren.tests.store.engines import DirectLog

POLICIES = [
    {"queue-mode": "default"},
    {"max-length": 1_000_000},
    {"queue-mode": "lazy"},
    {"fair-by": "header:shop"},
    {"fair-by": "header:shop", "queue-mode": "lazy"},
    {"fair-by": "header:shop", "fair-lanes-max": 2},
    {"fair-by": "exchange", "fair-cost": "bytes"},
]
STEPS = 150


class Plan:
    """One random plan. `there` are the confirmed messages that nobody has acknowledged."""

    def __init__(self, data_dir: str, seed: int) -> None:
        self.data_dir = data_dir
        self.random = random.Random(seed)
        self.there: set[int] = set()
        self.acknowledged: set[int] = set()
        self.count = 0
        self.start()

    def start(self) -> None:
        self.broker = Broker(data_dir=self.data_dir, port=0, stop_timeout=100).start()
        self.client = Client(self.broker.url)
        self.channel = self.client.channel()
        self.channel.queue("q", durable=True)
        self.channel.confirm()
        self.published = 0

    def publish(self) -> None:
        number = self.random.randint(1, 20)
        for each in range(self.count, self.count + number):
            body = str(each).ljust(self.random.choice((10, 6000)))
            self.channel.publish(body, "q", headers={"shop": self.random.choice("abcd")}, delivery_mode=2)
        self.channel.confirms(self.published + 1, self.published + number)
        self.there |= {*range(self.count, self.count + number)}
        self.count += number
        self.published += number

    def take(self) -> None:
        for _ in range(self.random.randint(1, 15)):
            event = self.channel.get("q")
            if event is None:
                assert not self.there
                return
            if self.random.random() < 0.7:
                self.channel.ack(event.tag)
                self.there.discard(int(event.body))
                self.acknowledged.add(int(event.body))
            else:
                self.channel.nack(event.tag)

    def empty(self) -> None:
        """Empty the queue, so that a queue without lanes becomes an ordinary one, and may get lanes again."""
        while (event := self.channel.get("q")) is not None:
            self.channel.ack(event.tag)
            self.there.discard(int(event.body))
            self.acknowledged.add(int(event.body))

    def change(self) -> None:
        self.broker.set_policy("lanes", "^q$", self.random.choice(POLICIES), apply_to="queues")

    def stop(self) -> None:
        self.client.close()
        self.broker.stop()
        self.start()

    def kill(self) -> None:
        self.client.abort()
        self.broker.kill()
        self.start()

    def drained(self) -> list[int]:
        self.stop()
        found = []
        while (event := self.channel.get("q", no_ack=True)) is not None:
            found.append(int(event.body))
        self.client.close()
        self.broker.stop()
        return found


@pytest.mark.parametrize("seed", range(6))
def test_policies_with_lanes_lose_nothing(tmp_path, seed):
    plan = Plan(str(tmp_path / "data"), seed)
    for _ in range(STEPS):
        kinds = [plan.publish] * 4 + [plan.take] * 2 + [plan.empty] * 2 + [plan.change] * 4 + [plan.stop, plan.kill]
        plan.random.choice(kinds)()
    found = plan.drained()
    assert len(found) == len(set(found))
    assert plan.there <= set(found)
    # A kill loses the acknowledgements of its last moment, and clients get these messages once more.
    assert set(found) <= plan.there | plan.acknowledged


@pytest.mark.parametrize("size", [10, 5000], ids=["embedded", "stored"])
@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_no_end_takes_order_or_turns_from_thousands_of_lanes(tmp_path, ends, size):
    """After a clean stop or a kill each round has one message of every lane, the oldest (QP-70)."""
    plan = Plan(str(tmp_path / "data"), 1)
    plan.broker.set_policy("lanes", "^q$", {"fair-by": "header:shop", "fair-lanes-max": 65_536}, apply_to="queues")
    plan.stop()
    lanes, rounds = (5000, 3) if size < 4096 else (1500, 2)
    for number in range(rounds):
        for lane in range(lanes):
            body = (b"%d" % number).ljust(size)
            plan.channel.publish(body, "q", headers={"shop": f"shop {lane}"}, delivery_mode=2)
    plan.channel.confirms(1, lanes * rounds)
    getattr(plan, ends)()
    inside = Inside(plan.broker)
    while inside.call(lambda: inside.queue("q").backing.is_behind):
        plan.channel.ready("q")  # the queue still sorts its messages into lanes
    found = []
    while (event := plan.channel.get("q", no_ack=True)) is not None:
        found.append((int(event.body), table_to_dict(event.headers)["shop"], event.method.redelivered))
    assert len(found) == lanes * rounds
    for number in range(rounds):
        each = found[number * lanes : (number + 1) * lanes]
        assert {order for order, _, _ in each} == {number}
        assert len({shop for _, shop, _ in each}) == lanes
    assert {redelivered for _, _, redelivered in found} == {ends == "kill"}


def test_a_clean_stop_keeps_which_messages_were_delivered(tmp_path):
    """Lanes deliver out of the order of publishing. After a clean stop only what a consumer had is redelivered."""
    plan = Plan(str(tmp_path / "data"), 1)
    plan.broker.set_policy("lanes", "^q$", {"fair-by": "header:shop"}, apply_to="queues")
    for shop in "aaaab":
        plan.channel.publish(shop.encode(), "q", headers={"shop": shop}, delivery_mode=2)
    plan.channel.confirms(1, 5)
    for _ in range(2):
        plan.channel.get("q")
    plan.stop()
    found = []
    while (event := plan.channel.get("q", no_ack=True)) is not None:
        found.append((event.body, event.method.redelivered))
    assert sorted(found) == [(b"a", False)] * 3 + [(b"a", True), (b"b", True)]


def test_lanes_cost_no_files(tmp_path):
    """A clean stop with a message in each of 2,000 lanes writes one segment."""
    plan = Plan(str(tmp_path / "data"), 1)
    plan.broker.set_policy("lanes", "^q$", {"fair-by": "header:shop", "fair-lanes-max": 4000}, apply_to="queues")
    for lane in range(2000):
        plan.channel.publish(b"body", "q", headers={"shop": f"shop {lane}"}, delivery_mode=2)
    plan.channel.confirms(1, 2000)
    plan.client.close()
    plan.broker.stop()
    assert len(list((tmp_path / "data").glob("vhosts/*/queues/*/*.idx"))) == 1


def write_level(directory: Path, level: int, shop: str, count: int) -> None:
    """Write what an earlier version had of a lane: a level of the queue with a segment of its own."""
    disk, journal_disk = RealDisk(str(directory.parents[1])), FaultyDisk()
    journal_disk.make_dir("journal")
    journal = JournalEngine(journal_disk, "journal")
    journal.recover()
    number = int(directory.name, 16) | level
    log = DirectLog(journal, has_sizes=False)
    index = QueueIndex(disk, queue_directory(number), number, log)
    queue = VariableQueue(number, index, StoreClient(), StoreClient())
    properties = encode_properties(Properties(headers=table({"shop": shop})))
    for each in range(count):
        body = f"{shop} old {each}".encode()
        content = build_content(1, properties, body, 131_072)
        queue.publish(Origin("", ("q",), True), [content], len(body), None, False)
    queue.segment_writer.flush(True)


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_lanes_of_an_earlier_version_are_drained(tmp_path, ends):
    """An earlier version had a level, with files of its own, for each lane. Their messages come before later ones of
    the same value, and the levels are gone when they are empty.
    """
    plan = Plan(str(tmp_path / "data"), 1)
    plan.broker.set_policy("lanes", "^q$", {"fair-by": "header:shop"}, apply_to="queues")
    plan.channel.publish(b"a new", "q", headers={"shop": "a"}, delivery_mode=2)
    plan.channel.confirms(1, 1)
    plan.client.close()
    plan.broker.stop()
    [directory] = (tmp_path / "data").glob("vhosts/*/queues/*")
    write_level(directory, 3, "a", 2)
    write_level(directory, 7, "b", 3)
    shutil.rmtree(directory.parents[1] / "recovery")
    plan.start()
    plan.channel.publish(b"b newest", "q", headers={"shop": "b"}, delivery_mode=2)
    plan.channel.confirms(1, 1)
    first = plan.channel.get("q")
    assert first.body == b"a old 0"
    plan.channel.ack(first.tag)
    plan.channel.get("q")
    getattr(plan, ends)()
    found = plan.channel.get_all("q")
    for shop in b"ab":
        mine = [body for body in found if body[0] == shop]
        assert mine == sorted(mine, key=lambda body: (b"old" not in body, body))
    assert sorted(set(found) - {b"a old 0"}) == [
        b"a new", b"a old 1", b"b newest", b"b old 0", b"b old 1", b"b old 2"
    ]  # fmt: skip
    # A file goes when the journal has that it does, and its directory at the stop after that.
    deadline = monotonic() + 20
    while any(each != directory and list(each.iterdir()) for each in directory.parent.iterdir()):
        assert monotonic() < deadline
        plan.channel.get("q")
    plan.client.close()
    plan.broker.stop()
    assert list((tmp_path / "data").glob("vhosts/*/queues/*")) == [directory]
