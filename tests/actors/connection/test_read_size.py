"""How much a connection reads at a time."""

from __future__ import annotations

from warren.actors.connection.read_size import READ_MAX, READ_MIN, SMALL_READS, ReadSize


def after(*reads, size=None):
    size = size or ReadSize()
    for received in reads:
        size.adapt(received)
    return size.size


def test_it_grows_while_the_buffer_is_filled():
    assert after() == READ_MIN
    assert after(READ_MIN) == 2 * READ_MIN
    assert after(READ_MIN, 2 * READ_MIN, 4 * READ_MIN) == 8 * READ_MIN
    assert after(*(READ_MIN << step for step in range(10))) == READ_MAX


def test_it_shrinks_when_little_came_again_and_again():
    full = [READ_MIN, 2 * READ_MIN]
    assert after(*full, *[100] * (SMALL_READS - 1)) == 4 * READ_MIN
    assert after(*full, *[100] * SMALL_READS) == 2 * READ_MIN
    assert after(*full, *[100] * 10 * SMALL_READS) == READ_MIN


def test_a_client_that_sends_a_little_more_than_that_is_read_at_once():
    """A read size shrinks only after several small reads. If it were halved at once, each write of such a client would
    take two reads, one full and one nearly empty.
    """
    size = ReadSize()
    after(READ_MIN, 810, size=size)
    assert size.size > READ_MIN + 810
    assert after(READ_MIN + 810, 100, READ_MIN + 810, 100, size=size) == 2 * READ_MIN
