"""The operating system's sockets, and the replacement for a missing sendmsg."""

from __future__ import annotations

import socket

import pytest

from warren.runtime.machine.sockets import JOINED_MAX, JoiningSocket, SystemSockets


@pytest.fixture
def joining():
    """A JoiningSocket and the other end of its connection."""
    ours, theirs = socket.socketpair()
    with theirs, JoiningSocket(fileno=ours.detach()) as joined:
        yield joined, theirs


def test_buffers_are_joined(joining):
    """sendmsg of several buffers sends them one after the other and returns how many bytes that was."""
    joined, theirs = joining
    assert joined.sendmsg([b"one", memoryview(b"two"), b""]) == 6
    assert theirs.recv(100) == b"onetwo"


def test_a_long_list_of_buffers_is_joined_in_parts(joining):
    """At most a part of a long list of buffers is joined in one call, so that a slow reader does not make each call
    copy all that waits.
    """
    joined, theirs = joining
    joined.setblocking(False)
    taken = []

    def buffers():
        for _ in range(1_000):
            taken.append(1)
            yield bytes(JOINED_MAX // 4)

    assert 0 < joined.sendmsg(buffers()) <= JOINED_MAX
    assert len(taken) == 4


def test_adopting_a_descriptor():
    """A descriptor from a message becomes a non-blocking stream socket with sendmsg."""
    ours, theirs = socket.socketpair()
    with theirs, SystemSockets().adopt(ours.detach()) as adopted:
        with pytest.raises(BlockingIOError):
            adopted.recv(1)
        assert adopted.sendmsg([b"a", b"b"]) == 2
        assert theirs.recv(100) == b"ab"


def test_a_port_can_be_listened_on_again_at_once():
    """Connections in TIME_WAIT do not keep a broker from starting again, but another listener does."""
    sockets = SystemSockets()
    first = sockets.listen(socket.AF_INET, ("127.0.0.1", 0), 8)
    port = first.getsockname()[1]
    with pytest.raises(OSError):
        sockets.listen(socket.AF_INET, ("127.0.0.1", port), 8)
    with socket.create_connection(("127.0.0.1", port)):
        first.setblocking(True)
        accepted, _ = first.accept()
        accepted.close()
    first.close()
    sockets.listen(socket.AF_INET, ("127.0.0.1", port), 8).close()
