"""Runs are only a matter of speed: a broker that makes a run of every message sends clients exactly the same.

A random conversation of a client with a broker has publishes of many kinds, of which each batch is one write; gets,
consumers with a prefetch, settlements in any order, transactions and dead letters. It is played twice, the second time
with every run split after one message, from the frame parser to the queue. What the client receives on each channel is
compared step by step, and so is what the queues have at the end.
"""

from contextlib import contextmanager
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from warren import Broker
from warren.actors.connection import process as connection
from warren.actors.queue.arrivals import Arrival
from warren.amqp import methods as m
from warren.amqp.parser import reader
from warren.amqp.parser.reader import FrameReader
from warren.amqp.parser.skimmer import SPECIAL
from warren.store.messages import run

from ..wire import Client, Refused

#: Queues that clients get messages from, and their arguments. Messages that die go to the queue `graves` in the end.
QUEUES = {
    "plain": {},
    "lazy": {"x-queue-mode": "lazy"},
    "levels": {"x-max-priority": 3},
    "short": {"x-max-length": 3, "x-dead-letter-exchange": "dead"},
    "strict": {"x-max-length": 4, "x-overflow": "reject-publish"},
    "dying": {"x-dead-letter-exchange": "dead", "x-message-ttl": 600_000},
    "renamed": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"},
}
#: Queues that are not durable.
TRANSIENT = {"lazy", "renamed"}
EXCHANGES = {
    "topics": ("topic", {}),
    "all": ("fanout", {}),
    "by-headers": ("headers", {}),
    "before": ("direct", {"alternate-exchange": "by-headers"}),
    "dead": ("topic", {}),
}
BINDINGS = [
    ("plain", "topics", "a.#", {}),
    ("lazy", "topics", "*.b", {}),
    ("levels", "topics", "#.c", {}),
    ("short", "all", "", {}),
    ("dying", "all", "", {}),
    ("strict", "by-headers", "", {"x-match": "any", "kind": "one", "n": 3}),
    ("renamed", "by-headers", "", {"x-match": "all", "kind": "two"}),
    ("graves", "dead", "#", {}),
    ("plain", "before", "a.b", {}),
]
CONFIRMING, TRANSACTIONAL = 1, 2
#: Channels with a consumer each.
CONSUMING = (3, 4)
#: In the place of a prefetch count: the consumer does not acknowledge.
NO_ACK = -1

#: Where a batch is published to: exchange and routing keys. Most batches reach the same queues under different keys.
PLACES = [
    ("topics", ["a", "a.x", "a.y", "a.z.a"]),
    ("topics", ["a.b", "c.b", "a.c", "c", "x.y"]),
    ("all", ["a", "b", "c"]),
    ("before", ["a.b", "a.c", "a.d"]),
    ("", ["levels"]),
    ("", [*QUEUES, "graves", "nowhere"]),
]
#: Properties that the broker only passes on.
CARRIED = ["message_id", "correlation_id", "timestamp", "type", "app_id", "reply_to"]


def any_headers(rng):
    return rng.choice(
        [
            None,
            {"kind": "one", "n": 3},
            {"kind": "two", "n": 3},
            {"kind": "two", "n": 5},
            {"kind": "six", "n": 1},
            {"kind": "\x02CC", "trace": "5"},
            {"CC": ["graves"], "n": 1},
            {"XX": ["graves"], "n": 1},
            {"CC": ["graves"], "BCC": ["plain", "lazy"]},
        ]
    )


def any_decision(rng):
    """Properties that decide the fate of a message, chosen at random."""
    found = {"delivery_mode": rng.choice([1, 2])}
    if rng.random() < 0.3:
        found["priority"] = rng.randrange(5)
    if rng.random() < 0.2:
        found["expiration"] = rng.choice(["0", "600000", "700000", "900000"])
    if rng.random() < 0.2:
        found["user_id"] = "guest"
    return found


def any_batch(rng):
    """Some publishes: for each the exchange, routing key, mandatory, body size, and its properties."""
    exchange, keys = rng.choice(PLACES)
    carried = rng.sample(CARRIED, rng.randrange(len(CARRIED) + 1))
    decisions = [any_decision(rng)] * rng.choice([1, 5]) + [any_decision(rng)]
    headers = [any_headers(rng) for _ in range(rng.choice([1, 1, 4]))]
    sizes = rng.choice([[20], [20, 21], [0, 3, 20], [20, 5000]])
    return [
        (
            exchange,
            rng.choice(keys),
            rng.random() < 0.5,
            rng.choice(sizes),
            carried,
            rng.choice(decisions) | {"headers": rng.choice(headers)},
        )
        for _ in range(rng.choice([1, 2, 5, 20, 90]))
    ]


