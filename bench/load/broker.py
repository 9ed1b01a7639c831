"""A broker under measurement: runs `warren start`, reads its memory from /proc, and sends the AMQP methods of
benchmarks.

    with Warren(directory) as broker:       a process of its own; the `with` block ends it
        broker.start()                      returns the seconds from exec to the first open connection
        with LoadClient(broker.address) as client:
            client.call(QueueDelete(queue="q"))
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from ...amqp import methods
from ...amqp.constants import FRAME_METHOD, FRAME_OVERHEAD
from ...amqp.decoding import decode_method
from ...amqp.fields import Table
from ...amqp.frames import method_frame, split_frames
from ...amqp.method import Method

MIB = 1 << 20
#: The size of a frame that a client negotiates.
FRAME_MAX = 131072
_POLL_SECONDS = 0.005
#: Bytes of one read: deliveries of a fast broker fill it.
_READ_BYTES = 1 << 18

Found = TypeVar("Found")


class BrokerFailed(Exception):
    """A broker did not start, did not stop, or closed a connection. The text has the reason."""


def free_port() -> int:
    """An unused port, chosen before the broker starts, so that the start can be measured from outside."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class LoadClient:
    """A connection with one channel. Its answers are read in order; contents are dropped."""

    def __init__(self, address: str, timeout: float = 60.0) -> None:
        host, port = address.rsplit(":", 1)
        self._unread = b""
        self._arrived: deque[Method] = deque()
        self._socket = socket.create_connection((host, int(port)), timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(b"AMQP\0\0\x09\x01")
            self._answer()
            self._send(0, methods.ConnectionStartOk(Table(), "PLAIN", b"\0guest\0guest", "en_US"))
            self._answer()
            tune, opening = methods.ConnectionTuneOk(2047, FRAME_MAX, 0), methods.ConnectionOpen("/", "", False)
            self.write(method_frame(0, tune) + method_frame(0, opening) + method_frame(1, methods.ChannelOpen()))
            self.answers(2)
        except BaseException:
            self._socket.close()
            raise

    def call(self, method: Method) -> Method:
        """The broker's answer. Raises BrokerFailed if it is a close, OSError if the connection is lost."""
        self._send(1, method)
        return self._answer()

    def pipeline(self, asked: Sequence[Method]) -> list[Method]:
        """The broker's answers to methods that are sent in one write."""
        self.send(asked)
        return self.answers(len(asked))

    def send(self, asked: Sequence[Method]) -> None:
        """Send methods in one write; `answers` reads what the broker answers."""
        self.write(b"".join(method_frame(1, method) for method in asked))

    def answers(self, count: int) -> list[Method]:
        """The next `count` answers. Raises as `call` does."""
        return [self._answer() for _ in range(count)]

    def wait_for(self, kind: type[Method], count: int) -> None:
        """Read until `count` methods of this kind have arrived, and drop all other frames. Raises as `call` does.

        Nothing is decoded, so that this client can receive as many messages a second as a broker delivers.
        """
        while count and self._arrived:
            count -= isinstance(self._answer(), kind)
        wanted = struct.pack(">HH", kind.CLASS_ID, kind.METHOD_ID)
        buffer, position = self._unread, 0
        while count:
            left = len(buffer) - position
            size = FRAME_OVERHEAD + int.from_bytes(buffer[position + 3 : position + 7], "big")
            if left < FRAME_OVERHEAD or left < size:
                buffer, position = buffer[position:] + self._received(), 0
                continue
            if buffer[position] == FRAME_METHOD:
                # The payload of a method begins with the numbers of its class and of the method.
                numbers = buffer[position + 7 : position + 11]
                if numbers == wanted:
                    count -= 1
                elif numbers in _CLOSES:
                    _checked(decode_method(buffer[position + 7 : position + size - 1]))
            position += size
        self._unread = buffer[position:]

    def write(self, frames: bytes) -> None:
        """Send encoded frames. If the broker answers them, `answers` reads what it sends."""
        self._socket.sendall(frames)

    def declared(self, queue: str) -> int:
        """The number of ready messages in an existing queue."""
        answer = self.call(methods.QueueDeclare(queue=queue, passive=True))
        assert isinstance(answer, methods.QueueDeclareOk)
        return answer.message_count

    def close(self) -> None:
        """Close the socket without `connection.close`."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, channel: int, method: Method) -> None:
        self._socket.sendall(method_frame(channel, method))

    def _answer(self) -> Method:
        while not self._arrived:
            # Bytes that `wait_for` has read and not used come first.
            frames, self._unread = split_frames(self._unread)
            self._arrived += [decode_method(payload) for kind, _, payload in frames if kind == FRAME_METHOD]
            if not self._arrived:
                self._unread += self._received()
        return _checked(self._arrived.popleft())

    def _received(self) -> bytes:
        read = self._socket.recv(_READ_BYTES)
        if not read:
            raise ConnectionResetError("the broker hung up")
        return read


#: The encoded class and method numbers of the two methods with which a broker closes a connection or a channel.
_CLOSES = frozenset(
    struct.pack(">HH", kind.CLASS_ID, kind.METHOD_ID) for kind in (methods.ConnectionClose, methods.ChannelClose)
)


def _checked(method: Method) -> Method:
    if isinstance(method, (methods.ConnectionClose, methods.ChannelClose)):
        raise BrokerFailed(f"the broker closed: {method.reply_code} {method.reply_text}")
    return method


class Warren:
    """Runs `warren start` on a data directory, any number of times, always on the same port."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str | int | float] | None = None,
        is_silent: bool = False,
    ) -> None:
        #: Where the log goes: nowhere if the measurement causes many errors, which would fill it.
        self._log = subprocess.DEVNULL if is_silent else None
        self.data_dir = data_dir
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._settings = data_dir.with_name(data_dir.name + ".toml")
        self._settings.write_text("".join(f"{name} = {value!r}\n" for name, value in (settings or {}).items()))
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, timeout: float = 120.0) -> float:
        """Seconds from exec until a connection is open. BrokerFailed if the process ends or is not ready in time."""
        return self.start_until(lambda client: True, timeout)[0]

    def start_until(self, ready: Callable[[LoadClient], Found], timeout: float = 120.0) -> tuple[float, Found]:
        """Seconds from exec until `ready(client)` returns a true value, and that value."""
        # At a lower level the log would have a line for every connection that the generator drops without closing it.
        command = [
            str(Path(sys.executable).parent / "warren"),
            "start",
            "--port",
            str(self.port),
            "--data-dir",
            str(self.data_dir),
            "--config",
            str(self._settings),
            "--log-level",
            "error",
        ]
        # The broker may write bytecode, as if the package were installed. Without bytecode each start would compile 200
        # modules, which takes half a second.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        began = time.monotonic()
        process = self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=self._log, text=True, env=environment
        )
        while True:
            if process.poll() is not None:
                raise BrokerFailed(f"warren start ended with exit code {process.returncode}; see its words above")
            try:
                with LoadClient(self.address, timeout) as client:
                    found = ready(client)
                    if found:
                        return time.monotonic() - began, found
            except ConnectionError:
                pass  # not listening yet
            if time.monotonic() - began > timeout:
                raise BrokerFailed(f"warren was not ready {timeout:.0f} s after its start")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """SIGKILL the process. Unlike a power cut, this keeps the page cache."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self, timeout: float = 300.0) -> float:
        """Seconds from SIGTERM to the end of the process. BrokerFailed after `timeout` or an unclean stop."""
        assert self._process is not None
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"warren did not stop within {timeout:.0f} s of SIGTERM") from None
        if code:
            raise BrokerFailed(f"warren stopped with exit code {code}")
        return time.monotonic() - began

    def __enter__(self) -> Warren:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        self._settings.unlink(missing_ok=True)


def memory(pid: int) -> dict[str, int]:
    """Bytes by the names of /proc/PID/status: `VmRSS` resident, `VmHWM` its peak, `RssAnon` resident and of no file.

    `smaps_rollup` would be exact to the page, but holds up the broker while it walks gigabytes of page tables.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in lines)
        if name in ("VmRSS", "VmHWM", "RssAnon")
    }


def forget_peak(pid: int) -> None:
    """Reset the peak `VmHWM`. Raises OSError for a process of another user."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def processor_seconds(pid: int) -> float:
    """The user and system CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_used(directory: Path) -> int:
    """Bytes allocated to the files in the directory. A file that is deleted meanwhile is not counted."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total
