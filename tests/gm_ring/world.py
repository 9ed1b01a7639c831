"""`World`: members of a ring, the log that has their views, slow connections that may break, and laws that must hold.

Nothing happens by itself. A test has members speak, lets frames arrive, kills members, breaks connections, puts views
into the log and lets members apply them. After every step the laws are checked, under the numbers of
docs/spec/gm-ring.md:

- *GM-6*: each member gets consecutive positions of each stream, and no two members get different instructions at one.
- *GM-15*, the rule of confirms: what a speaker reports as complete is at every member of its view, on disk if it says
  so, and at the learners that it counts. It stays at all who are ever in the ring from then on.
- *The prefix rule* of a ring with one speaker: no member has received more than the one before it.
- *GM-17*, at rest: no member retains anything, and all have received the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from warren.gm_ring.frames import Attach, Fenced, Frame, Instruction, Numbers, Pubs, StreamProgress
from warren.gm_ring.ring import RingMember
from warren.gm_ring.turn import Completed
from warren.gm_ring.view import Member, Stream, View

#: The stream of a ring in which the first member speaks.
ONLY = ""


class Violation(AssertionError):
    """The members have broken one of the laws that the module's docstring lists."""


class Node:
    """A member, living or dead, and what it has passed on to its owner."""

    def __init__(self, name: Member, ring: RingMember, applied: int, is_founder: bool) -> None:
        self.name = name
        self.ring = ring
        self.is_alive = True
        self.applied = applied
        #: For each stream: the instructions that the owner has, by position.
        self.known: dict[Stream, dict[int, bytes]] = {}
        #: For each stream: the position after which the owner gets every instruction. Earlier ones were copied to a
        #: learner.
        self.told: dict[Stream, int] = {}
        self.is_founder = is_founder
        #: The latest report for each stream of what is complete.
        self.completed: dict[Stream, Completed] = {}


