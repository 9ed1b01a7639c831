"""When to send a heartbeat, and when a client counts as dead: counters that timers step (AB-23 to AB-26).

With an interval of T seconds the sender steps every T/2. The first step always sends a heartbeat; later steps send one
only if nothing but heartbeats was written since the step before. The monitor steps every T. Two steps in a row without
a received byte mean that the client is dead, which is noticed between 2T and 3T after its last byte.
"""

from __future__ import annotations

from ...seams import seam


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
