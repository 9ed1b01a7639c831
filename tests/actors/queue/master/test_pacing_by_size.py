"""A pace by the size of messages (QP-101)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.queue.master.dispatch import SINGLES
from warren.amqp.frames import build_content, content_body
from warren.store.messages.message import Origin

from ...stage import PROPS
from .core import Paced


def publish_sizes(core, sizes):
    contents = [build_content(1, PROPS, bytes(size), 1 << 20) for size in sizes]
    origin = Origin("", ("q",), False, 0, None)
    core.master.publish(core.channel("publisher"), [(origin, contents, sum(sizes), 1, True, 0)])


def sizes_of(core):
    channels, core.effects.outbox.channels = core.effects.outbox.channels, {}
    return [
        len(content_body(content))
        for segments in channels.values()
        for _, runs in segments
        for run in runs
        for content in run[3]
    ]


def test_the_size_of_a_message_may_decide_how_long_the_next_one_waits():
    core = Paced(rate=10, cost="kib")
    core.consume()
    core.wait(60)
    publish_sizes(core, [3 * 1024, 0, 1025, 10])
    core.turn()
    assert sizes_of(core) == [3072]
    core.wait(0.2999)
    assert sizes_of(core) == []
    core.wait(0.0002)
    assert sizes_of(core) == [0], "it waited for the three slots of the first"
    core.wait(0.1001)
    assert sizes_of(core) == [1025]
    core.wait(0.1999)
    assert sizes_of(core) == []
    core.wait(0.0002)
    assert sizes_of(core) == [10]


def test_a_message_is_admitted_if_its_first_slot_comes_in_time():
    core = Paced(rate=10, cost="kib", max_wait_ms=500, overflow="nack")
    publish_sizes(core, [2048, 4096, 1, 1])
    core.turn()
    # The slots of the first two begin after 0.1 and 0.3 s; those of the third would begin after 0.7 s, which is too
    # late.
    assert len(core.backing) == 2
    assert [ranges for _, _, ranges, _ in core.sent("refuse")] == [[(3, 4)]]
    assert core.master.info()["pace"]["planned_wait_ms"] == pytest.approx(600, abs=110)


@given(st.lists(st.integers(0, 20_000), max_size=40), st.lists(st.floats(0.001, 2.0), max_size=40))
def test_sizes_never_exceed_the_rate(sizes, pauses):
    core = Paced(rate=20, cost="kib")
    core.consume()
    publish_sizes(core, sizes) if sizes else None
    core.turn()
    costs = 0
    began = core.seconds
    for pause in pauses:
        core.wait(pause)
        for size in sizes_of(core):
            # The slots of everything that was delivered before this message have passed.
            assert costs <= (core.seconds - began) * 20 + 1
            costs += -(-size // 1024) or 1


def test_a_turn_delivers_a_bounded_number_one_by_one():
    core = Paced(rate=1_000_000, cost="kib")
    consumer = core.consume(no_ack=True)
    core.wait(1)
    publish_sizes(core, [1] * 300)
    core.turn()
    assert 0 < len(sizes_of(core)) < SINGLES and core.effects.needs_turn and core.master.dispatch.is_due
    core.master.sent(consumer.channel, SINGLES)
    core.turn()
    assert len(sizes_of(core)) > 0
