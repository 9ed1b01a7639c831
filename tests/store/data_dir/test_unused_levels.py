"""Priority levels without a message: a start makes nothing for them, and their numbering goes on."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ..sim_vhost import SimVhost, content

LEVELS = range(10)
KEPT = 3


@pytest.fixture(params=["kill", "power cut", "stop"])
def restart(request, tmp_path: Path):
    """A virtual host with a queue of ten priorities, and what ends and starts it."""
    vhost = SimVhost(tmp_path, {1: LEVELS[-1]})
    vhost.start()

    def restart() -> SimVhost:
        vhost.write_all()
        if request.param == "stop":
            vhost.stop()
            vhost.kill()
        elif request.param == "kill":
            vhost.kill()
        else:
            vhost.lose_power(Random(1))
        vhost.start()
        return vhost

    yield vhost, restart
    vhost.kill()


def publish(vhost: SimVhost, *priorities: int) -> None:
    for priority in priorities:
        vhost.queue.publish([content(priority, 10)], priority=priority)
    vhost.write_all()


def test_only_levels_with_messages_are_made(restart):
    """A queue with 255 priorities costs what the levels cost that hold messages."""
    vhost, again = restart
    publish(vhost, *LEVELS)
    found = vhost.queue.fetch(len(LEVELS))
    assert [got.tag >> 56 for got in found] == list(reversed(LEVELS))
    vhost.queue.ack([got.tag for got in found if got.tag >> 56 != KEPT])
    for _ in range(2):
        vhost = again()
        assert set(vhost.queue.levels) == {KEPT}
        assert [got.content for got in vhost.queue.look()] == [content(KEPT, 10)]


def test_the_numbering_of_an_unused_level_goes_on(restart):
    """The numbering of a level without messages goes on after a restart: otherwise an acknowledgement in the journal
    would count for a new message, which the next kill would lose.
    """
    vhost, again = restart
    publish(vhost, 0, 7, 7)
    tags = [got.tag for got in vhost.queue.fetch(3)]
    vhost.queue.ack(tags)
    vhost = again()
    assert not len(vhost.queue)
    publish(vhost, 7)
    [new] = vhost.queue.look()
    assert new.tag > max(tags)
    vhost = again()
    assert [got.content for got in vhost.queue.look()] == [content(7, 10)]


def test_a_queue_that_is_dormant_for_several_starts_keeps_its_numbering(restart):
    vhost, again = restart
    publish(vhost, 0, 7)
    tags = [got.tag for got in vhost.queue.fetch(2)]
    vhost.queue.ack(tags)
    for _ in range(3):
        vhost = again()
        assert vhost.queue.row.address.actorAddressString in vhost.base.dormant.by_address
    publish(vhost, 7)
    [new] = vhost.queue.look()
    assert new.tag > max(tags)
    vhost = again()
    assert len(vhost.queue) == 1
