"""`Pacer`: holds the clocks of pace groups, from which queues of all nodes lease slots (QP-106).

Each node has one. Which node holds the clock of a group follows from the name of the group and from the nodes that run:
the node with the highest hash of both (`holder`). All nodes know the same members, so they agree, and when a node comes
or goes only the clocks move that it holds.

A request may reach a node that no longer holds the clock. It waits there for as long as leases last, in case this node
has not learned yet that it holds the clock now; then it sends the queue `pacer_moved`, and the queue asks again.

What is not here: when messages are delivered is decided by their queue, which has a timer for its slots.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, cast

from ...runtime.process import Process
from ..context.starting import ToNewPacer
from ..contracts.queue import to_queue
from .holder import holder
from .pace_clock import SECOND, Pace
from .shared_clock import HORIZON, LeasedSlots, SharedClock

if TYPE_CHECKING:
    from ...runtime.contract import Address, Sender
    from ..context.node_context import NodeContext
    from ..contracts.pace import ClockName
    from ..contracts.queue import ToQueue

#: Leases that one turn sends. The queues that wait then get theirs in the next turn.
LEASES = 500

#: Whenever a clock is added, the pacer checks this many others, and forgets those that no queue uses any more. So it
#: never has to check all of them in one turn.
CHECKED = 2


class Pacer(Process):
    """See the module."""

    contract = ToNewPacer

    def __init__(self) -> None:
        super().__init__()
        #: In the order in which they are checked: the clock that was checked last comes last.
        self._clocks: OrderedDict[ClockName, SharedClock] = OrderedDict()
        #: The addresses of the queues that wait, by the clock and the text of the address.
        self._queues: dict[tuple[ClockName, str], Address[ToQueue]] = {}
        #: The timer of each clock for which queues wait.
        self._timers: dict[ClockName, int] = {}

    def on_start(self, sender: Sender, context: NodeContext) -> None:
        self.context = context

    def on_lease(
        self,
        sender: Sender,
        vhost: str,
        group: str,
        pace: tuple[int, int, int],
        wanted: int,
        owed: int,
    ) -> None:
        name, now = (vhost, group), self._now()
        clock = self._clocks.get(name)
        if clock is None:
            self._forget_idle(now)
            clock = self._clocks[name] = SharedClock(now)
        address = cast("Address[ToQueue]", sender)
        queue = address.actorAddressString
        self._queues[name, queue] = address
        clock.request(queue, Pace(*pace), wanted, owed, now)
        self._serve(name)

    def on_give_back(
        self, sender: Sender, vhost: str, group: str, first: int, last: int, count: int, owed: int
    ) -> None:
        name = vhost, group
        clock = self._clocks.get(name)
        if clock is not None:
            clock.give_back(
                cast("Address[ToQueue]", sender).actorAddressString,
                LeasedSlots(first, last, count).moved(self._now()),
                owed,
            )
            self._serve(name)

    def _forget_idle(self, now: int) -> None:
        """Forget some of the clocks that no queue uses. Checking all of them each time would take n² steps for n new
        clocks.
        """
        clocks = self._clocks
        for name in list(islice(clocks, CHECKED)):
            if name not in self._timers and clocks[name].is_idle(now):
                del clocks[name]
            else:
                clocks.move_to_end(name)

    def on_timer(self, payload: ClockName) -> None:
        del self._timers[payload]
        self._serve(payload, is_timed=True)

    def _now(self) -> int:
        return int(self.now() * SECOND)

    def _serve(self, name: ClockName, is_timed: bool = False) -> None:
        """Send the leases that are due, and set the timer for the next ones."""
        clock, now = self._clocks[name], self._now()
        if holder(self.context, name) != self.context.node_name:
            if is_timed:
                self._dismiss(name, clock)
            elif name not in self._timers:
                self._timers[name] = self.start_timer(HORIZON / SECOND, name)
            return
        for queue, lease in islice(clock.leases(now), LEASES):
            first, last, count = lease.moved(-now)
            address = self._queues.pop((name, queue))
            self.send(address, to_queue.leased(*name, first, last, count, clock.sharers(now)))
        running = self._timers.pop(name, None)
        if running is not None:
            self.cancel_timer(running)
        following = clock.next_lease(now)
        if following is not None:
            # One µs late rather than early: a timer that fires too early would have to be set again.
            self._timers[name] = self.start_timer(max(0, following - now) / SECOND + 1e-6, name)

    def _dismiss(self, name: ClockName, clock: SharedClock) -> None:
        """Have the queues that wait ask the node that holds the clock now."""
        del self._clocks[name]
        for queue in clock.dismiss():
            self.send(self._queues.pop((name, queue)), to_queue.pacer_moved(*name))
