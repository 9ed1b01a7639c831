"""Random changes of what decides about the lanes of a durable queue, with restarts and kills: no confirmed message is
lost, and none is in the queue twice (QP-66, QP-70).
"""

from __future__ import annotations

import random

import pytest

from warren import Broker
from warren.amqp.fields import table_to_dict
from warren.tests.behaviour.wire import Client

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


def test_a_kill_takes_neither_order_nor_turns_from_256_lanes(tmp_path):
    """After a kill each round has one message of every lane, the oldest."""
    plan = Plan(str(tmp_path / "data"), 1)
    plan.broker.set_policy("lanes", "^q$", {"fair-by": "header:shop"}, apply_to="queues")
    plan.stop()
    lanes, rounds = 256, 4
    for number in range(rounds):
        for lane in range(lanes):
            plan.channel.publish(b"%d" % number, "q", headers={"shop": f"shop {lane}"}, delivery_mode=2)
    plan.channel.confirms(1, lanes * rounds)
    plan.kill()
    found = []
    while (event := plan.channel.get("q", no_ack=True)) is not None:
        found.append((int(event.body), table_to_dict(event.headers)["shop"]))
    assert len(found) == lanes * rounds
    for number in range(rounds):
        each = found[number * lanes : (number + 1) * lanes]
        assert {order for order, _ in each} == {number}
        assert len({shop for _, shop in each}) == lanes
