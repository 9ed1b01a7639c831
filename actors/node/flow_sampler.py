"""`FlowSampler`: publishes a sample of flow control each second, while anybody is bound to `flow.sample` (SP-99).

Sampling adds no work to any message. The sampler reads the statistics of the connections, channels and queues that had
a turn since the last sample, as management does, and computes the differences. While no queue is bound by a pattern
that begins with `flow`, the sampler only checks the bindings each second.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...runtime.errors import ProcessDown
from ...runtime.process import Process
from ..context.starting import ToNewFlowSampler
from ..contracts.resources import to_alarms, to_memory_monitor
from .flow_sample import FlowSamples

if TYPE_CHECKING:
    from ...runtime.contract import Sender
    from ..context.node_context import NodeContext
    from ..statistics.activity import ActivityFeed

#: Seconds between two samples.
INTERVAL = 1.0
#: Processes that are read in one turn. Each takes 20 to 50 µs.
SLICE = 25
#: Processes that one turn takes note of.
TAKEN = 1_000
#: Processes that are read for one sample. If more had a turn, the others are read for the next one. The first reading,
#: with which later ones are compared, has no such limit.
MOST_READ = 500


class FlowSampler(Process):
    """See the module."""

    contract = ToNewFlowSampler

    def on_start(self, sender: Sender, context: NodeContext) -> None:
        self.context = context
        self.feed: ActivityFeed | None = None
        self.samples: FlowSamples | None = None
        #: Processes that are still to be read, those that have waited longest first.
        self.waiting: dict[str, None] = {}
        self.sampled_at = 0.0
        self.start_timer(INTERVAL)

    async def on_timer(self, payload: None) -> None:
        due = self.now() + INTERVAL
        if not self.context.events.are_samples_wanted():
            self._end_sampling()
        elif self.feed is None or self.samples is None:
            self._begin_sampling()
            await self._read(most=None)
        else:
            await self._read(MOST_READ)
            await self._publish()
        self.start_timer(max(0.0, due - self.now()))

    def _begin_sampling(self) -> None:
        self.feed = self.context.activity.open()
        self.samples = FlowSamples(self.context.counts.values(), self.context.activity.members)
        self.sampled_at = self.now()

    def _end_sampling(self) -> None:
        if self.feed is not None:
            self.feed.close()
        self.feed = self.samples = None
        self.waiting = {}

    async def _read(self, most: int | None) -> None:
        """Read the processes that had a turn, at most this many of them."""
        feed, samples = self.feed, self.samples
        if feed is None or samples is None:
            return
        changed, ended = feed.take(TAKEN)
        for number, (_, process_id) in enumerate(ended, 1):
            self.waiting.pop(process_id, None)
            samples.end(process_id)
            if number % TAKEN == 0:
                await self.next_turn()
        for part in changed:
            self.waiting.update(dict.fromkeys(part))
            await self.next_turn()
        for number, process_id in enumerate(list(self.waiting)[:most], 1):
            del self.waiting[process_id]
            found = feed.read(process_id)
            if found is not None and not self._is_mirror(*found):
                samples.read(found[0], process_id, found[1])
            if number % SLICE == 0:
                await self.next_turn()

    def _is_mirror(self, kind: str, items: dict[str, object]) -> bool:
        """Whether the process is a replica of a queue that another node serves: that node has it in its samples."""
        if kind != "queue":
            return False
        row = self.context.routing.queue(str(items["vhost"]), str(items["name"]))
        return row is not None and row.node not in ("", self.context.node_name)

    async def _publish(self) -> None:
        context, samples = self.context, self.samples
        if samples is None:
            return
        try:
            memory = await self.ask(context.memory_monitor, to_memory_monitor.status())
            alarms = await self.ask(context.alarms, to_alarms.active())
        except ProcessDown:
            return  # the node stops
        now = self.now()
        sample = samples.sample(
            {
                "node": context.node_name,
                "at": int(self.wall_clock() * 1000),
                "seconds": round(now - self.sampled_at, 3),
                "counts": context.counts.values(),
                "memory": memory["used"],
                "memory_limit": memory["limit"],
                "alarms": sorted(alarms),
            }
        )
        self.sampled_at = now
        context.events.emit_sample(self, json.dumps(sample, separators=(",", ":")).encode())

    def on_exit(self) -> None:
        self._end_sampling()
