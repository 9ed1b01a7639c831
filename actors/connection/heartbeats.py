"""When to send a heartbeat, and when a client counts as dead: counters that timers step (AB-23 to AB-26).

`Heartbeats` has the timers of one connection; `HeartbeatSender` and `HeartbeatMonitor` have the counters.

With an interval of T seconds the sender steps every T/2. The first step always sends a heartbeat; later steps send one
only if nothing but heartbeats was written since the step before. The monitor steps every T. Two steps in a row without
a received byte mean that the client is dead, which is noticed between 2T and 3T after its last byte.
"""

from __future__ import annotations

from ...amqp.frames import heartbeat
from ...runtime.process import Process
from ...seams import seam
from .output import SocketOutput
from .socket_input import SocketInput

#: The payloads of the timers.
SEND_HEARTBEAT = "send heartbeat"
CHECK_HEARTBEAT = "check heartbeat"


class HeartbeatSender:
    __slots__ = ("_written",)

    def __init__(self) -> None:
        #: The bytes written at the step before; -1 before the first step.
        self._written = -1

    def step(self, written: int) -> bool:
        """Whether to send a heartbeat now; `written` counts the bytes written so far, without heartbeats."""
        is_due = written == self._written or self._written < 0
        self._written = written
        return is_due


class HeartbeatMonitor:
    __slots__ = ("_received", "_silent_steps")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin anew, after a time in which the connection did not read."""
        self._received = -1
        self._silent_steps = 0

    @seam("whether a silent client is dead")
    def step(self, received: int) -> bool:
        """Whether the client is dead; `received` counts the bytes received so far."""
        if received == self._received:
            self._silent_steps += 1
        else:
            self._received, self._silent_steps = received, 0
        return self._silent_steps >= 2


class Heartbeats:
    """The heartbeats of one connection, in both directions. There are none before `start`."""

    __slots__ = ("_input", "_interval", "_monitor", "_output", "_process", "_sender", "_sent_bytes")

    def __init__(self, process: Process, source: SocketInput, output: SocketOutput) -> None:
        self._process = process
        self._input = source
        self._output = output
        self._sender, self._monitor = HeartbeatSender(), HeartbeatMonitor()
        #: Seconds between two heartbeats, as negotiated.
        self._interval = 0
        #: Bytes of heartbeats sent.
        self._sent_bytes = 0

    def start(self, interval: int) -> None:
        """Begin with the negotiated interval in seconds; 0 means no heartbeats."""
        self._interval = interval
        if interval:
            self._process.start_timer(interval / 2, SEND_HEARTBEAT)
            self._process.start_timer(interval, CHECK_HEARTBEAT)

    def reading_resumed(self) -> None:
        """Restart the count of silent intervals, because the connection reads again after a pause."""
        self._monitor.restart()

    def send_if_due(self) -> None:
        """Handle the timer `SEND_HEARTBEAT`: send a heartbeat if one is due."""
        if self._sender.step(self._output.total_written - self._sent_bytes):
            frame = heartbeat()
            self._sent_bytes += len(frame)
            self._output.put(frame)
        self._process.start_timer(self._interval / 2, SEND_HEARTBEAT)

    def missed(self, is_reading: bool) -> str:
        """Handle the timer `CHECK_HEARTBEAT`: return why the client counts as dead, or an empty string if it does not.

        A connection that does not read at present cannot notice the client's heartbeats (AB-26).
        """
        if not is_reading:
            self._monitor.restart()
        elif self._monitor.step(self._input.received):
            return f"missed heartbeats from client, timeout: {self._interval}s"
        self._process.start_timer(self._interval, CHECK_HEARTBEAT)
        return ""
