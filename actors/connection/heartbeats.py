"""When to send a heartbeat and when a peer is dead (AB-23 to AB-26), as counters that the connection's timers step.

With an interval of T seconds the sender steps every T/2: the first step always sends, later ones only if nothing was written since the step before, heartbeats themselves
not counted. The receiver steps every T: two in a row without a received octet mean that the peer is gone, which is noticed between 2T and 3T after its last octet.
"""

from __future__ import annotations


class HeartbeatSender:
    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = -1

    def step(self, written: int) -> bool:
        """`written`: octets written so far without heartbeats. True: send one now."""
        send = written == self._seen or self._seen < 0
        self._seen = written
        return send


class HeartbeatMonitor:
    __slots__ = ("_seen", "_silent")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._seen = -1
        self._silent = 0

    def step(self, received: int) -> bool:
        """`received`: octets received so far. True: the peer is dead."""
        if received == self._seen:
            self._silent += 1
        else:
            self._seen, self._silent = received, 0
        return self._silent >= 2
