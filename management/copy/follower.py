"""`StatisticsFollower`: keeps the copy of the node up to date."""

from __future__ import annotations

import asyncio
import logging
import time

from .node_link import ControlConnection, NodeLink, NodeUnreachable, OperationRefused
from .node_state import NodeState
from .other_nodes import OtherNodes

log = logging.getLogger("warren.management")

#: The age in seconds up to which a copy serves requests that only read, so they fetch at most ten times a second.
AGE_MAX = 0.1

#: Seconds until a node that did not answer is asked again.
RETRY = 1.0


class StatisticsFollower:
    """Fetches what has changed: once in each statistics interval, and for requests that come in between."""

    def __init__(self, link: NodeLink, state: NodeState, interval: float) -> None:
        self._link = link
        self.state = state
        self._interval = interval
        self._others = OtherNodes(link, state, interval)
        self._connection: ControlConnection | None = None
        self._lock = asyncio.Lock()
        #: When the last fetch that succeeded began.
        self._began = -1.0
        self._ticked = asyncio.Event()
        #: When a request last changed something.
        self._changed = -1.0

    async def run(self) -> None:
        """Follow the nodes until the task is cancelled."""
        try:
            await self._follow()
        finally:
            self._others.close()

    async def _follow(self) -> None:
        is_reachable = True
        while True:
            began = time.monotonic()
            try:
                await self.fresh(at_once=True)
                self._others.follow()
                self.state.tick(self.state.node["time"])
                ticked, self._ticked = self._ticked, asyncio.Event()
                ticked.set()
                is_reachable = True
            except NodeUnreachable as error:
                if is_reachable:
                    log.warning("the node does not answer, so statistics stand still: %s", error)
                is_reachable = False
                await asyncio.sleep(RETRY)
                continue
            await asyncio.sleep(max(0.0, self._interval - (time.monotonic() - began)))

    async def next_tick(self) -> None:
        """Return when the next statistics interval has passed."""
        await self._ticked.wait()

    def changed(self) -> None:
        """Note that a request has changed something: later requests must see it, so they fetch again."""
        self._changed = time.monotonic()

    async def fresh(self, at_once: bool = False) -> None:
        """Return when the copy is at most `AGE_MAX` old and has the changes of all requests.

        With `at_once` it is not older than the call. Raises NodeUnreachable.
        """
        called = time.monotonic()
        if not at_once:
            called = max(called - AGE_MAX, self._changed)
        if self._began >= called:
            return
        async with self._lock:
            # Callers that waited for the same fetch need no other one.
            if self._began < called:
                await self._fetch()

    async def _fetch(self) -> None:
        began = time.monotonic()
        try:
            if self._connection is None:
                self._connection = await self._link.feed()
                self.state.clear()
            async for rows in self._connection.rows("statistics", {}):
                self.state.apply(rows)
        except OperationRefused as error:
            self._forget()
            raise NodeUnreachable(str(error)) from None
        except BaseException:
            # An answer that was cut off is lost, so the next fetch begins anew.
            self._forget()
            raise
        self._began = began

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
