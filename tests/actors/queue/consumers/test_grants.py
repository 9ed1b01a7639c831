"""The grants of a channel-wide prefetch and what follows them in one turn (AB-127)."""

from __future__ import annotations

import pytest

from ...stage import Stage, Stub


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


def test_a_grant_counts_before_the_publish_behind_it(stage):
    """A grant of a channel-wide prefetch that arrives with a publish is used first, so the head of a full queue is
    delivered and not dropped for the new message. The channel of another node has granted the delivery before that
    message was published.
    """
    queue, channel, publisher = stage.queue(x_max_length=1), stage.create(Stub), stage.create(Stub)
    queue.consume(channel, is_limited=True)
    queue.publish(publisher, [b"first"])
    stage.settle()
    assert len(stage.actor(channel).take("limiter_request")) == 1
    queue.tell(channel, "limiter_grant", 1)
    queue.publish(publisher, [b"second"])
    stage.settle()
    ((_, _, runs),) = stage.actor(channel).take("deliver")
    assert [len(contents) for _, _, _, contents in runs] == [1]
    assert queue.actor.role.counts()[0] == 1
