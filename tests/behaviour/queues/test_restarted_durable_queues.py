"""Durable queues after a restart of the broker: priority_queue_recovery_SUITE (queue-and-store section 12.4), and
faults that the torture test has found.
"""

from __future__ import annotations

import pytest

from warren import Broker
from warren.store.journal.number_reserve import AHEAD

from ..inside import Inside
from ..wire import Client

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


class Restarts:
    """A broker on a data directory. `again` restarts it; `channel` is then on a new connection."""

    def __init__(self, data_dir):
        self.data_dir = data_dir
        self.start()

    def start(self):
        self.broker = Broker(data_dir=self.data_dir, stop_timeout=100).start()
        self.client = Client(self.broker.url)
        self.channel = self.client.channel()

    def again(self):
        self.client.close()
        self.broker.stop()
        self.start()

    def fill(self, queue, bodies, **properties):
        channel = self.client.channel()
        channel.confirm()
        for body in bodies:
            channel.publish(body, queue, delivery_mode=2, **properties)
        channel.confirms(1, len(bodies))
        channel.close()


@pytest.fixture
def restarts(tmp_path):
    restarts = Restarts(str(tmp_path / "data"))
    yield restarts
    restarts.client.abort()
    restarts.broker.stop()


@pytest.mark.parametrize("size", [10, 5000], ids=["embedded", "stored"])
def test_recovery(restarts, size):
    """After a broker restart nine messages come in the order 3,3,3,2,2,2,1,1,1, each priority first in, first out."""
    restarts.channel.queue("q", {"x-max-priority": 3}, durable=True)
    for number, priority in enumerate((1, 2, 3) * 3):
        restarts.fill("q", [f"{priority}{number}".ljust(size)], priority=priority)
    for _ in range(2):
        restarts.again()
        events = [restarts.channel.get("q") for _ in range(9)]
        assert [event.body.strip().decode() for event in events] == [
            "32",
            "35",
            "38",
            "21",
            "24",
            "27",
            "10",
            "13",
            "16",
        ]
        assert restarts.channel.get("q") is None


@pytest.mark.parametrize("arguments", [{}, {"x-queue-mode": "lazy"}], ids=["plain", "lazy"])
def test_a_queue_that_crashes_empty_keeps_its_numbers(restarts, arguments):
    """A queue that crashes while it is empty keeps its next number. Otherwise records of old messages in journal and
    store would count for new messages with the same numbers.
    """
    restarts.channel.queue("q", arguments, durable=True)
    restarts.fill("q", ["gone"] * 5)
    restarts.channel.take("q", 5)
    Inside(restarts.broker).crash("q")
    restarts.broker.wait_idle()
    restarts.fill("q", ["new"])
    assert 6 <= restarts.broker.queue("q").next_number <= 6 + AHEAD


def test_messages_that_expire_while_the_broker_is_down_are_dead_lettered(restarts):
    """queue-and-store section 10.1: queues expire their heads after all exchanges and queues are recovered, so every
    dead letter reaches its queue.
    """
    restarts.channel.queue("dead", durable=True)
    for number in range(5):
        restarts.channel.queue(f"short {number}", {"x-message-ttl": 300, **DEAD}, durable=True)
        restarts.fill(f"short {number}", [f"{number}"])
    restarts.again()
    restarts.channel.expect_ready("dead", 5)
    events = [restarts.channel.get("dead") for _ in range(5)]
    assert sorted(event.body for event in events) == [b"0", b"1", b"2", b"3", b"4"]
    assert all(event.headers.get("x-death") for event in events)


@pytest.mark.parametrize("arguments", [{}, {"x-queue-mode": "lazy"}], ids=["plain", "lazy"])
def test_dead_letters_of_a_stopping_broker_are_not_lost(restarts, arguments):
    """A clean stop puts all queues on hold before it ends one, so dead letters of messages that expire during the stop
    are not lost.
    """
    restarts.channel.queue("dead", durable=True)
    for number in range(20):
        restarts.channel.queue(f"q{number}", {"x-message-ttl": 50 + number, **arguments, **DEAD}, durable=True)
    for round_number in range(3):
        for number in range(20):
            restarts.fill(f"q{number}", ["x" * 5000] * 5)
        restarts.again()
        restarts.channel.expect_ready("dead", 100 * (round_number + 1))


def test_x_death_survives(restarts):
    """A dead letter keeps its x-death header over a restart, and the header grows when it dies again."""
    restarts.channel.queue("dead", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}, durable=True)
    restarts.channel.queue("q", DEAD, durable=True)
    restarts.fill("q", ["1"])
    for count in (1, 2):
        restarts.channel.nack(restarts.channel.get("q").tag, requeue=False)
        restarts.channel.expect_ready("dead", 1)
        restarts.again()
        event = restarts.channel.get("dead")
        letter, deaths = event.headers.get("x-death")
        newest = {name: value for name, _, value in deaths[0][1]}
        assert (newest["queue"], newest["reason"], newest["count"]) == (b"q", b"rejected", count)
        restarts.channel.nack(event.tag, requeue=False)
        restarts.channel.expect_ready("q", 1)


@pytest.mark.parametrize("size", [10, 5000], ids=["embedded", "stored"])
def test_a_dead_letter_reaches_a_queue_that_nobody_has_needed_since_the_restart(restarts, size):
    """A queue of dead letters that has no process since the restart gets one with the first dead letter, and the next
    restart has all of them.
    """
    restarts.channel.queue("dead", durable=True)
    restarts.channel.queue("q", DEAD, durable=True)
    bodies = [str(number).ljust(size) for number in range(6)]
    restarts.fill("q", bodies)
    for end in (3, 6):
        restarts.again()
        for _ in range(3):
            restarts.channel.reject(restarts.channel.get("q").tag, requeue=False)
        restarts.channel.expect_ready("dead", end)
    restarts.again()
    assert restarts.channel.get_all("dead") == [body.encode() for body in bodies]
