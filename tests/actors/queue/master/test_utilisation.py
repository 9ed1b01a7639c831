"""The share of the time in which a queue could deliver at once, computed as RabbitMQ does."""

import pytest

from warren.actors.queue.master.utilisation import Utilisation


@pytest.fixture
def clock():
    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    return Clock()


def test_a_queue_that_is_never_held_back(clock):
    use = Utilisation(clock)
    assert use.value() == 1.0
    clock.now += 50
    assert use.value() == 1.0


def test_the_share_of_the_last_second(clock):
    """The share is that of the last second: a phase of a second or more replaces what was before."""
    use = Utilisation(clock)
    clock.now += 3
    use.hold_back()
    clock.now += 1
    use.hold_back()
    assert use.value() == pytest.approx(0.75)
    use.let_go()
    use.let_go()
    assert use.value() == pytest.approx(0.75)
    clock.now += 1
    assert use.value() == 1.0


def test_a_short_phase_counts_in_proportion(clock):
    use = Utilisation(clock)
    use.hold_back()
    clock.now += 0.25
    assert use.value() == pytest.approx(0.75)
    use.let_go()
    clock.now += 0.5
    assert use.value() == pytest.approx(0.5 + 0.75 * 0.5)
