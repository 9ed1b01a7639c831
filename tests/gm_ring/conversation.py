"""The interpreter of scenarios: commands to a `World`, and what follows from each.

A scenario is a text of blocks. The first line of a block is the command after `> `; the lines under it are what the
command leads to. `#` begins a comment.

    ring abc                a ring in which a speaks;  `all abc`: one in which all speak, each on the stream of its name
    say a 2                 a adds two instructions to its stream
    arrive a b [2]          the next frame from a reaches b, or the next two
    run                     everything arrives, and members learn what is done
    store b [2]             b's disk has everything b has received, or everything up to position 2
    kill b                  b has died, and no member knows it
    remove b                the log has a view without b
    learn d                 d follows the ring as a learner
    count a d               a counts d from now on
    admit d                 the log has a view with d in the ring
    transfer c              the log has a view with c as the first, which speaks
    apply a, apply all      a applies the next view; all members apply all views
    cut a b, mend a b       the connection is lost, and made again
    connect a b             the connection is made again, which the members notice later, by `mend a b`
    rest                    the laws of rest hold
"""

from __future__ import annotations

from warren.tests.conversations import interpreted

from .world import Violation, World, shown


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
    if command in ("ring", "all"):
        worlds[:] = [World(rest[0], command == "all", told.append)]
        worlds[0].run()
        told.clear()
        return
    try:
        _COMMANDS[command](worlds[0], told, *rest)
    except Violation as error:
        told.append(f"violation: {error}")


def _stream(world: World, name: str) -> str:
    return name if world.everybody else ""


def _say(world: World, told: list[str], name: str, count: str = "1") -> None:
    world.speak(world.named(name), _stream(world, name), int(count))


def _arrive(world: World, told: list[str], sender: str, receiver: str, count: str = "1") -> None:
    for _ in range(int(count)):
        pair = world.named(sender).name, world.named(receiver).name
        wire = world.wires.get(pair)
        told.append(f"   {sender} -> {receiver} {shown(wire[0]) if wire else 'nothing is on its way'}")
        world.arrive(pair)


def _store(world: World, told: list[str], name: str, position: str | None = None) -> None:
    node = world.named(name)
    for stream in list(node.known):
        world.store(node, stream, None if position is None else int(position))


def _apply(world: World, told: list[str], name: str) -> None:
    for node in world.living() if name == "all" else [world.named(name)]:
        if name != "all":
            world.apply(node)
        else:
            while world.apply(node):
                pass


_COMMANDS = {
    "say": _say,
    "arrive": _arrive,
    "run": lambda world, told: world.run(),
    "store": _store,
    "kill": lambda world, told, name: world.kill(world.named(name)),
    "remove": lambda world, told, *names: world.remove(*[world.named(name).name for name in names]),
    "learn": lambda world, told, name: world.add_learner(name),
    "count": lambda world, told, name, learner: world.count(world.named(name), world.named(learner).name),
    "admit": lambda world, told, name: world.admit(world.named(name).name),
    "transfer": lambda world, told, name: world.transfer(world.named(name).name),
    "apply": _apply,
    "cut": lambda world, told, one, other: world.break_off(world.named(one).name, world.named(other).name),
    "connect": lambda world, told, one, other: world.connect(world.named(one).name, world.named(other).name),
    "mend": lambda world, told, one, other: world.mend(world.named(one).name, world.named(other).name),
    "rest": lambda world, told: world.check_rest(),
}
