"""classic_queue_prop_SUITE (queue-and-store sections 12.6 and 12.8): random commands on a durable queue.

The commands come through channels of one connection; the queue crashes, and the broker restarts. Each command waits
until the queue has handled it, so the model knows exactly which messages are ready, in which order, and which channel
has which unacknowledged. Only a message with an expiration may leave at any time. After a crash of the queue, as after
a stop of the broker, all persistent messages are there, confirmed or not: the journal and the stores keep running and
have everything that the queue sent them. `WARREN_PROP_EXAMPLES` sets the number of sequences; the suite runs 500.
"""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from warren import Broker, broker
from warren.actors.node import restart_policy as restarts
from warren.running_node import RunningNode
from warren.store.data_dir.file_limits import REAL_FILES

from ..inside import Inside
from ..wire import Client

QUEUE = "q"
EXAMPLES = int(os.environ.get("WARREN_PROP_EXAMPLES", "12"))
PICKS = st.integers(0, 1 << 16)
SIZES = st.one_of(st.integers(0, 200), st.integers(3_900, 4_300), st.sampled_from([20_000, 200_000, 1 << 20]))


@dataclass(eq=False)
class Sent:
    number: int
    size: int
    persistent: bool
    expires: bool
    #: The channel that has the message unacknowledged.
    channel: int | None = None
    tag: int = 0
    delivered: bool = False

    @property
    def body(self) -> str:
        return f"{self.number} ".ljust(self.size, "x")


class ClassicQueue(RuleBasedStateMachine):
    mode = "default"
    embed_below: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="warren-prop-")
        limits = (
            replace(REAL_FILES, segment_entries=512)
            if self.embed_below is None
            else replace(REAL_FILES, segment_entries=512, embed_below=self.embed_below)
        )
        self.patches = [
            mock.patch.object(broker, "RunningNode", partial(RunningNode, limits=limits)),
            mock.patch.object(restarts, "MAX_RESTARTS", 1_000_000),
        ]
        for patch in self.patches:
            patch.start()
        self.broker = Broker(data_dir=self.directory.name + "/data", stop_timeout=200)
        self.messages: list[Sent] = []  # in the queue's order
        self.numbers = 0
        self.start()
        self.channels[0].queue(QUEUE, {"x-queue-mode": self.mode}, durable=True)

    def start(self) -> None:
        self.broker.start()
        self.client = Client(self.broker.url)
        self.channels = {0: self.client.channel()}
        self.published: dict[int, int] = {}  # on channels in confirm mode

    def teardown(self) -> None:
        try:
            self.check_all()
        finally:
            self.client.abort()
            self.broker.stop()
            for patch in self.patches:
                patch.stop()
            self.directory.cleanup()

    # -- the model

    def ready(self) -> list[Sent]:
        return [sent for sent in self.messages if sent.channel is None]

    def certain(self) -> int:
        return sum(not sent.expires for sent in self.ready())

    def came(self, event) -> Sent:
        """Find the delivered message in the model. Only messages that may have expired can stand before it (QS-45)."""
        for sent in self.ready():
            if sent.body.encode() == event.body:
                assert event.method.redelivered or not sent.delivered, (
                    f"{sent} was delivered before, and is not marked as redelivered"
                )
                return sent
            assert sent.expires, f"{event.body[:40]!r} was delivered, but {sent} is before it"
            self.messages.remove(sent)
        raise AssertionError(f"{event.body[:40]!r} is not in the queue")

    def holds(self, event, channel: int) -> None:
        sent = self.came(event)
        sent.channel, sent.tag, sent.delivered = channel, event.tag, True

    def release(self, channel: int | None = None) -> None:
        """Make the unacknowledged messages of one channel, or of all, ready again."""
        for sent in self.messages:
            if channel is None or sent.channel == channel:
                sent.channel = None

    def sync(self) -> None:
        """Wait until the queue has handled everything; the answer to a declare alone may overtake publishes."""
        self.broker.wait_idle()

    def check_all(self) -> None:
        """Assert that exactly the ready messages are delivered, in order (QS-46, QS-48)."""
        while (event := self.channels[0].get(QUEUE, no_ack=True)) is not None:
            self.messages.remove(self.came(event))
        assert not self.certain(), f"missing: {[sent for sent in self.ready() if not sent.expires]}"

    def picked(self, pick: int, first: int = 0) -> int:
        """The number of a channel. Hypothesis draws only `pick`, so that no draw depends on what has expired."""
        numbers = sorted(self.channels)[first:]
        return numbers[pick % len(numbers)]

    # -- the broker

    @rule()
    def restart_vhost_clean(self) -> None:
        self.client.close()
        self.broker.stop()
        self.messages = [sent for sent in self.messages if sent.persistent]
        self.release()
        self.start()

    @rule()
    def kill_queue(self) -> None:
        self.channels[0].ready(QUEUE)  # a request gives the queue its process, which it may lack after a restart
        Inside(self.broker).crash(QUEUE)
        self.sync()
        self.channels[0].ready(QUEUE)  # the queue's next process answers
        self.messages = [sent for sent in self.messages if sent.persistent]
        self.release()

    @rule(mode=st.sampled_from(["default", "lazy"]))
    def set_mode(self, mode) -> None:
        self.broker.set_queue_mode(QUEUE, mode)
        assert self.broker.queue(QUEUE).queue_mode == mode

    @rule()
    def purge(self) -> None:
        least = self.certain()
        assert least <= self.channels[0].purge(QUEUE) <= len(self.ready())
        self.messages = [sent for sent in self.messages if sent.channel is not None]

    # -- channels

    @precondition(lambda self: len(self.channels) < 4)
    @rule(confirm=st.booleans())
    def open_channel(self, confirm) -> None:
        number = max(self.channels) + 1
        self.channels[number] = self.client.channel()
        if confirm:
            self.channels[number].confirm()
            self.published[number] = 0

    @precondition(lambda self: len(self.channels) > 1)
    @rule(pick=PICKS)
    def close_channel(self, pick) -> None:
        number = self.picked(pick, first=1)
        self.channels.pop(number).close()
        self.published.pop(number, None)
        self.release(number)

    @rule(pick=PICKS, size=SIZES, persistent=st.booleans(), expiration=st.one_of(st.none(), st.integers(0, 100)))
    def publish(self, pick, size, persistent, expiration) -> None:
        self.publish_many(pick, 1, size, persistent, expiration)

    @rule(pick=PICKS, count=st.integers(2, 512), size=st.integers(0, 5_000), persistent=st.booleans())
    def publish_several(self, pick, count, size, persistent) -> None:
        self.publish_many(pick, count, size, persistent, None)

    def publish_many(self, pick, count, size, persistent, expiration) -> None:
        number = self.picked(pick)
        channel = self.channels[number]
        with self.client.in_one_piece():
            for _ in range(count):
                sent = Sent(self.numbers, size, persistent, expiration is not None)
                self.numbers += 1
                self.messages.append(sent)
                channel.publish(
                    sent.body,
                    QUEUE,
                    delivery_mode=2 if persistent else 1,
                    expiration=None if expiration is None else str(expiration),
                )
        if number in self.published:
            first = self.published[number] + 1
            self.published[number] += count
            assert len(channel.confirms(first, self.published[number])[0]) == count  # QS-47: all are confirmed
        self.sync()

    @rule(pick=PICKS, no_ack=st.booleans())
    def get(self, pick, no_ack) -> None:
        number = self.picked(pick)
        event = self.channels[number].get(QUEUE, no_ack)
        if event is None:
            assert not self.certain()
            self.messages = [sent for sent in self.messages if sent.channel is not None]
        elif no_ack:
            self.messages.remove(self.came(event))
        else:
            self.holds(event, number)

    @rule(pick=PICKS, count=st.integers(1, 600))
    def consume_and_cancel(self, pick, count) -> None:
        number = self.picked(pick)
        channel = self.channels[number]
        channel.qos(count)
        tag = channel.consume(QUEUE)
        events = channel.deliveries(min(count, self.certain()))
        channel.cancel(tag)
        events += channel.deliveries(len(channel.pending))
        for event in events:
            self.holds(event, number)
        self.sync()

    @rule(
        pick=PICKS,
        outcome=st.sampled_from(["ack", "requeue", "discard"]),
        count=st.integers(1, 10),
        multiple=st.booleans(),
    )
    def settle(self, pick, outcome, count, multiple) -> None:
        """Settle one message, several out of order, or all up to one."""
        number = self.picked(pick)
        held = [sent for sent in self.messages if sent.channel == number]
        if not held:
            return
        chosen = random.Random(pick).sample(held, min(len(held), 1 if multiple else count))
        channel = self.channels[number]
        for sent in chosen:
            if outcome == "ack":
                channel.ack(sent.tag, multiple)
            else:
                channel.nack(sent.tag, multiple, requeue=outcome == "requeue")
        if multiple:
            chosen = [sent for sent in held if sent.tag <= chosen[0].tag]
        for sent in chosen:
            sent.channel = None
            if outcome != "requeue":
                self.messages.remove(sent)
        self.sync()


