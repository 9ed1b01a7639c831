"""Benchmark: what a turn of the broker costs. Run it with `python -m warren.bench.turn [--only TEXT] [--calls]`.

One client, whose only channel publishes, is confirmed, consumes and acknowledges, sends a batch of messages and waits
for all confirms and deliveries before it sends the acknowledgements, one for each message, together with the next
batch. So every batch takes the same turns of the same processes, and the cost of small batches is that of the turns.

For each row it prints two figures of the broker's thread for a batch: the calls of Python functions, which are the same
whatever else the machine does, and the least processor time in µs of several measurements. `--calls` prints the
functions that a batch calls, too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import CodeType, FrameType

from .. import Broker
from ..amqp import methods
from ..amqp.fields import Table
from ..amqp.frames import method_frame
from ..amqp.method import Method

#: What a row measures: whether the queue is durable and the messages are persistent, and whether the consumer
#: acknowledges.
KINDS = {"transient": (False, True), "transient, auto-ack": (False, False), "durable": (True, True)}

#: How many batches one measurement has, by the messages of a batch; the least of the measurements counts.
BATCHES = {1: 500, 10: 300, 100: 100}
MEASUREMENTS = 9

#: Batches over which calls are counted.
COUNTED = 50

QUEUE = "bench.turn"
BODY = bytes(1024)

_DELIVER = b"\x00\x3c\x00\x3c"
_ACK = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"


class TurnClient:
    """One connection with one channel, which publishes to a queue and consumes from it."""

    def __init__(self, port: int, is_durable: bool, acknowledges: bool) -> None:
        self._acknowledges = acknowledges
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(30)
        self._tag = 0
        self._acks = b""
        # A delivery mode and a message-id, which differs from message to message; it follows as a short string.
        self._props = b"\x10\x80" + (b"\2" if is_durable else b"\1") + b"\x10"
        self._socket.sendall(b"AMQP\0\0\x09\x01")
        for method in (
            methods.ConnectionStartOk(Table(), "PLAIN", b"\0guest\0guest", "en_US"),
            methods.ConnectionTuneOk(2047, 131072, 0),
            methods.ConnectionOpen("/", "", False),
        ):
            self._socket.sendall(method_frame(0, method))
        self._call(methods.ChannelOpen(""), methods.ChannelOpenOk(b""))
        self._call(
            methods.QueueDeclare(0, QUEUE, False, is_durable, False, False, False, Table()),
            methods.QueueDeclareOk(QUEUE, 0, 0),
        )
        self._call(methods.ConfirmSelect(False), methods.ConfirmSelectOk())
        self._call(methods.BasicQos(0, 200, False), methods.BasicQosOk())
        self._call(
            methods.BasicConsume(0, QUEUE, "c", False, not acknowledges, False, False, Table()),
            methods.BasicConsumeOk("c"),
        )

    def _call(self, method: Method, answer: Method) -> None:
        self._socket.sendall(method_frame(1, method))
        wanted, got = method_frame(1, answer), b""
        while wanted not in got:
            got += self._receive()

    def _receive(self) -> bytes:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker has closed the connection")
        return data

    def batches(self, count: int, size: int) -> None:
        """Publish `count` batches of `size` messages, each when the one before is confirmed and delivered."""
        publish = method_frame(1, methods.BasicPublish(0, "", QUEUE, False, False))
        body = b"\x03\0\1" + len(BODY).to_bytes(4, "big") + BODY + b"\xce"
        for _ in range(count):
            first = self._tag + 1
            self._tag += size
            pieces = [self._acks]
            for tag in range(first, first + size):
                payload = b"\0\x3c\0\0" + len(BODY).to_bytes(8, "big") + self._props + b"%016d" % tag
                pieces += (publish, b"\x02\0\1" + len(payload).to_bytes(4, "big") + payload + b"\xce", body)
            self._socket.sendall(b"".join(pieces))
            self._await(size)
            if self._acknowledges:
                self._acks = b"".join(
                    [method_frame(1, methods.BasicAck(tag, False)) for tag in range(first, first + size)]
                )

    def _await(self, size: int) -> None:
        """Wait for the deliveries of a batch, and for the confirm of its last message."""
        delivered, confirmed, rest = 0, False, b""
        while delivered < size or not confirmed:
            data = rest + self._receive()
            delivered += data.count(_DELIVER)
            at = data.rfind(_ACK)
            if at >= 0 and len(data) >= at + 16:
                confirmed = confirmed or int.from_bytes(data[at + 8 : at + 16], "big") == self._tag
            rest = b"" if data.endswith(b"\xce") else data[-3:]

    def close(self) -> None:
        self._socket.close()


class CallCounter:
    """Counts the calls of Python functions in the threads that start while it is installed, while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: Counter[CodeType] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call":
            self.calls[frame.f_code] += 1


