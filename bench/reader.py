"""Measures what it costs to parse a message: `python -m warren.bench.reader`.

Prints nanoseconds per basic.publish and per basic.ack for both paths of the reader, with input that arrives in pieces
of 64 and of 256 KiB.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..amqp.frames import build_content, method_frame
from ..amqp.methods import BasicAck, BasicPublish
from ..amqp.parser.events import ACKS, RUN
from ..amqp.parser.reader import FrameReader
from ..amqp.properties import Properties, encode_properties

#: delivery_mode 2.
PROPS = b"\x10\x00\x02"
MESSAGES = 50_000
ROUNDS = 7


def publishes(sizes: Callable[[int], int]) -> bytes:
    """The frames of MESSAGES publishes; `sizes` returns the body size of each."""
    method = method_frame(1, BasicPublish(routing_key="bench.queue"))
    made: dict[int, bytes] = {}
    parts = []
    for number in range(MESSAGES):
        size = sizes(number)
        if size not in made:
            made[size] = method + build_content(1, PROPS, b"x" * size, 131072)
        parts.append(made[size])
    return b"".join(parts)


def differing() -> bytes:
    """MESSAGES publishes of 100 bytes, each with its own message id."""
    method = method_frame(1, BasicPublish(routing_key="bench.queue"))
    parts = []
    for number in range(MESSAGES):
        props = encode_properties(Properties(delivery_mode=2, message_id=f"{number:032x}"))
        parts.append(method + build_content(1, props, b"x" * 100, 131072))
    return b"".join(parts)


def alternating() -> bytes:
    """MESSAGES publishes of 100 bytes, alternating between four channels."""
    made = [
        method_frame(channel, BasicPublish(routing_key=f"queue.{channel}"))
        + build_content(channel, PROPS, b"x" * 100, 0)
        for channel in (1, 2, 3, 4)
    ]
    return b"".join(made) * (MESSAGES // 4)


def measure(data: bytes, chunk: int, fast: bool) -> float:
    """The best of ROUNDS, in ns per message."""
    pieces = [data[start : start + chunk] for start in range(0, len(data), chunk)]
    best = float("inf")
    for _ in range(ROUNDS):
        reader = FrameReader(131072, fast=fast)
        reader.credit[1] = 1 << 30
        feed, read = reader.feed, reader.next
        seen = 0
        started = time.perf_counter()
        for piece in pieces:
            feed(piece)
            while (event := read()) is not None:
                if event[0] == RUN:
                    seen += len(event[4])
                elif event[0] == ACKS:
                    seen += len(event[2])
        elapsed = time.perf_counter() - started
        assert seen == MESSAGES
        best = min(best, elapsed / seen * 1e9)
    return best


def main() -> None:
    """Print the table."""
    inputs = {
        "100 B": publishes(lambda number: 100),
        "1 KiB": publishes(lambda number: 1024),
        "100 to 163 B": publishes(lambda number: 100 + number * 7 % 64),
        "own message id": differing(),
        "four channels": alternating(),
        "no body": publishes(lambda number: 0),
        "basic.ack": b"".join(method_frame(1, BasicAck(number)) for number in range(MESSAGES)),
    }
    print(f"{'input':16}{'pieces of':>10}{'fast':>10}{'slow':>10}   ns per message")
    for name, data in inputs.items():
        for chunk in (65536, 262144):
            fast, slow = (measure(data, chunk, fast) for fast in (True, False))
            print(f"{name:16}{chunk // 1024:>6} KiB{fast:>10.0f}{slow:>10.0f}")


if __name__ == "__main__":
    main()
