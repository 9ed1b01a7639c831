"""`LinkLane`: how much it reads from its socket at a time."""

from __future__ import annotations

from warren.cluster.links.encoding.frames import MAX_FRAME, LinkFrameReader, frame
from warren.cluster.links.lane import READ_SIZE, SMALL_READ, SMALL_READS, LinkLane

SMALL, LARGE = frame(2, b"h", b"x"), frame(2, b"h", b"x" * (2 * SMALL_READ))


class Socket:
    """A socket from which one read never returns more than one frame of `arriving`. `sizes` records the sizes of the
    reads.
    """

    def __init__(self, arriving):
        self.arriving = list(arriving)
        self.sizes = []

    def recv(self, size):
        self.sizes.append(size)
        data = self.arriving.pop(0)
        if len(data) > size:
            self.arriving.insert(0, data[size:])
        return data[:size]


def sizes_of(*arriving):
    """The sizes of the reads until all these frames have been read."""
    sock, frames = Socket(arriving), []
    lane = LinkLane("data", 0, sock, LinkFrameReader(MAX_FRAME), lambda lane, found: frames.append(found))
    while sock.arriving:
        lane.read()
    assert len(frames) == len(arriving)
    return sock.sizes


def test_a_few_small_frames_do_not_cut_the_large_ones_between_them():
    """After the first large frame, each comes in one read, even with a few small frames between them (CL-13)."""
    assert sizes_of(*[LARGE, SMALL, SMALL] * 3)[2:] == [READ_SIZE] * 8


def test_reads_are_small_after_many_small_frames():
    assert sizes_of(LARGE, *[SMALL] * (SMALL_READS + 2))[-3:] == [READ_SIZE, SMALL_READ, SMALL_READ]


class SlowSocket:
    """A socket that takes 10 bytes of each write."""

    def __init__(self):
        self.is_full = False

    def send(self, data):
        if self.is_full:
            raise BlockingIOError
        self.is_full = True
        return 10


def test_a_lane_is_not_silent_while_its_output_leaves():
    """A ping behind much output on a slow connection is answered late (CL-6)."""
    sock = SlowSocket()
    lane = LinkLane("bulk", 0, sock, LinkFrameReader(MAX_FRAME), lambda lane, found: None)
    lane.write([b"x" * 100])
    assert lane.silent_looks() == 0  # no ping is unanswered
    lane.is_pinged = True
    for _ in range(9):
        sock.is_full = False
        lane.flush()
        assert lane.silent_looks() == 0
    assert [lane.silent_looks() for _ in range(3)] == [1, 2, 3]
    lane.received_bytes += 1
    assert lane.silent_looks() == 0