def any_step(rng):
    kind = rng.choice(
        ["publish"] * 8 + ["consume"] * 3 + ["settle"] * 5 + ["get", "get", "cancel", "commit", "rollback"]
    )
    if kind == "publish":
        return kind, rng.choice([CONFIRMING, CONFIRMING, TRANSACTIONAL]), any_batch(rng)
    if kind == "get":
        return kind, rng.choice(list(QUEUES)), rng.randrange(1, 6)
    if kind in ("commit", "rollback"):
        return (kind,)
    number = rng.choice(CONSUMING)
    if kind == "consume":
        return kind, number, rng.choice(list(QUEUES)), rng.choice([0, 1, 3, 10, NO_ACK])
    if kind == "settle":
        outcomes = ["ack", "ack", "ack all", "reject", "requeue"]
        settlements = [
            (rng.randrange(30), rng.choice(outcomes), rng.randrange(1, 20)) for _ in range(rng.randrange(1, 4))
        ]
        return kind, number, settlements
    return kind, number


@contextmanager
def split_runs():
    """While inside, every run has one message, whose properties the channel decodes."""
    with (
        patch.object(connection, "FrameReader", lambda: FrameReader(fast=False)),
        patch.object(reader, "fate", lambda props: (SPECIAL + props, None)),
        patch.object(Arrival, "join", lambda *_: False),
        patch.object(run, "COALESCE_BELOW", 0),
    ):
        yield


@pytest.fixture(scope="module", params=["in memory", "on disk"])
def own_broker(request, tmp_path_factory):
    """A broker for this module only, so that it is idle exactly when the conversation is."""
    data_dir = str(tmp_path_factory.mktemp("split") / "data") if request.param == "on disk" else None
    with Broker(port=0, data_dir=data_dir) as broker:
        yield broker


@pytest.mark.parametrize("seed", range(12))
def test_split_runs_give_the_same_results(own_broker, seed):
    rng = Random(seed)
    conversation = [any_step(rng) for _ in range(40)]
    together = Player(own_broker).play(conversation)
    with split_runs():
        split = Player(own_broker).play(conversation)
    for one, other in zip(split, together):
        assert one == other


