"""The interpreter of scenarios: commands to a `World`, and what follows from each.

A scenario is a text of blocks. The first line of a block is the command after `> `; the lines under it are what the
command leads to. `#` begins a comment.

    nodes a b c [learners d] [witnesses c] [strangers e]    begin; a stranger is no member yet
    pass 20                 all nodes tick so often, and messages and writes wait
    tick a 20               one node ticks so often
    deliver [a b]           what is in flight arrives, or only what a sends to b
    lose [a b]              it does not arrive
    delay a b, resume       what a sent to b waits, and is in flight again
    write a                 the disk of a has what a was writing
    run                     deliver and write until nothing moves
    settle 20               so many ticks with a run after each; messages are not shown
    cut a b, mend a b       what a sends to b is lost, no longer
    part a b, meet a b      the same for both directions
    crash a [written]       a is down; what it was writing is lost, or on the disk
    start a                 a runs again
    propose a text          a command for the log
    bulk a                  a command so large that an append has no room for a second one
    learner a d, voter a d, witness a d, remove a d         a change of the members, asked of a
    transfer a [b]          a hands leadership over
    barrier a 1             a barrier with this number
    lost a b                a's connection to its leader b broke and cannot be made again
    broken a b              the leader a's connection to b broke
    compact a               a forgets the entries that it has applied
    log a, disk a           what a has in memory, on its disk
"""

from __future__ import annotations

from collections.abc import Iterator

from warren.cluster.consensus import messages as m
from warren.cluster.consensus.log import COMMAND, EMPTY, MEMBERS, Entry
from warren.cluster.consensus.membership import RaftMembers
from warren.tests.conversations import interpreted

from .world import ProposalRefused, World


def played(text: str) -> str:
    """Play the commands of the scenario, and return it with the lines that really follow from each."""
    worlds: list[World] = []
    told: list[str] = []

    def perform(words: list[str]) -> list[str]:
        told.clear()
        _perform(worlds, told, words)
        return list(told)

    return interpreted(text, perform)


def _perform(worlds: list[World], told: list[str], words: list[str]) -> None:
    command, *rest = words
    if command == "nodes":
        worlds[:] = [_world(rest, told)]
        return
    world = worlds[0]
    try:
        _COMMANDS[command](world, *rest)
    except ProposalRefused as error:
        told.append(f"refused: {error}")


def _world(words: list[str], told: list[str]) -> World:
    groups: dict[str, list[str]] = {"voters": [], "learners": [], "witnesses": [], "strangers": []}
    group = "voters"
    for word in words:
        if word in groups:
            group = word
        else:
            groups[group].append(word)
    voters = sorted(groups["voters"] + groups["witnesses"])
    members = RaftMembers(tuple(voters), tuple(groups["learners"]), tuple(groups["witnesses"]))
    names = [*members.everyone, *groups["strangers"]]
    return World(
        members,
        # Election timeouts grow in the order of the names, so the node named first begins an election first.
        lambda name, low, high: min(low + 3 * names.index(name), high),
        told.append,
        tuple(groups["strangers"]),
    )


def _pass(world: World, count: str) -> None:
    for _ in range(int(count)):
        world.tick_all()


def _tick(world: World, name: str, count: str = "1") -> None:
    for _ in range(int(count)):
        world.tick(name)


def _taken(world: World, ends: tuple[str, ...]) -> Iterator[m.ConsensusMessage]:
    """Take out the messages that are in flight now. Messages that they cause stay in flight."""
    taken = [message for message in world.in_flight if not ends or (message.sender, message.to) == ends]
    world.in_flight = [message for message in world.in_flight if message not in taken]
    return iter(taken)


def _deliver(world: World, *ends: str) -> None:
    for message in _taken(world, ends):
        lost = (message.sender, message.to) in world.cut or world.nodes[message.to].raft is None
        world.told(f"{shown(message)}{' (lost)' if lost else ''}")
        world.deliver(message)


def _lose(world: World, *ends: str) -> None:
    for message in _taken(world, ends):
        world.told(f"lost: {shown(message)}")


def _delay(world: World, *ends: str) -> None:
    world.delayed += _taken(world, ends)


def _resume(world: World) -> None:
    world.in_flight += world.delayed
    world.delayed.clear()


def _write(world: World, name: str) -> None:
    ready = world.nodes[name].writing
    if ready is not None:
        parts = [
            *([f"term {ready.ballot.term}, vote for {ready.ballot.voted_for}"] if ready.ballot else []),
            *([f"the snapshot at {ready.snapshot.mark.index}"] if ready.snapshot else []),
            *map(_entry, ready.entries),
        ]
        if parts:
            world.told(f"{name} writes {', '.join(parts)}")
    world.finish_write(name)


