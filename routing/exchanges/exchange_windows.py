"""`ExchangeWindows`: which queues deduplicate because of exchanges with the argument `x-warren-deduplicate` (SP-30).

A queue that such an exchange leads to, by its bindings, by further exchanges or by alternate exchanges, remembers as
many messages as the widest of these exchanges asks for. It compares only messages that came through one of them, unless
the queue deduplicates by itself. Which messages these are follows from the way that the routing table finds for them.

Metadata finds the windows of the queues, because it alone can list the bindings of a queue (`queue_windows.py` there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..destinations import Destination


class ExchangeWindows:
    """The deduplication windows of one virtual host. Only Metadata changes them, through the routing table."""

    __slots__ = ("carried", "exchanges", "last_way", "queues")

    def __init__(self) -> None:
        #: The exchanges that have the argument.
        self.exchanges: dict[str, int] = {}
        #: The widest window of the exchanges that lead to this exchange, itself included; none if no exchange does.
        self.carried: dict[str, int] = {}
        #: The widest window of the exchanges that lead to this queue; none if no exchange does.
        self.queues: dict[str, int] = {}
        #: The last message whose way was followed, and the queues that it reached through `exchanges`. All queues that
        #: get a message ask for its way.
        self.last_way: tuple[object, frozenset[str]] | None = None


def carried_windows(windows: Mapping[str, int], following: Callable[[str], Iterable[str]]) -> dict[str, int]:
    """The widest of these exchanges' windows for each exchange that they lead to.

    `following` returns the exchanges to which an exchange may hand a message on.
    """
    found: dict[str, int] = {}
    # The widest one comes first, so that each exchange is visited once.
    for first in sorted(windows, key=lambda name: -windows[name]):
        waiting = [first]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = windows[first]
                waiting += following(name)
    return found


def reached_through(exchanges: Iterable[str], way: Mapping[str, Iterable[Destination]]) -> frozenset[str]:
    """The queues that a message reaches through one of these exchanges.

    `way` has each exchange that the message visits, with the destinations to which this exchange sends it.
    """
    waiting = [name for name in exchanges if name in way]
    passed: set[str] = set()
    queues: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in passed or name not in way:
            continue
        passed.add(name)
        for kind, destination in way[name]:
            if kind == "queue":
                queues.add(destination)
            else:
                waiting.append(destination)
    return frozenset(queues)