class World:
    """Members and their log, as the module describes them. With `everybody` each member has a stream of its own;
    otherwise the first speaks on the only one.
    """

    def __init__(self, names: str, everybody: bool = False, told: Callable[[str], None] = lambda line: None) -> None:
        self.everybody = everybody
        self._tell = told
        members = tuple([(name, "1", 1) for name in names])
        self.log: list[View] = [View(1, members, self._speakers(members, {}))]
        self.nodes: dict[Member, Node] = {}
        #: The frames in flight, by (sender, receiver).
        self.wires: dict[tuple[Member, Member], deque[Frame]] = {}
        #: Pairs of members without a connection.
        self.cut: set[frozenset[Member]] = set()
        #: Connections that were made again, which the members have not noticed yet.
        self.unnoticed: set[frozenset[Member]] = set()
        #: The complete instructions, by stream and position.
        self.complete: dict[Stream, dict[int, bytes]] = {}
        self.said = 0
        for name in members:
            self.nodes[name] = Node(name, RingMember(name, self.log[0]), 0, True)
        for name in members:
            self.end_turn(self.nodes[name])

    def _speakers(self, members: tuple[Member, ...], old: dict[Stream, Member]) -> dict[Stream, Member]:
        if not self.everybody:
            return {ONLY: members[0]}
        return {**old, **{_own_stream(name): name for name in members}}

    # -- what tests do ---

    @property
    def view(self) -> View:
        """The last view in the log."""
        return self.log[-1]

    def named(self, name: str) -> Node:
        """The latest member with this name."""
        return [node for node in self.nodes.values() if node.name[0] == name][-1]

    def speak(self, node: Node, stream: Stream, count: int = 1) -> list[bytes]:
        """Have a speaker add `count` instructions to a stream, and return them."""
        said: list[Instruction] = []
        for _ in range(count):
            self.said += 1
            said.append((1, str(self.said).encode()))
        last = node.ring.broadcast(stream, said)
        known = node.known.setdefault(stream, {})
        for position, (_, body) in enumerate(said, last - count + 1):
            known[position] = body
        self.end_turn(node)
        return [body for _, body in said]

    def store(self, node: Node, stream: Stream, position: int | None = None) -> None:
        """The disk of a member has what it has received, or a part of it."""
        node.ring.safe(stream, max(node.known.get(stream, {0: b""}), default=0) if position is None else position)
        self.end_turn(node)

    def arrive(self, pair: tuple[Member, Member]) -> Frame | None:
        """The next frame of a connection arrives."""
        wire = self.wires.get(pair)
        if not wire:
            return None
        frame = wire.popleft()
        node = self.nodes.get(pair[1])
        if node is not None and node.is_alive:
            node.ring.receive(pair[0], frame)
            self.end_turn(node)
        return frame

    def kill(self, node: Node) -> None:
        """The member dies. No other knows it yet, and what it has sent arrives."""
        node.is_alive = False

    def break_off(self, one: Member, other: Member) -> None:
        """The connection is lost, with the frames in flight on it."""
        self.cut.add(frozenset((one, other)))
        self.unnoticed.discard(frozenset((one, other)))
        for pair in ((one, other), (other, one)):
            self.wires.pop(pair, None)

    def connect(self, one: Member, other: Member) -> None:
        """The connection is made again. What the members send now arrives before they notice that (`mend`)."""
        self.cut.discard(frozenset((one, other)))
        self.unnoticed.add(frozenset((one, other)))

    def mend(self, one: Member, other: Member) -> None:
        """The connection is made again, and the members notice it."""
        self.cut.discard(frozenset((one, other)))
        self.unnoticed.discard(frozenset((one, other)))
        for node, neighbour in ((self.nodes.get(one), other), (self.nodes.get(other), one)):
            if node is not None and node.is_alive:
                node.ring.neighbour_is_back(neighbour)
                self.end_turn(node)

    def propose(self, view: View) -> None:
        self.log.append(view)

    def remove(self, *gone: Member) -> None:
        """Put a view without these members into the log; the next member that stays goes on with their streams."""
        old = self.view
        members = tuple([name for name in old.members if name not in gone])
        speakers = {}
        for stream, speaker in old.speakers.items():
            at = old.members.index(speaker)
            around = old.members[at:] + old.members[:at]
            speakers[stream] = next(name for name in around if name not in gone)
        learners = tuple([name for name in old.learners if name not in gone])
        is_change = members != old.members
        self.propose(replace(old, epoch=old.epoch + is_change, members=members, speakers=speakers, learners=learners))

    def add_learner(self, letter: str) -> Node:
        """Add a new member, which follows the last one as a learner."""
        generation = 1 + len([name for name in self.nodes if name[0] == letter])
        name = (letter, "1", generation)
        self.propose(replace(self.view, learners=(*self.view.learners, name)))
        node = self.nodes[name] = Node(name, RingMember(name, self.view), len(self.log) - 1, False)
        self.end_turn(node)
        return node

    def count(self, node: Node, learner: Member) -> None:
        """The speaker counts a learner from now on."""
        view = node.ring.view
        node.ring.change_view(replace(view, counted=view.counted | {learner}, serial=view.serial + 1))
        self.end_turn(node)

    def admit(self, learner: Member) -> None:
        """Put a view in which the learner is the last of the ring into the log."""
        old = self.view
        members = (*old.members, learner)
        learners = tuple([name for name in old.learners if name != learner])
        speakers = self._speakers(members, dict(old.speakers))
        self.propose(replace(old, epoch=old.epoch + 1, members=members, speakers=speakers, learners=learners))

    def transfer(self, to: Member) -> None:
        """Put a view in which this member is the first, and speaks, into the log."""
        old = self.view
        members = (to, *[name for name in old.members if name != to])
        self.propose(replace(old, epoch=old.epoch + 1, members=members, speakers={ONLY: to}))

    def apply(self, node: Node, to: int | None = None) -> bool:
        """A member applies the next view of the log, or the one at that place; returns whether there was one."""
        at = node.applied + 1 if to is None else to
        if at >= len(self.log) or at <= node.applied or not node.is_alive:
            return False
        node.applied = at
        view = self.log[at]
        own = node.ring.view
        counted = frozenset([name for name in own.counted if name in view.learners and view.epoch == own.epoch])
        node.ring.change_view(replace(view, counted=counted, serial=own.serial + 1))
        self.end_turn(node)
        return True

    def tell_done(self, node: Node) -> None:
        node.ring.tell_done()
        self.end_turn(node)

    def run(self) -> None:
        """Deliver all frames, and report to all members what they may forget, until nothing moves."""
        moves = True
        while moves:
            moves = False
            for pair in list(self.wires):
                while self.arrive(pair) is not None:
                    moves = True
            for node in self.living():
                if node.ring.has_part and node.ring.owes_done:
                    self.tell_done(node)
                    moves = True

    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_alive]

    def in_ring(self) -> list[Node]:
        return [self.nodes[name] for name in self.view.members]

    # -- what follows ---

    def end_turn(self, node: Node) -> None:
        turn = node.ring.end_turn()
        for to, frame in turn.frames:
            self._tell(f"{node.name[0]} -> {to[0]} {shown(frame)}")
            if frozenset((node.name, to)) not in self.cut:
                self.wires.setdefault((node.name, to), deque()).append(frame)
        for stream, first, instructions in turn.deliveries:
            self._told(node, stream, first, [body for _, body in instructions])
        for report in turn.completed:
            self._tell(f"{node.name[0]} knows: all have {report.received}, stored {report.stored}")
            node.completed[report.stream] = report
            self._check_complete(node, report)
        if node.ring.is_out_of_sync:
            self._tell(f"{node.name[0]} is out of sync")
            node.is_alive = False
        self._check_prefixes()

    def _told(self, node: Node, stream: Stream, first: int, bodies: list[bytes]) -> None:
        self._tell(f"{node.name[0]} is told {first}: {' '.join(body.decode() for body in bodies)}")
        known = node.known.setdefault(stream, {})
        if not bodies:
            # Earlier instructions are copied to the learner, and on its disk.
            node.told[stream] = first - 1
            node.ring.safe(stream, first - 1)
        last = max(known, default=node.told.get(stream, 0))
        if first != last + 1:
            raise Violation(f"{node.name} is told {first} of {stream!r} after {last} (GM-6)")
        for position, body in enumerate(bodies, first):
            known[position] = body
            for other in self.nodes.values():
                theirs = other.known.get(stream, {}).get(position, body)
                if theirs != body and (other.is_alive or self._is_complete(stream, position)):
                    is_level = node.ring.view.epoch == other.ring.view.epoch
                    if is_level and {node.name, other.name} <= set(self.view.members):
                        raise Violation(f"{node.name} is told {body!r} at {position}, {other.name} was told {theirs!r}")

    def _is_complete(self, stream: Stream, position: int) -> bool:
        return position in self.complete.get(stream, {})

    def _check_complete(self, node: Node, report: Completed) -> None:
        view = node.ring.view
        complete = self.complete.setdefault(report.stream, {})
        known = node.known.get(report.stream, {})
        for name in [*view.members, *view.counted]:
            other = self.nodes[name]
            if name == node.name:
                continue
            for position in [at for at in known if at <= report.received]:
                mine, theirs = known[position], other.known.get(report.stream, {}).get(position)
                if theirs != mine and not self._came_later(other, report.stream, position):
                    raise Violation(f"{position} is reported as complete, and {name} has {theirs!r}, not {mine!r}")
            if report.stored > other.ring.safe_at(report.stream):
                raise Violation(
                    f"{report.stored} is reported as stored, at {name} it is {other.ring.safe_at(report.stream)}"
                )
        for position, body in known.items():
            if position <= report.received:
                complete[position] = body

    def _came_later(self, node: Node, stream: Stream, position: int) -> bool:
        """Whether the member begins after this position, so that earlier instructions were copied to it."""
        return position <= node.told.get(stream, 0)

    def _check_prefixes(self) -> None:
        if self.everybody:
            return
        view = self.view
        nodes = [self.nodes[name] for name in view.members]
        if any(node.ring.view.epoch != view.epoch or not node.is_alive for node in nodes):
            return
        lasts = [node.ring.last(ONLY) for node in nodes]
        if sorted(lasts, reverse=True) != lasts:
            raise Violation(f"the members have received {lasts}, in the order of the ring")

    def check_survival(self) -> None:
        """Assert that what was ever complete is at every member of the ring, if one member speaks and counts learners.
        Where all speak, it is at those who were members from the beginning.
        """
        for node in self.in_ring():
            for stream, complete in self.complete.items():
                if stream not in self.view.speakers or (self.everybody and not node.is_founder):
                    continue
                for position, body in complete.items():
                    theirs = node.known.get(stream, {}).get(position)
                    if theirs != body and not self._came_later(node, stream, position):
                        raise Violation(f"{node.name} lost {body!r} at {position} of {stream!r}: has {theirs!r}")

    def check_rest(self) -> None:
        """Assert the laws of rest, where all members of the ring live and are connected, and nothing is in flight."""
        for stream in self.view.speakers:
            lasts = {node.ring.last(stream) for node in self.in_ring()}
            if len(lasts) != 1:
                raise Violation(f"at rest the members have {lasts} of {stream!r} (GM-17)")
        for node in self.in_ring():
            for stream, first in self.in_ring()[0].known.items():
                theirs = node.known.get(stream, {})
                if any(first[at] != theirs[at] for at in {*first} & {*theirs}):
                    raise Violation(f"{node.name} and the first member were told different instructions")
        kept = {node.name: kept_bytes(node.ring) for node in self.in_ring() if kept_bytes(node.ring)}
        if kept:
            raise Violation(f"at rest members retain {kept} bytes (GM-17)")
        self.check_survival()


