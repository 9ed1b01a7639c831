"""`OtherNodes`: keeps the statistics of the other nodes of the cluster, which it gets through its own node."""

from __future__ import annotations

import asyncio
import logging
import time

from .node_link import ControlConnection, NodeLink, NodeUnreachable, OperationRefused
from .node_state import NodeState

log = logging.getLogger("warren.management")

#: Seconds until a node that did not answer is asked again.
RETRY = 2.0


class OtherNodes:
    """Has a task for each other node, so that a node that does not answer does not delay the others."""

    def __init__(self, link: NodeLink, state: NodeState, interval: float) -> None:
        self._link = link
        self._state = state
        self._interval = interval
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self) -> None:
        """Begin to follow members that run now, and stop following the others."""
        members = self._state.node["members"]
        wanted = {each["name"] for each in members if each["is_running"]} - {self._state.node_name}
        for name in self._tasks.keys() - wanted:
            self._tasks.pop(name).cancel()
            self._state.lose(name)
        for name in wanted - self._tasks.keys():
            self._tasks[name] = asyncio.create_task(self._follow(name))

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _follow(self, name: str) -> None:
        while True:
            connection: ControlConnection | None = None
            try:
                connection = await self._link.feed()
                counted = self._state.begin_counting(name)
                while True:
                    began = time.monotonic()
                    async for rows in connection.rows_on(name, "statistics", {"declared": False}):
                        counted.apply(rows)
                    self._state.others[name] = counted
                    await asyncio.sleep(max(0.0, self._interval - (time.monotonic() - began)))
            except (NodeUnreachable, OperationRefused) as error:
                log.debug("statistics of %s are missing: %s", name, error)
                self._state.lose(name)
            finally:
                if connection is not None:
                    connection.close()
            await asyncio.sleep(RETRY)
