"""How long the publishes of a channel wait for their confirms (CM-375)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.channel.publishing.confirm_times import INTERVAL, MOST, ConfirmTimes
from warren.actors.statistics.histograms import NodeHistograms


class Channel:
    """The times of one channel, on a clock that the test moves."""

    def __init__(self, uncounted=0, node=None):
        self.now = 100.0
        self.node = node or NodeHistograms()
        self.histogram = self.node.publish_to_confirm
        self.times = ConfirmTimes(self.node, lambda: self.now, uncounted)
        self.number = uncounted + 1

    def publish(self, count=1):
        self.times.published(self.number, count)
        self.number += count

    @property
    def counted(self):
        return sum(self.histogram.counts)


def test_a_confirm_counts_the_time_since_its_publish():
    channel = Channel()
    channel.publish()
    channel.now += 0.02
    channel.times.settled([(1, False)], [])
    assert channel.counted == 1 and channel.histogram.total == pytest.approx(0.02)


def test_publishes_before_confirm_select_have_no_delivery_tags():
    channel = Channel(uncounted=40)
    channel.publish()
    channel.times.settled([(1, False)], [])
    assert channel.counted == 1


def test_a_timed_publish_stands_for_those_since_the_one_before():
    channel = Channel()
    channel.publish(400)
    channel.publish(300)  # in the same millisecond
    channel.now += INTERVAL
    channel.publish(100)
    channel.now += INTERVAL
    channel.times.settled([(800, True)], [])
    assert channel.counted == 800, "the 300 are counted with the 100 that follow"
    assert channel.times.waiting == []


def test_channels_share_the_milliseconds_of_their_node():
    node = NodeHistograms()
    one, other = Channel(node=node), Channel(node=node)
    one.publish(5)
    other.publish(7)
    assert [len(each.times.waiting) for each in (one, other)] == [1, 0]
    other.now += INTERVAL
    other.publish()
    assert other.times.waiting[0].weight == 8, "what it did not time counts with the next"


def test_a_confirm_of_earlier_publishes_changes_nothing():
    channel = Channel(uncounted=0)
    channel.times.published(10, 1)
    channel.times.settled([(9, True)], [])
    assert channel.counted == 0 and len(channel.times.waiting) == 1


def test_a_refused_publish_is_not_counted():
    channel = Channel()
    for _ in range(3):
        channel.publish()
        channel.now += INTERVAL
    channel.times.settled([(3, False)], [(2, True)])
    assert channel.counted == 1 and channel.times.waiting == []


def test_a_confirm_out_of_order_leaves_the_earlier_ones_waiting():
    channel = Channel()
    for _ in range(3):
        channel.publish()
        channel.now += INTERVAL
    channel.times.settled([(2, False)], [])
    assert [timed.tag for timed in channel.times.waiting] == [1, 3]


def test_the_publishes_that_wait_are_bounded():
    channel = Channel()
    for _ in range(10 * MOST):
        channel.publish()
        channel.now += INTERVAL
    assert len(channel.times.waiting) == MOST
    channel.times.settled([(10 * MOST, True)], [])
    channel.publish()
    channel.times.settled([(channel.number - 1, False)], [])
    assert channel.counted == 10 * MOST + 1, "each is counted once, those without a place with the next that has one"


@given(st.lists(st.tuples(st.integers(1, 500), st.sampled_from([0.0, INTERVAL / 3, INTERVAL, 0.1])), min_size=1))
def test_every_confirmed_message_up_to_the_last_timed_one_is_counted_once(runs):
    channel = Channel()
    for count, pause in runs:
        channel.publish(count)
        channel.now += pause
    channel.now += INTERVAL
    channel.publish()
    channel.times.settled([(channel.number - 1, True)], [])
    assert channel.counted == channel.number - 1
