"""`SystemLink`: the connection between the systems of actors on two machines, which breaks and is made again.

    link = world.link_systems("a", "b")
    world.partition(["a"], ["b"])        both sides notice it, each after a delay of its own
    world.mend()                         and they connect again
    world.machine("b").crash()           a's side ends when the kernel of b has closed the connection

It stands for the process that keeps a link between two nodes, and for its heartbeats; `remote_systems` has what the
actors may rely on. These are its rules:

- A connection is a **session** with a number. The first machine calls, the other one accepts; what comes before the
  caller has the answer waits on the way. A side ends its older session when it enters a newer one.
- Messages are pickled, because machines share nothing, and travel on the way of their direction
  (`network.NetworkLink`): late, in order, and held while it is cut, as TCP holds them. A message of another session
  than the receiver's is lost, and the receiver resets that session.
- With `follows_log` a message waits until the receiver's system has applied as much of the log as the sender's had.
- While a direction is cut, both sides notice it after at most `Conditions.detection_delay`, chosen for each side, and
  end the session, each for itself. If the cut is mended before, nothing was lost.
- A process that dies closes its connections behind what it has sent. A machine without power closes none, and the other
  side notices it as it notices a cut.
"""

from __future__ import annotations

import pickle
from collections import deque
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress

if TYPE_CHECKING:
    from .machine import SimMachine
    from .world import SimWorld

#: Seconds after which a message that waits for the log is looked at again.
HELD_SECONDS = 1e-4


class _LinkEnd:
    """One end of the connection."""

    def __init__(self, machine: SimMachine) -> None:
        self.machine = machine
        #: The number of the session in which this side is; None while it is in none.
        self.session: int | None = None
        #: The system of actors at the other end of the session.
        self.peer = ""
        #: The number of the session for which this side waits for an answer.
        self.calling: int | None = None
        #: What has arrived in this session and waits: how much must have been applied, and the letter.
        self.held: deque[tuple[int, bytes]] = deque()