def run(**options) -> None:
    machine = type("Machine", (ClassicQueue,), options)
    # No shrinking: it would take an hour of starting brokers to make a failure shorter.
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.hypothesis
@pytest.mark.timeout(60 + 10 * EXAMPLES)
@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_classic_queue_v1_and_lazy_queue_v1(mode):
    """Random command sequences agree with the model of queue-and-store section 12.8."""
    run(mode=mode)


@pytest.mark.hypothesis
@pytest.mark.timeout(60 + 10 * EXAMPLES)
@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_classic_queue_v2_and_lazy_queue_v2(mode):
    """Random command sequences agree with the model also if every body goes to the message store."""
    run(mode=mode, embed_below=0)


def test_reg_v1_full_recover_only_journal(tmp_path):
    """After a crash a lazy queue gets 117 persistent messages. A clean restart recovers them, though only the journal
    has them.
    """
    with Broker(data_dir=str(tmp_path / "data"), stop_timeout=200) as broker:
        client = Client(broker.url)
        channel = client.channel()
        channel.queue(QUEUE, {"x-queue-mode": "lazy"}, durable=True)
        Inside(broker).crash(QUEUE)
        broker.wait_idle()
        channel.confirm()
        bodies = [f"{number} ".ljust(4_500, "y") for number in range(117)]
        for body in bodies:
            channel.publish(body, QUEUE, delivery_mode=2)
        assert len(channel.confirms(1, 117)[0]) == 117
        client.close()
    with broker:
        client = Client(broker.url)
        found = [body.decode() for body in client.channel().get_all(QUEUE)]
        client.close()
    assert found == bodies
