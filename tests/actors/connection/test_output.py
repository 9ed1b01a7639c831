"""The output of a connection: bytes stay in order, and each delivery is reported exactly when its bytes are written
(FC-32).
"""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.channel.consuming.channel_consumer import NOTICE_STEP
from warren.actors.connection.output import FIRST_WRITE, IOV_MAX, LARGE_OUTPUT, UNREPORTED_MAX, SocketOutput


@pytest.fixture
def pair():
    with tiny_pair() as sockets:
        yield sockets


class tiny_pair:
    """Two connected sockets with the smallest buffers that the kernel allows."""

    def __enter__(self):
        self.ours, self.theirs = socket.socketpair()
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        for sock in (self.ours, self.theirs):
            sock.setblocking(False)
        return self.ours, self.theirs

    def __exit__(self, *exc_info):
        self.ours.close()
        self.theirs.close()


class TakesAll:
    """Stands for a socket that takes everything at once."""

    def __init__(self):
        self.taken = []
        self.calls = []

    def send(self, data):
        return self.sendmsg([data])

    def sendmsg(self, buffers):
        self.taken += buffers
        self.calls.append(sum(map(len, buffers)))
        return self.calls[-1]


def read(sock: socket.socket, most: int = 1 << 20) -> bytes:
    try:
        return sock.recv(most)
    except BlockingIOError:
        return b""


queues = st.sampled_from(["q1", "q2"])
puts = st.tuples(
    st.just("put"),
    st.integers(1, 9000),
    st.lists(st.tuples(queues, st.sampled_from(["c1", "c2"]), st.integers(1, 70)), max_size=2),
)
steps = st.one_of(puts, st.tuples(st.just("write")), st.tuples(st.just("read"), st.integers(1, 6000)))


@given(st.lists(steps, min_size=1, max_size=25))
@settings(max_examples=150, deadline=None)
def test_bytes_go_out_in_order_and_notices_when_written(plan):
    """A queue is notified when the kernel has taken the last byte of its deliveries, not before, and of 50 or more at a
    time.
    """
    with tiny_pair() as (ours, theirs):
        output = SocketOutput(ours)
        sent, got = b"", b""
        marks: list[
            tuple[int, tuple[str, str], int]
        ] = []  # (position in the bytes, queue and channel, deliveries that are written at that position)
        heard: dict[tuple[str, str], int] = {}

        def check() -> None:
            assert output.size == len(sent) - output.total_written
            for address, channel_id, count in output.due:
                assert count >= NOTICE_STEP
                heard[address, channel_id] = heard.get((address, channel_id), 0) + count
            output.due.clear()
            for key in {key for _, key, _ in marks}:
                written = sum(count for position, of, count in marks if of == key and position <= output.total_written)
                assert 0 <= written - heard.get(key, 0) < NOTICE_STEP

        for name, *fields in plan:
            if name == "put":
                size, notices = fields
                data = bytes((len(sent) + at) % 251 for at in range(size))
                sent += data
                marks += [(len(sent), (f"address of {queue}", channel), count) for queue, channel, count in notices]
                output.put(
                    data,
                    [(f"address of {queue}", queue, channel, count, NOTICE_STEP) for queue, channel, count in notices],
                )
            elif name == "write":
                output.write()
                check()
            else:
                got += read(theirs, fields[0])
        while output.size:
            output.write()
            check()
            got += read(theirs)
        got += read(theirs)
        assert got == sent and output.total_written == len(sent)


def test_many_small_pieces_and_a_full_socket(pair):
    """All bytes are written in order, with more pieces than one system call takes and a piece that the socket takes
    only in part.
    """
    ours, theirs = pair
    output = SocketOutput(ours)
    pieces = [bytes([number % 256]) * 37 for number in range(3 * IOV_MAX)]
    for piece in pieces:
        output.put(piece)
    got = b""
    while output.size:
        output.write()
        got += read(theirs)
    assert got + read(theirs) == b"".join(pieces)


def test_very_many_small_pieces_take_few_system_calls():
    """Very many small pieces take few system calls, because a client that opens 65,535 channels at once gets as many
    answers.
    """
    pieces = [b"%016d" % number for number in range(20 * IOV_MAX)]
    sock = TakesAll()
    output = SocketOutput(sock)
    output.put_all(pieces, [])
    output.write()
    assert b"".join(sock.taken) == b"".join(pieces) and not output.size
    assert output.writes <= 3


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([60, 130_000, 60, 130_000], [FIRST_WRITE, 260_120 - FIRST_WRITE]),
        ([60, FIRST_WRITE - 60, 60, 50_000], [FIRST_WRITE, 50_060]),
        ([60, LARGE_OUTPUT - 60], [LARGE_OUTPUT]),
        ([500_000], [500_000]),
    ],
)
def test_the_first_part_of_large_output_has_a_system_call_of_its_own(sizes, calls):
    """Large output is written in two system calls, so that the client begins to read while the kernel copies the second
    part. Little output, or one piece, takes one.
    """
    sock = TakesAll()
    output = SocketOutput(sock)
    pieces = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    output.put_all(pieces, [])
    output.write()
    assert sock.calls == calls
    assert b"".join(sock.taken) == b"".join(pieces) and not output.size


def test_a_lost_connection_is_an_error(pair):
    ours, theirs = pair
    output = SocketOutput(ours)
    theirs.close()
    output.put(b"x")
    with pytest.raises(OSError):
        output.write()


def test_a_restarted_queue_is_not_told_of_its_earlier_life(pair):
    """A restarted queue, which has its old id and a new address, gets no reports of deliveries that the dead process
    made.
    """
    output = SocketOutput(pair[0])
    output.put(b"x", [("old", "q", "c", 49, 50)])
    output.write()
    output.put(b"x", [("new", "q", "c", 40, 50)])
    output.write()
    assert output.due == []
    output.put(b"x", [("new", "q", "c", 10, 50)])
    output.write()
    assert output.due == [("new", "c", 50)]


def test_what_is_remembered_of_queues_and_channels_is_bounded(pair):
    """When more than UNREPORTED_MAX pairs of queue and channel have unreported deliveries, those of the oldest pair are
    reported early.
    """
    ours, theirs = pair
    output = SocketOutput(ours)
    for number in range(5 * UNREPORTED_MAX):
        output.put(b"x", [(f"address {number}", f"queue {number}", "c", 3, 50)])
        output.write()
        read(theirs)
    assert len(output._unreported) == UNREPORTED_MAX
    assert output.due == [(f"address {number}", "c", 3) for number in range(4 * UNREPORTED_MAX)]
    output.forget_channel("c")
    assert not output._unreported
