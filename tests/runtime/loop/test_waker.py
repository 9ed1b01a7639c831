"""Wakers: eventfd and its replacement on other systems behave alike."""

from __future__ import annotations

import os
import select

import pytest

from warren.runtime.loop.waker import EventWaker, SocketWaker

LINUX_ONLY = pytest.mark.skipif(not hasattr(os, "eventfd"), reason="this system has no eventfd")


def is_readable(fd):
    return bool(select.select([fd], [], [], 0)[0])


@pytest.fixture(params=[pytest.param(EventWaker, marks=LINUX_ONLY), SocketWaker])
def waker(request):
    waker = request.param()
    yield waker
    waker.close()


def test_it_is_readable_from_wake_to_drain(waker):
    """Two wakes are one; draining twice does no harm."""
    assert not is_readable(waker.fd)
    waker.wake()
    waker.wake()
    assert is_readable(waker.fd)
    waker.drain()
    waker.drain()
    assert not is_readable(waker.fd)


def test_any_number_of_wakes_is_drained_at_once(waker):
    """However often a waker was woken, one drain empties it: otherwise a loop that was busy for long would spin, or
    whoever wakes it would wait or fail.
    """
    for _ in range(100_000):
        waker.wake()
    assert is_readable(waker.fd)
    waker.drain()
    assert not is_readable(waker.fd)


@pytest.mark.parametrize("kind", [pytest.param(EventWaker, marks=LINUX_ONLY), SocketWaker])
def test_waking_a_closed_one_does_nothing(kind):
    """Waking a closed waker does nothing, because another thread may post a call while the loop ends."""
    waker = kind()
    waker.close()
    waker.wake()
