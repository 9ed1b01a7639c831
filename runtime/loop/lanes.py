"""`Lanes`: the run queue of a loop, divided so that every client gets the same number of turns.

With one run queue for all, a client that makes 20,000 queues busy would have 20,000 turns before another client has its
next one. Here each client has a *lane*, a run queue of its own, and in each round of the loop a lane has one turn. So a
client that causes more work waits longer for it, and no other client does.

Most clients have one message in flight, and few of their processes wait for a turn. Such a client is *light*: it has
no lane, and each of its processes waits in one queue with those of all other light clients. That costs half as much
as a lane for each client, and a message takes six turns.

A round has three stages. First come the connections and channels of light clients, then the processes that light
clients share, such as queues, and then the lanes. So a queue has its turn when all channels have passed on what the
last poll has read, and its batches are larger: with 100 busy clients a message costs a fifth less than if each process
had its turn in the order in which it was woken.

The processes of a small lane all have their turns in one round. Then the lane skips as many rounds as it had turns
beyond the first (`BURST`), so that in the long run it has one turn a round as well. In this way, what one process sends
to several others is handled in one go, and their batches stay together.

The turns of a connection and its channels count for the client of that connection. Any other process belongs to no
client for good: if it gets a message while it is idle, its turn counts for the client whose turn sent the message. So
what follows from the input of a connection, in queues and in Metadata, counts for that connection, and what a queue
delivers counts for those who get it. Processes that a timer, a blocking call or another thread has woken join the lane
of their own descriptor if they watch one, and that of their parent otherwise: the queues of a virtual host have one
lane for all their timers.

Clients that come by the thousand at once share one lane, because a thousand lanes would delay all other clients: see
`Process.share_turns`. Their descriptors have turns in that lane as well.

A lane with several processes serves them in the order in which they joined it. A *crowded* lane, with more than `BURST`
of them, has one on its run queue; the others wait beside it, as if they were idle. So a process that waits there behind
20,000 others, and gets a message in a turn of another lane, joins that lane too, and has its turn where it comes first.
Otherwise a client whose queue has had a timer, or a message of another client, would wait for the turns of all
processes that had one at the same time.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from ..system.cell import Cell, Lane
from .watchdog import Watchdog

#: Most processes of a lane that have their turns in one round; a lane with more is crowded and has one turn. What a
#: queue sends to ten channels would otherwise take ten rounds, the queue would have its next turn meanwhile, and
#: batches would fall apart: with 100 busy clients a message cost a third more. The lane has no turns in as many rounds
#: as it had turns beyond the first, so that each client gets its share.
BURST = 16

#: Most processes of a client that wait for their turns while it is light.
LIGHT = 4

#: Seconds after which a round is interrupted for a poll. A round has a turn of every busy client, and a client that was
#: idle must not wait for all of them before its input is read.
ROUND_SECONDS = 2e-3

#: Seconds from which on a turn is long. For `LONG_TURN_MEMORY` seconds after a long turn, a client without a lane goes
#: on at once with what its own turns have woken, for `FOLLOWED_SECONDS`. With a higher bound a message would wait for a
#: turn of nearly that length at each of its five hops: with 1.5 ms, another client's acknowledgements in random order,
#: in turns of 1.3 ms, kept it waiting for 12 ms. The lower bound costs nothing that could be measured (W2, W3, W4, W8,
#: W13, W15, W16), although a client that goes on reaches a queue before others have sent to it, so that batches are
#: smaller.
LONG_TURN_SECONDS = 0.75e-3
LONG_TURN_MEMORY = 0.02

#: See `LONG_TURN_SECONDS`. What a client publishes takes five turns to its consumer, each of which would otherwise wait
#: for a long turn of every other client.
FOLLOWED_SECONDS = 1e-3

#: Most lanes that are looked at, at every poll, to find out whether they are needed any longer.
LANES_GIVEN_UP = 64

#: Most processes of a crowded lane that `Lanes.refill` passes over in one round because they have had their turns in
#: other lanes.
PASSED_OVER = 256


#: The stages of a round.
_LIGHT, _SHARED, _LANES = "light", "shared", "lanes"


class _Group:
    """Owns a lane of processes that share their turns, or that have no parent."""

    __slots__ = ("lane",)

    #: A group is never light.
    light, group = LIGHT, ""

    def __init__(self) -> None:
        self.lane: Lane | None = None


class Lanes:
    """The lanes of one loop, and the turns that they get.

    `ready` has the cells that were woken and do not wait for a turn yet.
    """

    __slots__ = (
        "_groups",
        "_left",
        "_ready",
        "_stage",
        "_watchdog",
        "active",
        "crowd",
        "crowd_fds",
        "follow_until",
        "light",
        "shared",
    )

    def __init__(self, ready: deque[Cell], watchdog: Watchdog) -> None:
        self._ready = ready
        self._watchdog = watchdog
        #: The processes of light clients that wait for their turns, each with the owner of its client's lane.
        self.light: deque[tuple[Cell, Any]] = deque()
        #: Processes that serve no client, such as queues, and wait for their turns because a light client has woken
        #: them, each with that client.
        self.shared: deque[tuple[Cell, Any]] = deque()
        #: The lanes that have cells, in the order of their turns, without the one whose turn it is.
        self.active: deque[Lane] = deque()
        #: The stage in which a round was interrupted, and how many processes or lanes have not had their turn in it.
        self._stage, self._left = _LIGHT, 0
        #: Until when clients go on at once, because a turn was long.
        self.follow_until = 0.0
        #: By name: the groups of processes that share their turns. Processes without a parent have the empty name.
        self._groups = {"": _Group()}
        #: Descriptors that are ready and whose processes share their turns, as they come from the poller, in order.
        self.crowd: deque[tuple[int, int]] = deque()
        #: The same descriptors as a set, because the poller reports them again until they are served.
        self.crowd_fds: set[int] = set()

    # -- turns -------------------------------------------------------------------------------------

    def have_turns(self, turn: Callable[[Cell], Any], now: float) -> float:
        """Go on with a round, or begin one: each light client has its turns, and each lane. Return the time.

        After `ROUND_SECONDS` the rest of the round is left to the next call.
        """
        ends = now + ROUND_SECONDS
        if self._stage is _LIGHT:
            if self.light:
                now = self._light_turns(self.light, turn, now, ends)
                if self._left:
                    return now
            self._stage = _SHARED
        if self._stage is _SHARED:
            if self.shared:
                now = self._light_turns(self.shared, turn, now, ends)
                if self._left:
                    return now
            self._stage = _LANES
        if self.active:
            now = self._lane_turns(turn, now, ends)
            if self._left:
                return now
        self._stage = _LIGHT
        return now

    def _light_turns(
        self, waiting: deque[tuple[Cell, Any]], turn: Callable[[Cell], Any], now: float, ends: float
    ) -> float:
        light, shared, ready, monotonic = self.light, self.shared, self._ready, time.monotonic
        # A turn that ends before `late` was too short to be noted, and does not end the round.
        late = min(now + self._watchdog.floor, now + LONG_TURN_SECONDS, ends)
        follow_until = self.follow_until
        cell = owner = None
        try:
            for left in range((self._left or len(waiting)) - 1, -1, -1):
                cell, owner = waiting.popleft()
                began = now
                message = turn(cell)
                now = monotonic()
                if now > late or now < follow_until:
                    late = self._noted(cell, message, began, now, ends)
                    follow_until = self.follow_until
                    owner.light -= 1
                    if ready:
                        now = self.go_on(owner, turn, began, now)
                    if now > ends:
                        self._left = left
                        return now
                elif not ready:
                    owner.light -= 1
                elif len(ready) == 1 and owner.lane is None and ready[0].client in (None, owner):
                    (light if ready[0].client else shared).append((ready.popleft(), owner))
                else:
                    owner.light -= 1
                    self.admit(owner)
        except BaseException:
            # Ctrl-C came in the middle of a turn. The actor must stay able to handle its ActorExitRequest.
            self._left = 0
            if cell is not None and owner is not None:
                owner.light -= 1
                if cell.actor is not None and not cell.is_idle and cell not in ready:
                    ready.append(cell)
                self.admit(owner)
            raise
        self._left = 0
        return now

    def go_on(self, owner: Cell | _Group, turn: Callable[[Cell], Any], began: float, now: float) -> float:
        """Have the cells wait that a client's turn, which began at `began`, has woken. For a while after a long turn,
        those of a client without a lane have their turns at once instead, and so have those that they wake: `BURST`
        turns, until `FOLLOWED_SECONDS` after `began`. If the client has a lane, the cells in it were woken before, and
        its next ones do not overtake them. Return the time.
        """
        ready, monotonic = self._ready, time.monotonic
        if now < self.follow_until and owner.lane is None and len(ready) <= BURST:
            ends = began + FOLLOWED_SECONDS
            cell: Cell | None = None
            try:
                for _ in range(BURST):
                    if now > ends or not ready:
                        break
                    cell = ready.popleft()
                    began = now
                    message = turn(cell)
                    now = monotonic()
                    if now - began > self._watchdog.floor or now - began > LONG_TURN_SECONDS:
                        self.note(cell, message, began, now)
            except BaseException:
                # As in `_light_turns`, the actor whose turn was cut short must stay able to handle its exit request.
                if cell is not None and cell.actor is not None and not cell.is_idle and cell not in ready:
                    ready.append(cell)
                self.admit(owner)
                raise
        if ready:
            self.admit(owner)
        return now

    def _lane_turns(self, turn: Callable[[Cell], Any], now: float, ends: float) -> float:
        active, ready, monotonic = self.active, self._ready, time.monotonic
        late = min(now + self._watchdog.floor, now + LONG_TURN_SECONDS, ends)
        cell: Cell | None = None
        for left in range((self._left or len(active)) - 1, -1, -1):
            lane = active.popleft()
            if lane.owed:
                lane.owed -= 1
                if active or self.light or self.shared:
                    active.append(lane)
                    continue
            visited = now
            if lane.waiting is not None:
                self.refill(lane)
            try:
                for cell in lane:
                    began = now
                    message = turn(cell)
                    now = monotonic()
                    if now > late:
                        late = self._noted(cell, message, began, now, ends)
                        if now > ends:
                            self.drop_until(lane, cell)
                            break
                else:
                    if len(lane) > 1:
                        lane.owed = len(lane) - 1
                    lane.clear()
            except BaseException:
                # As in `_light_turns`, the actor whose turn was cut short must stay able to handle its exit request.
                if cell is not None and cell in lane:
                    self.drop_until(lane, cell)
                    if cell.actor is not None:
                        ready.append(cell)
                self.give_back(lane)
                self._left = 0
                raise
            if ready:
                now = self.go_on(lane.owner, turn, visited, now)
            if lane or lane.waiting is not None:
                active.append(lane)
            else:
                # The owner of an empty lane keeps none: it takes 0.8 KiB, and most connections are idle.
                lane.owner.lane = None
            if now > ends:
                self._left = left
                return now
        self._left = 0
        return now

    def _noted(self, cell: Cell, message: Any, began: float, now: float, ends: float) -> float:
        """Note a turn if it was long. Return a time: a later turn that ends before it cannot have been long."""
        watchdog = self._watchdog
        if now - began > watchdog.floor or now - began > LONG_TURN_SECONDS:
            self.note(cell, message, began, now)
        return min(now + watchdog.floor, now + LONG_TURN_SECONDS, ends)

    def note(self, cell: Cell, message: Any, began: float, now: float) -> None:
        """Note a turn that was long, and handled `message` last. If it was very long, clients go on at once for a
        while.
        """
        if self._watchdog.note(cell, message, began, now) > LONG_TURN_SECONDS:
            self.follow_until = now + LONG_TURN_MEMORY

    def give_up(self, now: float) -> bool:
        """Return all processes that wait to the run queue of the loop, for direct turns (see `direct_turns`), unless
        a lane has more than a light client may have, or a turn was long lately. Returns whether it did.
        """
        active, ready = self.active, self._ready
        if self.crowd or now < self.follow_until or len(active) > LANES_GIVEN_UP:
            return False
        if any([lane.waiting is not None or len(lane) > LIGHT for lane in active]):
            return False
        for waiting in (self.light, self.shared):
            while waiting:
                cell, owner = waiting.popleft()
                owner.light -= 1
                ready.append(cell)
        while active:
            lane = active.popleft()
            lane.owner.lane = None
            ready += lane
        self._stage, self._left = _LIGHT, 0
        return True

    # -- woken cells -------------------------------------------------------------------------------

    def admit(self, owner: Cell | _Group) -> None:
        """Have the woken cells wait for turns. Each counts for the client that the cell serves or, if it serves none,
        for `owner`, in whose turn it was woken.
        """
        ready, light, shared = self._ready, self.light, self.shared
        if len(ready) > BURST:
            self.join(self._lane(owner))
            return
        for woken in ready:
            client = woken.client or owner
            if client.light < LIGHT and client.lane is None and not client.group:
                client.light += 1
                (light if woken.client else shared).append((woken, client))
            else:
                self._enter(self._lane(client), woken)
        ready.clear()

    def _enter(self, lane: Lane, cell: Cell) -> None:
        lane.append(cell)
        if len(lane) > BURST or lane.waiting is not None:
            self._hold_back(lane)

    def admit_each(self) -> None:
        """Put the cells that were woken outside any turn into their own lanes or those of their parents."""
        ready = self._ready
        while ready:
            cell = ready.popleft()
            self._enter(self._lane(cell if cell.fds else cell.parent or self._groups[""]), cell)

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
            if cell.actor is not None and cell.is_idle and cell.has_work:
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

    def waiting(self) -> Iterator[Cell]:
        """The cells that wait for their turns. A caller must not have them wait or take turns meanwhile."""
        light = (cell for cell, _ in chain(self.light, self.shared))
        crowded = (cell for lane in self.active for cell in lane.waiting or () if cell.has_work)
        return chain(self._ready, light, *self.active, crowded)

    def __bool__(self) -> bool:
        return bool(self.light or self.shared or self.active or self._ready or self.crowd)
