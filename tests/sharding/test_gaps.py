"""When `ShardedConsumer` skips a number that does not come (FC-81)."""

from __future__ import annotations

from queue import Queue

from warren.sharding.consumer import ShardedConsumer
from warren.sharding.hand_over import Strict
from warren.sharding.shard import Delivery


class FakeLoop:
    """A loop whose timers fire when the test says so. `posted` has what other threads want to have called."""

    def __init__(self):
        self.timers, self.posted = {}, Queue()

    def call_later(self, seconds, function):
        timer = object()
        self.timers[timer] = function
        return timer

    def remove_timeout(self, timer):
        del self.timers[timer]

    def add_callback_threadsafe(self, function):
        self.posted.put(function)


class FakeShard:
    index = 0


def test_other_publishers_do_not_prolong_a_gap():
    """A delivery behind a missing number waits for the gap timeout, although another publisher's deliveries go on. Each
    of these once started the timeout anew. A gap that came later gets its own time.
    """
    loop, got = FakeLoop(), []
    consumer = ShardedConsumer(loop, Strict(2), lambda delivery: got.append(delivery.body), 1, False, 1.0, None)

    def arrive(publisher, number):
        body = f"{publisher}{number}"
        delivery = Delivery(body, None, 0, "", "q", False, number, publisher, False, lambda outcome: None)
        consumer.arrived(FakeShard, delivery)

    try:
        arrive("a", 2)
        (timer,) = loop.timers
        for number in (0, 2, 4):
            arrive("b", number)
            if number == 0:
                loop.posted.get(timeout=20)()
            assert list(loop.timers) == [timer]
        assert got == ["b0"]
        loop.timers.pop(timer)()
        loop.posted.get(timeout=20)()
        assert got == ["b0", "a2"]
        (timer,) = loop.timers
        loop.timers.pop(timer)()
        loop.posted.get(timeout=20)()
        assert got == ["b0", "a2", "b2"]
    finally:
        consumer.end()
