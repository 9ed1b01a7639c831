"""`StatisticsFollower`: keeps the copy of the node up to date."""

from __future__ import annotations

import asyncio
import logging
import math
import time

from .node_link import ControlConnection, NodeLink, NodeUnreachable, OperationRefused
from .node_state import NodeState
from .other_nodes import OtherNodes

log = logging.getLogger("warren.management")

#: The age in seconds up to which a copy serves requests that only read, so they fetch at most ten times a second.
AGE_MAX = 0.1

#: Seconds that a request waits for a fetch. With ten thousand busy queues a fetch takes a second or more, because the
#: node pauses for its clients. After a fetch that took longer, requests do not wait for the next one at all.
WAIT_MAX = 0.05

#: How many times longer than such a fetch took nothing is fetched for requests. So while a page is open, a node spends
#: at most a tenth of its time on statistics, however many queues are busy.
PAUSES = 9

#: Statistics intervals after which a copy is too old for any request, because the node does not answer.
OLD = 2

#: Seconds that a request waits for the node at most. A node that is stopped by a signal, or whose disk hangs, keeps its
#: connections and answers nothing.
ANSWER_SECONDS = 30.0

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
        self._fetching: asyncio.Task[None] | None = None
        #: When the last fetch that succeeded began; -1 while there is no whole copy.
        self._began = -1.0
        #: When the last fetch that succeeded has ended, even if the copy has been given up since.
        self._answered = -math.inf
        #: How old the copy may be, in seconds, when a request comes. If it is older, the request begins a fetch.
        self._age_max = AGE_MAX
        #: Whether the last fetch took longer than requests wait. Then they do not wait for the next one at all.
        self._is_slow = False
        self._ticked = asyncio.Event()
        #: When a request last changed something.
        self._changed = -1.0

    async def run(self) -> None:
        """Follow the nodes until the task is cancelled."""
        try:
            await self._follow()
        finally:
            self._others.close()
            if self._fetching is not None:
                self._fetching.cancel()

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

        While very much changes it may be older, up to about one interval: requests do not wait for slow fetches, and
        have none begin for some time after one. With `at_once` the copy is not older than the call. Raises
        NodeUnreachable.
        """
        called = time.monotonic()
        oldest = called if at_once else max(called - self._age_max, self._changed)
        while self._began < oldest:
            fetch = self._fetching or self._begin()
            if not at_once and self._began >= max(called - OLD * self._interval, self._changed):
                wait = 0.0 if self._is_slow else called + WAIT_MAX - time.monotonic()
                await asyncio.wait([fetch], timeout=max(0.0, wait))
                if not fetch.done():
                    return
            await asyncio.wait([fetch], timeout=ANSWER_SECONDS)
            if not fetch.done():
                raise NodeUnreachable(f"it has not answered for {ANSWER_SECONDS:.0f} s")
            fetch.result()

    def check_answers(self) -> None:
        """Raise NodeUnreachable if the node has not answered for so long that its statistics must not be shown."""
        silent = time.monotonic() - self._answered
        if silent > OLD * self._interval + ANSWER_SECONDS:
            raise NodeUnreachable(f"it has not answered for {silent:.0f} s")

    def _begin(self) -> asyncio.Task[None]:
        task = self._fetching = asyncio.create_task(self._run())
        # Requests may have been answered without waiting for this fetch. If it fails then, asyncio would log an error
        # that nobody has asked for; the next request begins a fetch of its own and reports what goes wrong.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return task

    async def _run(self) -> None:
        began = time.monotonic()
        try:
            await self._take_changes()
        finally:
            self._fetching = None
        self._began = began
        self._answered = time.monotonic()
        seconds = self._answered - began
        self._is_slow = seconds > WAIT_MAX
        self._age_max = min(PAUSES * seconds, self._interval) if self._is_slow else AGE_MAX

    async def _take_changes(self) -> None:
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

    def _forget(self) -> None:
        self._began = -1.0
        if self._connection is not None:
            self._connection.close()
            self._connection = None
