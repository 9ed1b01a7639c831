"""How long the publishes of a channel wait for their confirms (CM-375)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.channel.publishing.confirm_times import MOST, ConfirmTimes
from warren.actors.statistics.histograms import SECONDS, TIMED_OF, TIMED_SECONDS, Histogram, TimedConfirms


class Channel:
    """The times of one channel, on a clock that the test moves."""

    def __init__(self, uncounted=0):
        self.now = 100.0
        self.histogram = Histogram(SECONDS)
        self.timed = TimedConfirms(self.histogram)
        self.times = ConfirmTimes(self.timed, lambda: self.now, uncounted)
        self.number = uncounted + 1

    def publish(self, count=1):
        self.timed.left -= count
        if self.timed.left <= 0:
            self.times.begin(self.number)
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
    for _ in range(10):
        channel.publish(10)  # in the same millisecond
    channel.times.settled([(100, True)], [])
    assert channel.counted == 100 - (channel.timed._of - channel.timed.left), "the rest counts with the next one"
    assert channel.times.waiting == []


def test_the_more_messages_come_the_fewer_are_timed():
    channel = Channel()
    for _ in range(10 * TIMED_OF):
        channel.publish()
    assert len(channel.times.waiting) < 20
    channel.times.settled([(channel.number, True)], [])
    for _ in range(3 * TIMED_OF):
        channel.now += TIMED_SECONDS
        channel.publish()
    before = len(channel.times.waiting)
    for _ in range(10):
        channel.now += TIMED_SECONDS
        channel.publish()
    assert len(channel.times.waiting) == before + 10, "with one message in a millisecond each is timed"


def test_a_confirm_of_earlier_publishes_changes_nothing():
    channel = Channel()
    channel.times.begin(10)
    channel.times.settled([(9, True)], [])
    assert channel.counted == 0 and len(channel.times.waiting) == 1


def test_a_refused_publish_is_not_counted():
    channel = Channel()
    for _ in range(3):
        channel.publish()
        channel.now += TIMED_SECONDS
    channel.times.settled([(3, False)], [(2, True)])
    assert channel.counted == 1 and channel.times.waiting == []


def test_a_confirm_out_of_order_leaves_the_earlier_ones_waiting():
    channel = Channel()
    for _ in range(3):
        channel.publish()
        channel.now += TIMED_SECONDS
    channel.times.settled([(2, False)], [])
    assert [timed.tag for timed in channel.times.waiting] == [1, 3]


def test_the_publishes_that_wait_are_bounded():
    channel = Channel()
    for _ in range(10 * MOST):
        channel.publish()
        channel.now += TIMED_SECONDS
    assert len(channel.times.waiting) == MOST
    channel.times.settled([(10 * MOST, True)], [])
    channel.publish()
    channel.times.settled([(channel.number - 1, False)], [])
    assert channel.counted == 10 * MOST + 1, "each is counted once, those without a place with the next that has one"


@given(
    st.lists(st.tuples(st.integers(1, 500), st.sampled_from([0.0, TIMED_SECONDS / 3, TIMED_SECONDS, 0.1])), min_size=1)
)
def test_every_confirmed_message_up_to_the_last_timed_one_is_counted_once(runs):
    channel = Channel()
    for count, pause in runs:
        channel.publish(count)
        channel.now += pause
    channel.publish(TIMED_OF)  # the last one of this run is timed
    channel.times.settled([(channel.number - 1, True)], [])
    assert channel.counted == channel.number - 1
