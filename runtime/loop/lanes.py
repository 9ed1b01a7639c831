"""`Lanes`: the run queue of a loop, divided so that every client gets the same number of turns.

With one run queue for all, a client that makes 20,000 queues busy would have 20,000 turns before another client has its
next one. Here each client has a *lane*, a run queue of its own, and in each round of the loop a lane has one turn. So a
client that causes more work waits longer for it, and no other client does.

The processes of a small lane all have their turns in one round. Then the lane skips as many rounds as it had turns
beyond the first (`BURST`), so that in the long run it has one turn a round as well. In this way, what one process sends
to several others is handled in one go, and their batches stay together.

A process belongs to no lane for good. A process that gets a message while it is idle joins the lane of the turn that
sent the message: whatever follows from the input of a connection, in its channels, in queues and in Metadata, happens
in the lane of that connection. Processes that a timer, a blocking call or another thread has woken join the lane of
their own descriptor if they watch one, and that of their parent otherwise: the queues of a virtual host have one lane
for all their timers.

Clients that come by the thousand at once share one lane, because a thousand lanes would delay all other clients: see
`Process.share_turns`. Their descriptors have turns in that lane as well.

A lane with several processes serves them in the order in which they joined it. A *crowded* lane, with more than `BURST`
of them, has one on its run queue; the others wait beside it, as if they were idle. So a process that waits there behind
20,000 others, and gets a message in a turn of another lane, joins that lane too, and has its turn where it comes first.
Otherwise a client whose queue has had a timer, or a message of another client, would wait for the turns of all
processes that had one at the same time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import chain

from ..system.cell import Cell, Lane

#: Most processes of a lane that have their turns in one round; a lane with more is crowded and has one turn. What a
#: queue sends to ten channels would otherwise take ten rounds, the queue would have its next turn meanwhile, and
#: batches would fall apart: with 100 busy clients a message cost a third more. The lane has no turns in as many rounds
#: as it had turns beyond the first, so that each client gets its share.
BURST = 16

#: Most processes of a crowded lane that `Lanes.refill` passes over in one round because they have had their turns in
#: other lanes.
PASSED_OVER = 256


class _Group:
    """Owns a lane of processes that share their turns, or that have no parent."""

    __slots__ = ("lane",)

    def __init__(self) -> None:
        self.lane: Lane | None = None


class Lanes:
    """The lanes of one loop. `ready` has the cells that were woken and are in no lane yet."""

    __slots__ = ("_groups", "_ready", "active", "crowd", "crowd_fds")

    def __init__(self, ready: deque[Cell]) -> None:
        self._ready = ready
        #: The lanes that have cells, in the order of their turns, without the one whose turn it is.
        self.active: deque[Lane] = deque()
        #: By name: the groups of processes that share their turns. Processes without a parent have the empty name.
        self._groups = {"": _Group()}
        #: Descriptors that are ready and whose processes share their turns, as they come from the poller, in order.
        self.crowd: deque[tuple[int, int]] = deque()
        #: The same descriptors as a set, because the poller reports them again until they are served.
        self.crowd_fds: set[int] = set()

    def admit(self, cell: Cell) -> None:
        """Put the woken cells into the lane of `cell`, whose descriptor has just been served."""
        lane = cell.lane
        if cell.group:
            lane = self._lane(cell)
        elif lane is None:
            lane = cell.lane = Lane(cell)
            self.active.append(lane)
        # The body of `join`: with one busy client, calling it would be one more call for each turn.
        lane += self._ready
        self._ready.clear()
        if len(lane) > BURST or lane.waiting is not None:
            self._hold_back(lane)

    def admit_each(self) -> None:
        """Put the cells that were woken outside any turn into their own lanes or those of their parents."""
        ready = self._ready
        while ready:
            cell = ready.popleft()
            lane = self._lane(cell if cell.fds else cell.parent or self._groups[""])
            lane.append(cell)
            if len(lane) > BURST or lane.waiting is not None:
                self._hold_back(lane)

    def join(self, lane: Lane) -> None:
        """Put the woken cells into `lane`, which is in `active`, or will be."""
        lane += self._ready
        self._ready.clear()
        if len(lane) > BURST or lane.waiting is not None:
            self._hold_back(lane)

    def _hold_back(self, lane: Lane) -> None:
        """Take the cells of a crowded lane off the run queue, and let them wait."""
        waiting = lane.waiting
        if waiting is None:
            waiting = lane.waiting = OrderedDict()
        for cell in lane:
            if cell.actor is not None:
                cell.is_idle = True
                waiting.setdefault(cell)
        lane.clear()

    def refill(self, lane: Lane) -> None:
        """Put the cell that has waited longest back on the run queue of a crowded lane, for the turn that is due."""
        waiting = lane.waiting
        assert waiting is not None
        for _ in range(min(len(waiting), PASSED_OVER)):
            cell, _ = waiting.popitem(False)
            # The cell may have ended meanwhile, may wait for its turn in another lane, or may have had that turn.
            if cell.actor is not None and cell.is_idle and _has_work(cell):
                cell.is_idle = False
                lane.append(cell)
                break
        if not waiting:
            lane.waiting = None

    def _lane(self, owner: Cell | _Group) -> Lane:
        if type(owner) is Cell and owner.group:
            owner = self._groups.setdefault(owner.group, _Group())
        lane = owner.lane
        if lane is None:
            lane = owner.lane = Lane(owner)
            self.active.append(lane)
        return lane

    def put_off(self, fd: int, mask: int) -> None:
        """Keep a ready descriptor of a process that shares its turns; `crowd` has it until it is taken."""
        if fd not in self.crowd_fds:
            self.crowd_fds.add(fd)
            self.crowd.append((fd, mask))

    def next_of_crowd(self) -> tuple[int, int]:
        """Take the descriptor that has waited longest."""
        found = self.crowd.popleft()
        self.crowd_fds.discard(found[0])
        return found

    def drop_until(self, lane: Lane, cell: Cell) -> None:
        """Remove the cells up to `cell`, which have had their turns, from the lane of a turn that was cut short."""
        while lane.popleft() is not cell:
            pass

    def give_back(self, lane: Lane) -> None:
        """Put back a lane that was taken for a turn, after an exception came out of that turn."""
        self.join(lane)
        if lane or lane.waiting is not None:
            self.active.append(lane)
        else:
            lane.owner.lane = None

    def first(self) -> Cell | None:
        """A cell that waits for its turn; None if there is none."""
        waiting = (cell for lane in self.active for cell in lane.waiting or () if _has_work(cell))
        return next(chain(self._ready, *self.active, waiting), None)

    def __bool__(self) -> bool:
        return bool(self.active or self._ready or self.crowd)


def _has_work(cell: Cell) -> bool:
    return bool(cell.queue or cell.woken or cell.sliced is not None)