def _run(world: World) -> None:
    while world.in_flight or any(node.writing for node in world.nodes.values()):
        _deliver(world)
        for name in world.nodes:
            _write(world, name)


def _settle(world: World, count: str) -> None:
    for _ in range(int(count)):
        world.tick_all()
        world.run()


def _cut(world: World, one: str, other: str) -> None:
    world.cut.add((one, other))


def _mend(world: World, one: str, other: str) -> None:
    world.cut.discard((one, other))


def _part(world: World, one: str, other: str) -> None:
    world.cut |= {(one, other), (other, one)}


def _meet(world: World, one: str, other: str) -> None:
    world.cut -= {(one, other), (other, one)}


def _crash(world: World, name: str, written: str = "") -> None:
    world.crash(name, bool(written))


def _propose(world: World, name: str, *words: str) -> None:
    index = world.propose(name, " ".join(words).encode())
    world.told(f"entry {index}")


def _log(world: World, name: str) -> None:
    raft = world.nodes[name].live
    log = raft.log
    world.told(f"{name}: {raft.role.value} in term {raft.term}, leader {raft.leader_name}, {_members(log.members)}")
    entries = " ".join(map(_entry, log.entries))
    world.told(f"{name}: from {log.start.index}@{log.start.term}: {entries or 'nothing'}; committed {log.committed}")


def _disk(world: World, name: str) -> None:
    disk = world.nodes[name].disk
    entries = " ".join(map(_entry, disk.entries))
    world.told(f"{name}: term {disk.ballot.term}, vote for {disk.ballot.voted_for}, applied {disk.applied}")
    world.told(f"{name}: from {disk.start.index}@{disk.start.term}: {entries or 'nothing'}")


_COMMANDS = {
    "pass": _pass,
    "tick": _tick,
    "deliver": _deliver,
    "lose": _lose,
    "delay": _delay,
    "resume": _resume,
    "write": _write,
    "run": _run,
    "settle": _settle,
    "cut": _cut,
    "mend": _mend,
    "part": _part,
    "meet": _meet,
    "crash": _crash,
    "start": World.start,
    "propose": _propose,
    "bulk": lambda world, name: world.propose(name, b"bulk " * (120 << 10)),
    "learner": lambda world, at, node: world.change(at, lambda members: members.with_learner(node)),
    "voter": lambda world, at, node: world.change(at, lambda members: members.with_voter(node)),
    "witness": lambda world, at, node: world.change(at, lambda members: members.with_voter(node, True)),
    "remove": lambda world, at, node: world.change(at, lambda members: members.without(node)),
    "transfer": World.transfer,
    "barrier": lambda world, name, serial: world.barrier(name, int(serial)),
    "lost": World.give_up,
    "broken": World.broken,
    "compact": World.compact,
    "log": _log,
    "disk": _disk,
}


def _entry(entry: Entry) -> str:
    """The entry as `index@term` and its content."""
    what = {EMPTY: "-", COMMAND: entry.data[:20].decode(errors="replace"), MEMBERS: ""}[entry.kind]
    if entry.kind == MEMBERS:
        what = _members(RaftMembers.unpacked(entry.data))
    return f"{entry.index}@{entry.term}({what})"


def _members(members: RaftMembers) -> str:
    parts = zip(("voters", "learners", "witnesses"), members)
    return " ".join(f"{kind} {','.join(names)}" for kind, names in parts if names) or "no members"


def shown(message: m.ConsensusMessage) -> str:
    """The message as a line of a scenario."""
    head = f"{message.sender} -> {message.to} term {message.term} {_words(type(message).__name__)}"
    match message:
        case m.PreVote() | m.Vote():
            transfer = ", as its leader wants" if isinstance(message, m.Vote) and message.is_transfer else ""
            return f"{head}: log ends with {message.last_index}@{message.last_term}{transfer}"
        case m.PreVoteAnswer() | m.VoteAnswer():
            return f"{head}: {'yes' if message.is_granted else 'no'}"
        case m.Append():
            entries = " ".join(map(_entry, message.entries)) or "nothing"
            return (
                f"{head}: after {message.previous_index}@{message.previous_term} {entries}, "
                f"committed {message.committed}"
            )
        case m.AppendAnswer() if message.is_accepted:
            return f"{head}: has {message.index}"
        case m.AppendAnswer():
            hint = f"{message.last_index}@{message.last_term} since {message.first_of_term}"
            return f"{head}: lacks {message.index}, has {hint}"
        case m.Heartbeat():
            return f"{head}: committed {message.committed}"
        case m.Snapshot():
            return f"{head}: at {message.mark.index}@{message.mark.term}"
        case m.Barrier():
            return f"{head}: {message.serial}"
        case m.BarrierAnswer():
            return f"{head}: {message.serial} at {message.index}"
    return head


def _words(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
