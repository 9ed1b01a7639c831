"""What a link between two nodes costs: microseconds of one core for a frame, and for each message in it.

    python bench/links.py

Two sessions exchange messages over a pair of sockets in one thread, so the figures contain everything but the loop:
encoding, framing, both system calls, cutting, decoding, and the hand-over to the receiving system. Each row is a kind
of message, each column the cost of a frame that carries that number of them. The last two columns are the cost of a
frame without its messages, and that of one more message in a frame.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import click

from warren.cluster.links.admission import LinkIdentity
from warren.cluster.links.config import LinkConfig
from warren.cluster.links.encoding.codecs import INTEGER, RAW_LIST, TEXT
from warren.cluster.links.encoding.frames import MAX_FRAME, LinkFrameReader
from warren.cluster.links.encoding.registry import DATA, Crossing, Registry
from warren.cluster.links.lane import LinkLane
from warren.cluster.links.session import Session
from warren.heap import keep_freed_heap
from warren.runtime.contract import Contract, message
from warren.runtime.system.address import LoopAddress


class ToSink(Contract):
    @message
    def note(self, name: str, number: int) -> None: ...

    @message
    def take(self, channel: str, contents: list[bytes]) -> None: ...


to_sink = ToSink()
REGISTRY = Registry([Crossing(100, to_sink.note, TEXT, INTEGER), Crossing(101, to_sink.take, TEXT, RAW_LIST)])

KINDS: dict[str, Any] = {
    "small": to_sink.note("c1", 5),
    "1 content of 1 KiB": to_sink.take("c1", [b"x" * 1024]),
    "50 contents of 1 KiB": to_sink.take("c1", [b"x" * 1024] * 50),
}

COUNTS = (1, 10, 100)


class Systems:
    """Stands for a system of actors: what arrives is counted."""

    applied = 0

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrivals = 0

    def arrived(self, name: str, sender: Any, target: Any, message: Any) -> None:
        self.arrivals += 1

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def session(systems: Systems, peer: str, sock: socket.socket) -> tuple[Session, LinkLane]:
    node, _, incarnation = peer.rpartition("-")
    config = LinkConfig(b"", REGISTRY, {})
    made = Session(
        LinkIdentity(node, "id", incarnation),
        "00",
        1,
        config,
        systems,
        time.monotonic,
        lambda: None,
        lambda number: None,
        lambda sender: None,
    )
    sock.setblocking(False)
    lane = LinkLane(DATA, sock.fileno(), sock, LinkFrameReader(MAX_FRAME), made.frame)
    made.add_lane(lane)
    return made, lane


def seconds_of(kind: Any, count: int, frames: int) -> float:
    """Seconds of processor time for a frame with `count` messages."""
    ends = socket.socketpair()
    for end in ends:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, 8_388_608)
    a, b = Systems("a@h-1"), Systems("b@h-2")
    (out, lane), (_, arriving) = session(a, b.name, ends[0]), session(b, a.name, ends[1])
    sender, target = LoopAddress("a@h-1/Channel-7"), LoopAddress("b@h-2/q/5f/1")
    begin = time.process_time()
    for _ in range(frames):
        for _ in range(count):
            out.carry(sender, target, kind)
        out.give_to_lanes()
        while lane.unsent or b.arrivals % count or not b.arrivals:
            lane.flush()
            arriving.read()
    took = time.process_time() - begin
    assert b.arrivals == frames * count
    for end in ends:
        end.close()
    return took / frames


@click.command(help=__doc__.split("\n")[0])
@click.option("--frames", default=20_000, show_default=True, help="Frames of each measurement.")
def main(frames: int) -> None:
    keep_freed_heap()  # as a server does; otherwise each read maps and unmaps memory
    head = "".join(f"{f'{count} in a frame':>18}" for count in COUNTS)
    print(f"{'message':24}{head}{'a frame':>12}{'a message':>12}   µs of a core")
    for name, kind in KINDS.items():
        # The clock of processor time is coarse: a measurement takes a tenth of a second at least.
        size = 10 if "50" in name else 1
        figures = [min(seconds_of(kind, count, max(20, frames // size // count)) for _ in range(3)) for count in COUNTS]
        each = (figures[1] - figures[0]) / (COUNTS[1] - COUNTS[0])
        row = "".join(f"{figure * 1e6:18.1f}" for figure in figures)
        print(f"{name:24}{row}{(figures[0] - each) * 1e6:12.1f}{each * 1e6:12.2f}")


if __name__ == "__main__":
    main()