def client_process(pipe: Connection, port: int, is_durable: bool, acknowledges: bool) -> None:
    """Send batches as often as the pipe asks for them. A client in the broker's process would take its interpreter."""
    client = TurnClient(port, is_durable, acknowledges)
    with suppress(EOFError):
        while True:
            client.batches(*pipe.recv())
            pipe.send(None)
    client.close()


@contextmanager
def conversation(is_durable: bool, acknowledges: bool) -> Iterator[tuple[Callable[[int, int], None], int]]:
    """A broker with a client: a function that has a number of batches of a size sent, and the broker's thread."""
    with tempfile.TemporaryDirectory() as directory:
        with Broker(data_dir=directory if is_durable else None) as broker:
            # The broker's thread was started first; the others belong to the pool for blocking calls.
            thread = threading.enumerate()[1].ident
            assert thread is not None
            here, there = multiprocessing.Pipe()
            arguments = (there, broker.port, is_durable, acknowledges)
            client = multiprocessing.get_context("spawn").Process(target=client_process, args=arguments)
            client.start()
            there.close()

            def send_batches(count: int, size: int) -> None:
                here.send((count, size))
                here.recv()

            try:
                send_batches(100, 10)
                yield send_batches, thread
            finally:
                here.close()
                client.join()


def times_of(is_durable: bool, acknowledges: bool) -> dict[int, float]:
    """The processor time of the broker's thread for a batch, in µs, by size: the least of several measurements."""
    least: dict[int, float] = {}
    with conversation(is_durable, acknowledges) as (send_batches, thread):
        clock = time.pthread_getcpuclockid(thread)
        for _ in range(MEASUREMENTS):
            for size, count in BATCHES.items():
                before = time.clock_gettime(clock)
                send_batches(count, size)
                taken = (time.clock_gettime(clock) - before) / count * 1e6
                least[size] = min(taken, least.get(size, taken))
    return least


def calls_of(is_durable: bool, acknowledges: bool) -> dict[int, Counter[CodeType]]:
    """The calls of `COUNTED` batches, by size and function."""
    found: dict[int, Counter[CodeType]] = {}
    counter = CallCounter()
    threading.setprofile(counter)
    try:
        with conversation(is_durable, acknowledges) as (send_batches, _):
            for size in BATCHES:
                send_batches(20, size)
                counter.calls = Counter()
                counter.is_on = True
                send_batches(COUNTED, size)
                counter.is_on = False
                found[size] = counter.calls
    finally:
        threading.setprofile(None)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.turn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains this text")
    parser.add_argument("--calls", action="store_true", help="print the functions that a batch of one message calls")
    options = parser.parse_args()
    print(f"{'':24}{'messages':>10}{'calls':>10}{'µs':>10}")
    for kind, (is_durable, acknowledges) in KINDS.items():
        if options.only not in kind:
            continue
        calls, times = calls_of(is_durable, acknowledges), times_of(is_durable, acknowledges)
        for size in BATCHES:
            print(f"{kind:24}{size:10}{calls[size].total() / COUNTED:10.1f}{times[size]:10.1f}", flush=True)
        if options.calls:
            for code, count in calls[1].most_common():
                if count >= COUNTED / 10:
                    where = "/".join(code.co_filename.split("/")[-3:])
                    print(f"    {count / COUNTED:6.2f}  {code.co_qualname}  {where}:{code.co_firstlineno}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
