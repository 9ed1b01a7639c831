"""`Feed`: follows a node in a thread of its own, because the control protocol's client blocks until an answer comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..failure import CommandFailure
from ..node_client import NodeClient, Target

Rows = list[dict[str, Any]]

#: Seconds in which a node must answer. After that the connection is closed and the node counts as unreachable.
ANSWER_SECONDS = 30.0

#: Seconds until a node that could not be reached is tried again.
RETRY = 1.0


class Feed:
    """Asks the node for what has changed, once in each interval.

    took   is called with the rows of an answer and whether it is the connection's first, which has all rows
    lost   is called with the reason each time that an attempt to reach the node fails

    Both are called in the feed's thread.
    """

    def __init__(
        self,
        target: Target,
        interval: float,
        took: Callable[[Rows, bool], object],
        lost: Callable[[str], object],
    ) -> None:
        self._target = target
        self._interval = interval
        self._took = took
        self._lost = lost
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed of warren top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread once the answer that it waits for has come. It is a daemon, so the program need not wait."""
        self._ends.set()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                with NodeClient(self._target) as node:
                    self._follow(node)
            except CommandFailure as failure:
                if not self._ends.is_set():
                    self._lost(_reason(failure))
                    self._ends.wait(RETRY)

    def _follow(self, node: NodeClient) -> None:
        is_first = True
        while not self._ends.is_set():
            node.allow(ANSWER_SECONDS)
            rows = list(node.rows("statistics"))
            if self._ends.is_set():
                return
            self._took(rows, is_first)
            is_first = False
            self._ends.wait(self._interval)


def _reason(failure: CommandFailure) -> str:
    """Why the node cannot be reached, in one line."""
    found = [line.removeprefix(" * ") for line in failure.message.splitlines() if line.strip()]
    return found[-1] if found else "it does not answer"
