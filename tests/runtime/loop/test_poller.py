"""Pollers: epoll and its replacement on other systems behave alike."""

from __future__ import annotations

import os
import socket

import pytest

from warren.runtime.loop import poller as poller_module
from warren.runtime.loop.poller import HANG_UP, MAX_EVENTS, READ, WRITE, EpollPoller, SelectorPoller

LINUX_ONLY = pytest.mark.skipif(not hasattr(poller_module.select, "epoll"), reason="this system has no epoll")


class Owner:
    def __init__(self):
        self.fds = set()


@pytest.fixture(params=[pytest.param(EpollPoller, marks=LINUX_ONLY), SelectorPoller])
def poller(request):
    poller = request.param()
    yield poller
    poller.close()


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_masks_are_those_of_epoll():
    """The masks of events are those of epoll, so that its events need no translation."""
    select = poller_module.select
    if hasattr(select, "epoll"):
        assert READ == select.EPOLLIN | select.EPOLLPRI
        assert WRITE == select.EPOLLOUT
        assert HANG_UP == select.EPOLLERR | select.EPOLLHUP | select.EPOLLRDHUP


def test_a_ready_descriptor_is_reported_until_it_is_served(poller, pair):
    """A descriptor is reported again until all its input is read, so that nothing is lost if a handler reads only a
    part.
    """
    ours, theirs = pair
    poller.watch(Owner(), ours.fileno(), READ)
    assert poller.poll(0) == []
    theirs.send(b"x")
    for _ in range(2):
        ((fd, mask),) = poller.poll(1)
        assert fd == ours.fileno() and mask & READ and not mask & WRITE
    ours.recv(1)
    assert poller.poll(0) == []


def test_only_what_is_watched_is_reported(poller, pair):
    """A change of the mask replaces the old one; an empty mask stops watching."""
    ours, theirs = pair
    owner = Owner()
    theirs.send(b"x")
    poller.watch(owner, ours.fileno(), WRITE)
    ((_, mask),) = poller.poll(1)
    assert mask & WRITE and not mask & READ
    poller.watch(owner, ours.fileno(), READ | WRITE)
    ((_, mask),) = poller.poll(1)
    assert mask & WRITE and mask & READ
    poller.watch(owner, ours.fileno(), 0)
    assert poller.poll(0) == [] and not owner.fds and not poller.owners


def test_the_end_of_a_connection_is_reported(poller, pair):
    """Whoever watches for reading learns that the other side has closed."""
    ours, theirs = pair
    poller.watch(Owner(), ours.fileno(), READ)
    theirs.close()
    ((_, mask),) = poller.poll(1)
    assert mask & (READ | HANG_UP)


def test_the_last_owner_gets_the_events(poller, pair):
    """If two processes watch one descriptor, the last one gets its events, and only that one can stop watching it."""
    ours, theirs = pair
    first, second = Owner(), Owner()
    poller.watch(first, ours.fileno(), READ)
    poller.watch(second, ours.fileno(), READ)
    assert not first.fds and second.fds == {ours.fileno()}
    poller.unwatch(first, ours.fileno())
    theirs.send(b"x")
    assert len(poller.poll(1)) == 1
    assert poller.owners[ours.fileno()][0] is second


def test_a_number_that_is_used_again_is_watched_again(poller, pair):
    """A descriptor closed without `unwatch` does not keep the next one of that number from being watched."""
    ours, theirs = pair
    poller.watch(Owner(), ours.fileno(), READ)
    number = ours.fileno()
    mine, again = socket.socketpair()
    with mine, again:
        ours.close()
        os.dup2(again.fileno(), number)
        poller.watch(Owner(), number, READ)
        mine.send(b"y")
        ((fd, _),) = poller.poll(1)
        assert fd == number
        os.close(number)


def test_a_closed_descriptor_can_be_unwatched(poller, pair):
    """A closed descriptor can still be unwatched: `on_exit` of a process may close its sockets before the system stops
    watching them.
    """
    ours, _ = pair
    owner, number = Owner(), ours.fileno()
    poller.watch(owner, number, READ)
    ours.close()
    poller.unwatch(owner, number)
    assert poller.poll(0) == [] and not owner.fds


def test_no_descriptor_starves(poller):
    """One poll reports MAX_EVENTS descriptors at most, and the next polls report the others."""
    pairs = [socket.socketpair() for _ in range(3 * MAX_EVENTS)]
    owner = Owner()
    for ours, theirs in pairs:
        theirs.send(b"x")
        poller.watch(owner, ours.fileno(), READ)
    seen = set()
    for _ in range(3):
        events = poller.poll(1)
        assert len(events) == MAX_EVENTS
        seen |= {fd for fd, _ in events}
    assert seen == {ours.fileno() for ours, _ in pairs}
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def test_poll_waits_no_longer_than_asked(poller, pair):
    """0 does not wait at all, a short time ends without events."""
    poller.watch(Owner(), pair[0].fileno(), READ)
    assert poller.poll(0) == []
    assert poller.poll(0.01) == []