class SystemLink:
    """Made by `SimWorld.link_systems`."""

    def __init__(self, world: SimWorld, caller: SimMachine, called: SimMachine, follows_log: bool) -> None:
        self._world = world
        self._follows_log = follows_log
        self._caller, self._called = _LinkEnd(caller), _LinkEnd(called)
        self._sides = {caller.name: self._caller, called.name: self._called}
        self._last_session = 0
        #: Counts the cuts and the mends, so that a side that would notice a cut only after the mend keeps its session.
        self._changes = 0
        self._is_cut = False
        for side in self._sides.values():
            side.machine.links.append(self)
            self._way_from(side).watchers.append(self._way_changed)
        self._way_changed()
        self._call_soon()

    def session(self, machine: str) -> int | None:
        """The session in which the side of this machine is; None if it is not connected."""
        return self._sides[machine].session

    def _other(self, side: _LinkEnd) -> _LinkEnd:
        return self._called if side is self._caller else self._caller

    def _way_from(self, side: _LinkEnd) -> Any:
        return self._world.link(side.machine.name, self._other(side).machine.name)

    def _carry(self, side: _LinkEnd, arrive: Any, *args: Any) -> None:
        """Send something from `side` to the other side: call `arrive(other side, *args)` when it gets there."""
        way = self._way_from(side)
        way.carry(way, arrive, self._other(side), *args)

    # -- connecting --------------------------------------------------------------------------------

    def _call_soon(self) -> None:
        world = self._world
        world.at(world.time + world.delay(world.conditions.link_delay), self._call)

    def _call(self) -> None:
        caller = self._caller
        base = caller.machine.base
        if base is None or caller.session or caller.calling or self._is_cut or self._called.machine.base is None:
            return  # when the link is mended, or the machine is booted, this is called again
        self._last_session += 1
        caller.calling = self._last_session
        self._carry(caller, self._accept, caller.calling, base.name)

    def _accept(self, side: _LinkEnd, session: int, peer: str) -> None:
        base = side.machine.base
        if base is None:
            self._reset(side, session)
            return
        self._end(side)
        self._enter(side, session, peer)
        self._carry(side, self._answered, session, base.name)

    def _answered(self, side: _LinkEnd, session: int, peer: str) -> None:
        if side.calling != session:
            self._reset(side, session)
            return
        side.calling = None
        self._enter(side, session, peer)

    def _enter(self, side: _LinkEnd, session: int, peer: str) -> None:
        base = side.machine.base
        assert base is not None, "a machine that crashes leaves its session and its call"
        side.session, side.peer = session, peer
        side.held.clear()

        def carry(sender: ActorAddress, target: ActorAddress, message: Any) -> None:
            index = base.remotes.shown if self._follows_log else 0
            self._carry(side, self._arrive, session, index, pickle.dumps((sender, target, message)))

        base.remotes.system_up(peer, carry)
        self._record(side, "up")
        if self._is_cut or not self._is_shared(side):
            self._notice_later(side)

    def _is_shared(self, side: _LinkEnd) -> bool:
        """Whether the other side is in the same session, or is about to enter it."""
        other = self._other(side)
        return side.session in (other.session, other.calling)

    # -- messages ----------------------------------------------------------------------------------

    def _arrive(self, side: _LinkEnd, session: int, index: int, letter: bytes) -> None:
        base = side.machine.base
        if side.session == session and base is not None:
            if side.held or index > base.remotes.applied:
                side.held.append((index, letter))
                if len(side.held) == 1:
                    self._world.at(self._world.time + HELD_SECONDS, self._look_at_held, side, session)
            else:
                base.remotes.arrived(side.peer, *pickle.loads(letter))
            return
        world = self._world
        sender, target, message = pickle.loads(letter)
        world.record((world.time, "lost", sender.addressDetails, target.addressDetails, world.describe(message)))
        self._reset(side, session)

    def _look_at_held(self, side: _LinkEnd, session: int) -> None:
        base = side.machine.base
        if side.session != session or base is None:
            return
        while side.held and side.held[0][0] <= base.remotes.applied:
            base.remotes.arrived(side.peer, *pickle.loads(side.held.popleft()[1]))
        if side.held:
            self._world.at(self._world.time + HELD_SECONDS, self._look_at_held, side, session)

    # -- ending ------------------------------------------------------------------------------------

    def _reset(self, side: _LinkEnd, session: int) -> None:
        """Have the other side leave this session, if the machine of this side has power."""
        if side.machine.is_up:
            self._carry(side, self._was_reset, session)

    def _was_reset(self, side: _LinkEnd, session: int) -> None:
        if side.session == session:
            self._end(side)
        elif side.calling == session:
            side.calling = None
            self._call_soon()

    def _end(self, side: _LinkEnd) -> None:
        """Leave the session, if the side is in one. The caller's side calls again."""
        if side.session is None:
            return
        side.session = None
        base = side.machine.base
        if base is not None:
            base.remotes.system_down(side.peer)
            self._record(side, "down")
        if side is self._caller:
            self._call_soon()

    def _way_changed(self) -> None:
        """Handle that a direction was cut or mended."""
        is_cut = any(self._way_from(side).is_cut for side in self._sides.values())
        if is_cut == self._is_cut:
            return
        self._is_cut = is_cut
        self._changes += 1
        if is_cut:
            for side in self._sides.values():
                self._notice_later(side)
        else:
            self._call_soon()

    def _notice_later(self, side: _LinkEnd) -> None:
        """Have `side` notice after a while that the other one cannot be reached, unless the cut is mended before."""
        world = self._world
        delay = world.delay(world.conditions.detection_delay)
        world.at(world.time + delay, self._notice, side, side.session, self._changes)

    def _notice(self, side: _LinkEnd, session: int | None, changes: int) -> None:
        if session is None or side.session != session:
            return
        if self._changes == changes or not self._is_shared(side):
            self._end(side)
            self._reset(side, session)

    # -- called by the machines --------------------------------------------------------------------

    def crashed(self, machine: SimMachine) -> None:
        """Break the session, because the process on this machine has ended, or the machine itself (`is_up` is then
        False).
        """
        side = self._sides[machine.name]
        session = side.session or side.calling
        side.session = side.calling = None
        if session is None:
            return
        if machine.is_up:
            self._carry(side, self._was_reset, session)
        else:
            self._notice_later(self._other(side))

    def booted(self) -> None:
        """Have the caller connect again, because one of the machines runs again."""
        self._caller.calling = None
        self._call_soon()

    def _record(self, side: _LinkEnd, event: str) -> None:
        self._world.record((self._world.time, "link", side.machine.name, side.peer, event))
