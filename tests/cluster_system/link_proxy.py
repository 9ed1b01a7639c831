"""A proxy between each pair of nodes, with which a test cuts, mutes and slows the network between them.

Node a reaches node b at `proxies.address(a, b)`. One thread forwards the bytes between all nodes. Each method returns
when its change is in effect.

    proxies.cut("a", "b")               nothing passes in either direction, as with a dead switch
    proxies.mute("a", "b")              nothing that a sends arrives at b; what b sends still arrives at a
    proxies.slow("a", "b", delay=0.2)   what a sends arrives at b 0.2 s later
    proxies.break_connections("a", "b") the open connections are reset; new ones work
    proxies.heal()                      ends all cuts, mutes and delays

A cut or muted direction keeps the bytes and the end of a connection, and delivers them after `heal`, as TCP's
retransmissions do. A connection that is opened during a cut is accepted by the proxy, since the proxy cannot make the
kernel ignore it, and reaches the other node after the cut.

`node_up` and `node_down` tell the proxies whether a process listens at a node's own port. While a node is down,
connections to it are refused, as by a machine that runs and whose process has ended.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

CHUNK = 1 << 16
#: Bytes that the proxy holds for one direction at most; with more it stops reading from the sender.
IN_FLIGHT = 1 << 22
#: Seconds that a caller waits for the proxies' thread to run a command, which takes microseconds.
COMMAND_SECONDS = 30.0

#: Ports of the listeners and of the nodes. They lie below the ports that the system gives to outgoing connections, so
#: that none of these takes the port of a node that is restarted.
_ALL_PORTS = range(15_000, 32_000)
#: How many test processes can have ports at the same time; each has its own share.
SHARES = 64

Address = tuple[str, int]


@functools.cache
def _share() -> tuple[socket.socket, Iterator[int]]:
    """The ports of this process, in a cycle, and the socket that reserves them.

    A port that is free when a test asks for it may be taken before the test uses it: by another process, which may be
    that of another test run, or for another node of the same test. So no other process has these ports, and each comes
    again only when all others have been used.
    """
    for share in range(SHARES):
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", _ALL_PORTS[share]))
        except OSError:
            claim.close()
            continue
        return claim, itertools.cycle(_ALL_PORTS[SHARES + share :: SHARES])
    raise OSError(errno.EADDRINUSE, f"{SHARES} other processes run tests with nodes on this machine")


def _bound() -> socket.socket:
    """A socket that is bound to a free port of this process's share.

    The port is chosen here. A socket whose port the system has chosen loses it when it stops listening.
    """
    for port in _share()[1]:
        bound = socket.socket()
        # Closed connections of the port's previous user would otherwise keep the port from being bound for a minute.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("127.0.0.1", port))
        except OSError:
            bound.close()
            continue
        bound.setblocking(False)
        return bound
    raise AssertionError("a cycle of ports ends")


def free_ports(count: int) -> list[int]:
    """Ports of this process's share that are free now."""
    held = [_bound() for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class Weather(NamedTuple):
    """How one direction between two nodes behaves."""

    is_muted: bool = False
    delay: float = 0.0
    #: bytes a second; None is no limit
    rate: float | None = None


FAIR = Weather()


class Direction:
    """The bytes that one connection carries in one direction."""

    def __init__(self, way: tuple[str, str], source: socket.socket, target: socket.socket) -> None:
        self.way = way
        self.source = source
        self.target = target
        self.waiting: deque[tuple[float, bytes]] = deque()  # (when it may be sent, bytes); b"" is the end
        self.size = 0
        self.has_ended = False  # the source has sent its last byte
        self.free_at = 0.0  # when the bytes read so far have been sent at the rate

    def read(self, weather: Weather, now: float) -> None:
        data = self.source.recv(CHUNK)
        self.has_ended = not data
        self.free_at = max(self.free_at, now) + (len(data) / weather.rate if weather.rate else 0.0)
        self.waiting.append((self.free_at + weather.delay, data))
        self.size += len(data)

    def write(self, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            due, data = self.waiting.popleft()
            if not data:
                self.target.shutdown(socket.SHUT_WR)
                continue
            try:
                sent = self.target.send(data)
            except BlockingIOError:
                sent = 0
            self.size -= sent
            if sent < len(data):
                self.waiting.appendleft((due, data[sent:]))
                return


class Connection:
    """A connection between two nodes: the half that the proxy accepted, and the half that it opened itself."""

    def __init__(self, dialer: str, target: str, accepted: socket.socket) -> None:
        self.dialer = dialer
        self.target = target
        self.accepted = accepted
        self.onward: socket.socket | None = None  # None until it can be opened, which a cut delays
        self.is_connecting = True
        self.directions: list[Direction] = []

    def sockets(self) -> Iterable[socket.socket]:
        return (self.accepted,) if self.onward is None else (self.accepted, self.onward)


class LinkProxies:
    """The network between the nodes `names`."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._nodes: dict[str, Address] = {}
        self._listeners: dict[tuple[str, str], socket.socket] = {}
        self._weather: dict[tuple[str, str], Weather] = {}
        self._connections: set[Connection] = set()
        self._selector = selectors.DefaultSelector()
        self._commands: deque[Callable[[], None]] = deque()
        self._is_open = True
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        for dialer in self.names:
            for target in self.names:
                if dialer != target:
                    self._listeners[dialer, target] = _bound()
        self._thread = threading.Thread(target=self._run, name="link proxies", daemon=True)
        self._thread.start()

    # -- what tests call ---

    def address(self, dialer: str, target: str) -> Address:
        """Where `dialer` reaches `target`."""
        host, port = self._listeners[dialer, target].getsockname()[:2]
        return host, port

    def node_up(self, name: str, address: Address) -> None:
        """The node listens, or will soon listen, at `address`: accept connections to it."""

        def up() -> None:
            is_new = name not in self._nodes
            self._nodes[name] = address
            if not is_new:
                return
            for (_, target), listener in self._listeners.items():
                if target == name:
                    listener.listen(64)
                    self._selector.register(listener, selectors.EVENT_READ)

        self._do(up)

    def node_down(self, name: str) -> None:
        """The node's process has ended: refuse connections to it. What it sent before still arrives."""

        def down() -> None:
            if self._nodes.pop(name, None) is None:
                return
            for (_, target), listener in self._listeners.items():
                if target == name:
                    self._selector.unregister(listener)
                    # The socket keeps its port, and the kernel refuses connections, until it listens again.
                    listener.shutdown(socket.SHUT_RDWR)

        self._do(down)

    def cut(self, a: str, b: str) -> None:
        self._change({(a, b): Weather(is_muted=True), (b, a): Weather(is_muted=True)})

    def isolate(self, name: str, others: Iterable[str] | None = None) -> None:
        """Cut a node off from `others`, by default from all."""
        for other in self.names if others is None else others:
            if other != name:
                self.cut(name, other)

    def mute(self, sender: str, receiver: str) -> None:
        self._change({(sender, receiver): Weather(is_muted=True)})

    def slow(self, sender: str, receiver: str, delay: float, rate: float | None = None) -> None:
        self._change({(sender, receiver): Weather(False, delay, rate)})

    def heal(self) -> None:
        self._change(None)

    def break_connections(self, a: str, b: str) -> int:
        """Reset the open connections between two nodes; return how many there were."""
        counted: list[int] = []

        def broken() -> None:
            between = [each for each in self._connections if {each.dialer, each.target} == {a, b}]
            for connection in between:
                self._close(connection)
            counted.append(len(between))

        self._do(broken)
        return counted[0]

    def connections(self, a: str, b: str) -> int:
        """How many connections are open between two nodes."""
        counted: list[int] = []
        self._do(lambda: counted.append(sum(1 for each in self._connections if {each.dialer, each.target} == {a, b})))
        return counted[0]

    def close(self) -> None:
        def end() -> None:
            self._is_open = False

        self._do(end)
        self._thread.join(COMMAND_SECONDS)
        # The thread must not close it: it may run `end` before `_do` has written to the pipe.
        os.close(self._wake)
        os.close(self._waker)

    def __enter__(self) -> LinkProxies:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the thread ---

    def _change(self, weather: dict[tuple[str, str], Weather] | None) -> None:
        def change() -> None:
            if weather is None:
                self._weather.clear()
            else:
                self._weather.update(weather)

        self._do(change)

    def _do(self, command: Callable[[], None]) -> None:
        """Run `command` in the thread, and wait until it has run."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                command()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._commands.append(run)
        os.write(self._waker, b"!")
        done.result(COMMAND_SECONDS)

    def _run(self) -> None:
        while self._is_open:
            for key, _ in self._selector.select(self._until_due()):
                if key.fd == self._wake:
                    os.read(self._wake, 1 << 10)
                elif isinstance(key.data, Connection):
                    self._progress(key.data)
                else:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
            while self._commands:
                self._commands.popleft()()
            for connection in tuple(self._connections):
                self._progress(connection)
        for connection in tuple(self._connections):
            self._close(connection)
        for listener in self._listeners.values():
            listener.close()
        self._selector.close()

    def _until_due(self) -> float | None:
        due = [
            direction.waiting[0][0]
            for connection in self._connections
            for direction in connection.directions
            if direction.waiting and not self._is_muted(direction.way)
        ]
        # A direction with due bytes waits for room in a socket, which wakes the selector, so only the others need a
        # timeout.
        return max(0.0, min(due) - time.monotonic()) + 0.0005 if due else None

    def _is_muted(self, way: tuple[str, str]) -> bool:
        return self._weather.get(way, FAIR).is_muted

    def _accept(self, listener: socket.socket) -> None:
        dialer, target = next(way for way, each in self._listeners.items() if each is listener)
        try:
            accepted, _ = listener.accept()
        except OSError as error:
            # The listener was shut down because its node is down, or the dialer has closed the connection already.
            if error.errno not in (errno.EAGAIN, errno.EINVAL, errno.ECONNABORTED):
                raise
            return
        accepted.setblocking(False)
        connection = Connection(dialer, target, accepted)
        self._connections.add(connection)
        self._progress(connection)

    def _progress(self, connection: Connection) -> None:
        """Do what the connection's sockets and the network allow now, and register the sockets for what
        they wait for.
        """
        if connection not in self._connections:
            return
        try:
            if connection.onward is None:
                self._connect(connection)
            if connection.onward is not None and connection.is_connecting:
                self._connected(connection)
            now = time.monotonic()
            for direction in connection.directions:
                weather = self._weather.get(direction.way, FAIR)
                if weather.is_muted:
                    continue
                while not direction.has_ended and direction.size < IN_FLIGHT:
                    try:
                        direction.read(weather, now)
                    except BlockingIOError:
                        break
                direction.write(now)
        except OSError:
            self._close(connection)
            return
        if connection.directions and all(each.has_ended and not each.waiting for each in connection.directions):
            self._close(connection)
            return
        self._watch(connection)

    def _connect(self, connection: Connection) -> None:
        ways = ((connection.dialer, connection.target), (connection.target, connection.dialer))
        if any(self._is_muted(way) for way in ways):
            return
        address = self._nodes.get(connection.target)
        if address is None:
            raise ConnectionRefusedError
        connection.onward = socket.socket()
        connection.onward.setblocking(False)
        error = connection.onward.connect_ex(address)
        if error not in (0, errno.EINPROGRESS):
            raise OSError(error, os.strerror(error))

    def _connected(self, connection: Connection) -> None:
        """Begin to forward, if the connection to the target is open."""
        assert connection.onward is not None
        error = connection.onward.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        try:
            connection.onward.getpeername()
        except OSError:
            return
        connection.is_connecting = False
        for each in connection.sockets():
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there, back = (connection.dialer, connection.target), (connection.target, connection.dialer)
        connection.directions = [
            Direction(there, connection.accepted, connection.onward),
            Direction(back, connection.onward, connection.accepted),
        ]

    def _watch(self, connection: Connection) -> None:
        now = time.monotonic()
        wanted = dict.fromkeys(connection.sockets(), 0)
        if connection.onward is not None and connection.is_connecting:
            wanted[connection.onward] = selectors.EVENT_WRITE
        for direction in connection.directions:
            if self._is_muted(direction.way):
                continue
            if not direction.has_ended and direction.size < IN_FLIGHT:
                wanted[direction.source] |= selectors.EVENT_READ
            if direction.waiting and direction.waiting[0][0] <= now:
                wanted[direction.target] |= selectors.EVENT_WRITE
        known = self._selector.get_map()
        for each, events in wanted.items():
            if each in known:
                if not events:
                    self._selector.unregister(each)
                elif known[each].events != events:
                    self._selector.modify(each, events, connection)
            elif events:
                self._selector.register(each, events, connection)

    def _close(self, connection: Connection) -> None:
        """Close both halves. Unless both nodes have ended the connection themselves, they are reset, so that neither
        node takes this for an orderly end.
        """
        self._connections.discard(connection)
        known = self._selector.get_map()
        has_finished = bool(connection.directions) and all(
            each.has_ended and not each.waiting for each in connection.directions
        )
        for each in connection.sockets():
            if each in known:
                self._selector.unregister(each)
            if not has_finished:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
