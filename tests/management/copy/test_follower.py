"""How old the copy of the node may be that a request is answered from."""

import asyncio

import pytest

from warren.management.copy.follower import AGE_MAX, OLD, WAIT_MAX, StatisticsFollower
from warren.management.copy.node_link import NodeUnreachable

INTERVAL = 5.0


class Node:
    """A node whose statistics arrive when the test lets them, and the copy that they are applied to."""

    def __init__(self):
        self.fetches = 0
        self.copy = []
        self.may_answer = asyncio.Event()
        self.error = None

    async def feed(self):
        return self

    async def rows(self, operation, arguments):
        self.fetches += 1
        number = self.fetches
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        yield [number]

    def close(self):
        pass

    def clear(self):
        self.copy = []

    def apply(self, rows):
        self.copy += rows


@pytest.fixture
def clock(monkeypatch):
    """The clock of the follower, which stands still; `clock.now` sets it."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    found = Clock()
    monkeypatch.setattr("warren.management.copy.follower.time", found)
    return found


def follow(test):
    """Run a test with a node and a follower of it."""

    async def run():
        node = Node()
        await test(node, StatisticsFollower(node, node, INTERVAL))

    asyncio.run(asyncio.wait_for(run(), 60.0))


async def slow_fetch(node, follower, clock, seconds=1.0):
    """A fetch that takes this long."""
    node.may_answer.clear()
    fetch = asyncio.create_task(follower.fresh(at_once=True))
    while not node.fetches:
        await asyncio.sleep(0)
    clock.now += seconds
    node.may_answer.set()
    await fetch
    node.may_answer.clear()


def test_a_request_waits_for_a_quick_fetch(clock):
    async def test(node, follower):
        node.may_answer.set()
        await follower.fresh()
        assert node.copy == [1]
        clock.now += AGE_MAX
        await follower.fresh()
        assert node.copy == [1]
        clock.now += 0.01
        await follower.fresh()
        assert node.copy == [1, 2]

    follow(test)


def test_a_request_waits_for_the_first_copy_however_long_it_takes(clock):
    async def test(node, follower):
        request = asyncio.create_task(follower.fresh())
        await asyncio.sleep(2 * WAIT_MAX)
        assert not request.done()
        node.may_answer.set()
        await request
        assert node.copy == [1]

    follow(test)


def test_a_request_does_not_wait_for_a_fetch_after_a_slow_one(clock):
    """It is answered from the copy, and the next fetch begins only when the node has had ten times as long as the slow
    one took, or an interval.
    """

    async def test(node, follower):
        await slow_fetch(node, follower, clock, 0.2)
        clock.now += 1.5
        await follower.fresh()
        assert (node.fetches, node.copy) == (1, [1])
        clock.now += 0.2
        await follower.fresh()
        while node.fetches < 2:
            await asyncio.sleep(0)
        assert node.copy == [1]
        node.may_answer.set()
        await follower.fresh(at_once=True)
        assert node.copy[:2] == [1, 2]

    follow(test)


def test_a_request_does_not_wait_for_long_for_the_first_slow_fetch():
    async def test(node, follower):
        node.may_answer.set()
        await follower.fresh()
        node.may_answer.clear()
        await asyncio.sleep(AGE_MAX + 0.01)
        await follower.fresh()
        assert (node.fetches, node.copy) == (2, [1])

    follow(test)


def test_a_request_sees_what_an_earlier_one_has_changed(clock):
    """It waits for a fetch that began after the change, however long that takes."""

    async def test(node, follower):
        await slow_fetch(node, follower, clock)
        begun_before = asyncio.create_task(follower.fresh(at_once=True))
        while node.fetches < 2:
            await asyncio.sleep(0)
        clock.now += 0.1
        follower.changed()
        request = asyncio.create_task(follower.fresh())
        await asyncio.sleep(2 * WAIT_MAX)
        assert not request.done()
        node.may_answer.set()
        await request
        assert begun_before.done() and node.copy == [1, 2, 3]

    follow(test)


def test_a_copy_of_a_node_that_does_not_answer_is_not_used_for_ever(clock):
    async def test(node, follower):
        await slow_fetch(node, follower, clock)
        clock.now += 2 * INTERVAL
        request = asyncio.create_task(follower.fresh())
        await asyncio.sleep(2 * WAIT_MAX)
        assert not request.done()
        node.error = NodeUnreachable("gone")
        node.may_answer.set()
        with pytest.raises(NodeUnreachable):
            await request
        # The copy is of a connection that is lost, so the next request fails as well.
        with pytest.raises(NodeUnreachable):
            await follower.fresh()

    follow(test)


def test_a_node_that_stands_still_is_noticed(clock, monkeypatch):
    """A process that gets SIGSTOP keeps its connections and answers nothing. Requests end, and the metrics do not show
    the same numbers for ever as if all were well.
    """
    monkeypatch.setattr("warren.management.copy.follower.ANSWER_SECONDS", 0.05)

    async def run(node, follower):
        with pytest.raises(NodeUnreachable):
            follower.check_answers()
        node.may_answer.set()
        await follower.fresh()
        clock.now += OLD * INTERVAL
        follower.check_answers()
        node.may_answer.clear()
        clock.now += 0.1
        with pytest.raises(NodeUnreachable, match="it has not answered for 10 s"):
            follower.check_answers()
        with pytest.raises(NodeUnreachable, match="it has not answered for 0 s"):
            await follower.fresh()
        node.may_answer.set()
        await follower.fresh(at_once=True)
        follower.check_answers()

    follow(run)