def kept_bytes(ring: RingMember) -> int:
    """The bytes of all instructions that a member retains."""
    return sum(state.retained.size for state in ring._streams.values())


def _own_stream(member: Member) -> Stream:
    """The name of a member's own stream; a member that comes back begins a new one."""
    return member[0] if member[2] == 1 else f"{member[0]}{member[2]}"


def shown(frame: Frame) -> str:
    """The frame as text, for a scenario."""
    if isinstance(frame, Pubs):
        bodies = " ".join([body.decode() for _, body in frame.instructions])
        return f"{frame.stream}{frame.first}: {bodies or 'nothing'}, done {frame.done}"
    if isinstance(frame, Numbers):
        return f"{frame.stream}received {frame.received}, stored {frame.stored}"
    if isinstance(frame, StreamProgress):
        return f"{frame.stream}has received {frame.received}, stored {frame.stored}"
    if isinstance(frame, Attach):
        has = ", ".join(
            [f"{stream}received {received}, stored {stored}" for stream, received, stored in frame.positions]
        )
        return f"attaches: {has or 'new'}"
    if isinstance(frame, Fenced):
        return f"fenced by epoch {frame.epoch}"
    return "begins with " + ", ".join([f"{stream}{start} from {base}" for stream, base, start in frame.starts])