class Player:
    """Plays one conversation and records what the client receives."""

    def __init__(self, broker):
        self.broker = broker
        self.client = Client(broker.url)
        self.channels = {number: self.client.channel(number) for number in (CONFIRMING, TRANSACTIONAL, *CONSUMING)}
        #: The queue that the consumer of each channel consumes from.
        self.consumed = {}
        #: Delivery tags that are not settled, by channel.
        self.unsettled = {number: [] for number in CONSUMING}
        self.published = self.confirming = 0
        #: Publish numbers of the confirming channel.
        self.unconfirmed = set()

    def play(self, conversation):
        channel = self.channels[CONFIRMING]
        self.declare(channel)
        channel.confirm()
        self.channels[TRANSACTIONAL].call(m.TxSelect())
        log = []
        for step in conversation:
            log.append((step, getattr(self, step[0])(*step[1:]), self.received()))
        for number in CONSUMING:
            self.channels[number].close()
        self.broker.wait_idle()
        for queue in QUEUES:
            log.append((queue, [seen(event) for event in iter(lambda queue=queue: channel.get(queue, True), None)]))
        # Dead letters come from several queues, which do not wait for each other, and some come only after these gets:
        # messages behind the head of a queue have expired when they become the head.
        self.broker.wait_idle()
        graves = [seen(event) for event in iter(lambda: channel.get("graves", True), None)]
        log.append(sorted((event.method.routing_key, event.body, repr(event.properties)) for event in graves))
        self.client.close()
        return log

    def declare(self, channel):
        for queue, arguments in {**QUEUES, "graves": {}}.items():
            channel.delete(queue)
            channel.queue(queue, arguments, durable=queue not in TRANSIENT)
        for exchange, (kind, arguments) in EXCHANGES.items():
            channel.call(m.ExchangeDelete(exchange=exchange))
            channel.exchange(exchange, kind, arguments)
        for queue, exchange, key, arguments in BINDINGS:
            channel.bind(queue, exchange, key, arguments)

    def received(self):
        """What has arrived on each channel when the broker is idle. How confirms are combined is left to the broker."""
        self.broker.wait_idle()
        log = {}
        for number, channel in self.channels.items():
            channel.call(m.ChannelFlow(True))  # everything that was sent before this answer has arrived with it
            arrived, confirmed = [], []
            events = self.client.events[number]
            while events:
                event = events.popleft()
                if isinstance(event.method, (m.BasicAck, m.BasicNack)):
                    confirmed.append((event.tag, event.method.multiple, isinstance(event.method, m.BasicAck)))
                    continue
                if isinstance(event.method, m.BasicDeliver) and not event.method.consumer_tag.startswith("no ack"):
                    self.unsettled[number].append(event.tag)
                arrived.append(seen(event))
            log[number] = arrived, self.outcomes(confirmed)
        return log

    def outcomes(self, confirmed):
        """For each publish of the confirming channel that was answered just now, whether it was accepted."""
        outcomes = {}
        for tag, is_multiple, is_ack in confirmed:
            for number in sorted(self.unconfirmed):
                if number == tag or is_multiple and number < tag:
                    outcomes[number] = is_ack
                    self.unconfirmed.discard(number)
        return sorted(outcomes.items())

    # -- steps ---

    def publish(self, number, batch):
        with self.client.in_one_piece():
            for exchange, key, is_mandatory, size, carried, decides in batch:
                self.published += 1
                values = {
                    "message_id": f"id-{self.published:06}",
                    "correlation_id": f"{self.published}",
                    "timestamp": 1_700_000_000 + self.published,
                    "type": "type" * (self.published % 3),
                    "app_id": f"app-{self.published % 10}",
                    "reply_to": f"amq.rabbitmq.reply-t{self.published % 10}",
                }
                properties = {name: values[name] for name in carried} | decides
                body = f"{self.published:06}".ljust(size, ".") if size else ""
                self.channels[number].publish(body, key, exchange, mandatory=is_mandatory, **properties)
                if number == CONFIRMING:
                    self.confirming += 1
                    self.unconfirmed.add(self.confirming)

    def consume(self, number, queue, prefetch):
        if number in self.consumed or queue in self.consumed.values():
            return
        channel = self.channels[number]
        channel.qos(max(prefetch, 0))
        channel.consume(queue, f"{'no ack' if prefetch == NO_ACK else 'ack'} {number}", no_ack=prefetch == NO_ACK)
        self.consumed[number] = queue

    def cancel(self, number):
        if self.consumed.pop(number, None):
            # Whichever of the two the consumer has.
            self.channels[number].cancel(f"ack {number}")
            self.channels[number].cancel(f"no ack {number}")

    def settle(self, number, settlements):
        channel, unsettled = self.channels[number], self.unsettled[number]
        with self.client.in_one_piece():
            for place, how, count in settlements:
                start = place % len(unsettled) if unsettled else 0
                tags = unsettled[start : start + count]
                if how == "ack all" and tags:
                    channel.ack(tags[-1], multiple=True)
                    start = 0
                elif how == "ack":
                    for tag in tags:
                        channel.ack(tag)
                else:
                    for tag in tags:
                        channel.reject(tag, requeue=how == "requeue")
                if tags:
                    del unsettled[start : unsettled.index(tags[-1]) + 1]

    def get(self, queue, count):
        return [event and seen(event) for event in (self.channels[CONFIRMING].get(queue, True) for _ in range(count))]

    def commit(self):
        try:
            self.channels[TRANSACTIONAL].call(m.TxCommit())
        except Refused as refused:
            # The transaction failed because a queue was full.
            self.client.events.pop(TRANSACTIONAL)
            self.channels[TRANSACTIONAL] = self.client.channel(TRANSACTIONAL)
            self.channels[TRANSACTIONAL].call(m.TxSelect())
            return str(refused)
        return None

    def rollback(self):
        self.channels[TRANSACTIONAL].call(m.TxRollback())


def seen(event):
    """An event as a value that can be compared, without the parts that depend on the broker's speed.

    These are the time of a death, and whether an expired message behind others in a full queue expires or is dropped
    for the next one: it expires when it becomes the head, unless messages that push it out come at once.
    """
    if event.properties is None:
        return event
    headers = event.properties.headers
    return event._replace(properties=replace(event.properties, headers=headers and comparable(headers)))


def comparable(headers):
    deaths = headers.get("x-death")
    if deaths is None:
        return headers
    if headers.get("x-first-death-reason") == ("S", b"expired"):
        headers = headers.replaced("x-first-death-reason", "S", b"maxlen")
    return headers.replaced("x-death", "A", tuple((letter, same_death(death)) for letter, death in deaths[1]))


def same_death(death):
    if death.get("reason") == ("S", b"expired"):
        death = death.replaced("reason", "S", b"maxlen")
    return death.without("time")
