"""How long a followed message takes from its channel to a consumer (CM-375)."""

import pytest

from warren.actors.statistics.histograms import Sample

from .core import Core


def followed(core, number, channel="publisher"):
    """Follow the publish with this number, which its channel has received just now."""
    core.state.histograms.samples.follow(core.state.row.queue_id, Sample(channel, number, core.now()))


def times(core):
    histogram = core.state.histograms.publish_to_deliver
    return sum(histogram.counts), histogram.total


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_message_that_waits_in_its_queue(no_ack):
    core = Core()
    followed(core, 3)
    core.publish(5)
    core.turn()
    core.seconds += 7.0
    assert times(core) == (0, 0)
    core.consume(no_ack=no_ack)
    core.turn()
    assert times(core) == (1, pytest.approx(7.0))
    assert core.master.dispatch.followed is None


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_message_that_a_consumer_gets_at_once(no_ack):
    core = Core()
    core.consume(no_ack=no_ack)
    followed(core, 3)
    core.seconds += 0.25
    core.publish(5)
    core.turn()
    assert times(core) == (1, pytest.approx(0.25))


def test_a_message_that_basic_get_takes():
    core = Core()
    followed(core, 1)
    core.publish(1)
    core.turn()
    core.seconds += 2.0
    for _ in core.master.get(core.channel()):
        pass
    assert times(core) == (1, pytest.approx(2.0))


def test_a_message_that_left_without_a_consumer_is_forgotten():
    core = Core()
    followed(core, 1)
    core.publish(1)
    core.turn()
    for _ in core.master.purge():
        pass
    core.publish(1, number=2)
    core.consume()
    core.turn()
    assert times(core) == (0, 0)
    followed(core, 3)
    core.seconds += 1.0
    core.publish(1, number=3)
    core.turn()
    assert times(core) == (1, pytest.approx(1.0)), "the next one is followed"


def test_a_later_sample_does_not_take_the_place_of_one_that_waits():
    core = Core()
    followed(core, 1)
    core.publish(1)
    core.turn()
    core.seconds += 5.0
    followed(core, 2)
    core.publish(1, number=2)
    core.turn()
    core.consume()
    core.turn()
    assert times(core) == (1, pytest.approx(5.0))


def test_a_priority_queue_counts_a_message_of_any_level():
    core = Core(x_max_priority=5)
    followed(core, 1)
    core.publish(1)
    core.turn()
    core.seconds += 3.0
    core.consume()
    core.turn()
    assert times(core) == (1, pytest.approx(3.0))
