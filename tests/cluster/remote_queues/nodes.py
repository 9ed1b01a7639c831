"""Nodes on simulated machines whose systems of actors are connected and which share their metadata.

`SharedLog` stands for consensus: every node applies every command in one order, and a command is answered when all
nodes that run have applied it. `SimSocket` lets the client of the behaviour tests talk to such a node, so that a test
reads like one against a real broker: whenever the client waits for data, the world runs.
"""

from __future__ import annotations

from typing import Any

from warren.actors.metadata import process as metadata_process
from warren.actors.metadata.log.log import CommandOutcome
from warren.actors.metadata.log.row_encoding import StoredRows
from warren.actors.metadata.state.commands import AddNode, ChangeNodes
from warren.actors.metadata.state.state import apply
from warren.amqp.errors import AmqpError
from warren.cluster.links.encoding.envelopes import Envelopes, body
from warren.cluster.links.encoding.messages import MESSAGES
from warren.definitions.errors import DefinitionError
from warren.definitions.features import FEATURES
from warren.definitions.records import Node
from warren.routing.vhost_rows import DEFAULT_EXCHANGES
from warren.runtime.signal import Signal
from warren.runtime.sim import system_link
from warren.runtime.sim.world import Conditions, SimWorld
from warren.runtime.system.address import system_of
from warren.simulation.node import PORT, SimNode
from warren.tests.behaviour import wire

_FEATURES = tuple(sorted(FEATURES))
_DEFAULT = {name for name, _, _ in DEFAULT_EXCHANGES}


class SharedLog:
    """The log of one node in a world with several. `Metadata` makes it with `make`."""

    def __init__(self, history: History, process: Any, state: Any, owner: Any) -> None:
        self.history = history
        self.process = process
        self.state = state
        self.owner = owner
        self.applied = 0
        self.outcomes: dict[int, CommandOutcome] = {}
        self.answers: list[tuple[int, Any]] = []
        self.changed = Signal(process)
        self.is_following = False
        history.logs.append(self)

    # -- what Metadata calls

    def propose(self, command: Any, answer: Any, until_durable: bool = True) -> None:
        self.history.commands.append((self, command))
        self.answers.append((len(self.history.commands), answer))
        if not self.is_following:
            self.apply_all()
            self._answer()
        for log in self.history.logs:
            log.changed.wake_all()

    async def open(self, directory: Any) -> StoredRows:
        """The rows that the other nodes have now."""
        others = [log for log in self.history.logs if log is not self]
        self.applied = others[0].applied if others else 0
        self.process.set_applied(self.applied)
        found = StoredRows()
        if others:
            state = others[0].state
            found.vhosts = sorted(state.vhosts)
            found.records = [record for table in state.definitions.tables.values() for record in table.values()]
            for vhost in found.vhosts:
                rows = state.vhosts[vhost]
                found.queues += rows.queues.values()
                found.bindings += [(vhost, binding) for binding, _ in rows.bindings()]
                found.exchanges += [row for name, row in rows.exchanges.items() if name not in _DEFAULT]
        return found

    async def catch_up(self) -> None:
        pass

    def flush(self, answer: Any) -> None:
        answer(CommandOutcome(None))

    def begin(self) -> None:
        if not self.is_following:
            self.is_following = True
            self.process.spawn(self._follow())

    def close(self) -> None:
        if self in self.history.logs:
            self.history.logs.remove(self)

    # -- the order of all

    def apply_all(self) -> None:
        while self.applied < len(self.history.commands):
            proposer, command = self.history.commands[self.applied]
            self.applied += 1
            try:
                applied = apply(self.state, command)
            except (AmqpError, DefinitionError) as error:
                outcome = CommandOutcome(None, error)
            else:
                outcome = CommandOutcome(applied)
                self.owner.applied(command, applied, proposer is self)
            self.process.set_applied(self.applied)
            if proposer is self:
                self.outcomes[self.applied] = outcome

    async def _follow(self) -> None:
        while True:
            await self.changed.wait_for(self._has_work)
            self.apply_all()
            self._answer()
            for log in self.history.logs:
                log.changed.wake_all()

    def _has_work(self) -> bool:
        return self.applied < len(self.history.commands) or bool(
            self.answers and self.answers[0][0] <= self.history.everywhere()
        )

    def _answer(self) -> None:
        while self.answers and self.answers[0][0] <= self.history.everywhere():
            index, answer = self.answers.pop(0)
            answer(self.outcomes.pop(index))


def _crash(*arguments: Any) -> None:
    raise RuntimeError("the test has it crash")


class History:
    """All commands of a world, and the logs of the nodes that run."""

    def __init__(self) -> None:
        self.commands: list[tuple[SharedLog, Any]] = []
        self.logs: list[SharedLog] = []

    def make(self, process: Any, state: Any, owner: Any) -> SharedLog:
        return SharedLog(self, process, state, owner)

    def everywhere(self) -> int:
        """How many commands all nodes with a log have applied."""
        return min([log.applied for log in self.logs if log.is_following], default=len(self.commands))


class Letters:
    """Encodes messages between the nodes as the links of real nodes do, where simulated systems would otherwise use
    pickle.
    """

    def __init__(self) -> None:
        #: One `Envelopes` for each pair of systems: at this end, and at the other end.
        self.envelopes: dict[tuple[str, str], Envelopes] = {}

    def _between(self, own: str, peer: str) -> Envelopes:
        return self.envelopes.setdefault((own, peer), Envelopes(MESSAGES, own, peer))

    def dumps(self, letter: Any) -> tuple[str, str, bytes]:
        sender, target, message = letter
        own, peer = system_of(sender), system_of(target)
        return own, peer, b"".join(body([self._between(own, peer).encode(sender, target, message)]))

    def loads(self, letter: tuple[str, str, bytes]) -> Any:
        own, peer, data = letter
        (decoded,) = self._between(peer, own).decode(data)
        return tuple(decoded)


class SimSocket:
    """A client's socket in a simulated world, as far as the behaviour tests' client uses one."""

    def __init__(self, world: SimWorld, machine: str) -> None:
        self.world = world
        self.data = bytearray()
        self.timeout = 15.0
        self.is_lost = False
        self.stream = world.connect(machine, PORT, self)

    def on_connected(self, stream: Any) -> None:
        pass

    def on_data(self, stream: Any, data: bytes) -> None:
        self.data += data

    def on_lost(self, stream: Any, reason: str) -> None:
        self.is_lost = True

    _closed = False

    def setsockopt(self, *options: Any) -> None:
        pass

    def settimeout(self, seconds: float) -> None:
        self.timeout = seconds

    def sendall(self, data: bytes) -> None:
        self.stream.write(data)

    def recv(self, most: int) -> bytes:
        self.world.run_until(lambda: self.data or self.is_lost, max(self.timeout, 0.001))
        if not self.data and not self.is_lost:
            raise TimeoutError
        data = bytes(self.data[:most])
        del self.data[:most]
        return data

    def close(self) -> None:
        self.stream.close()


class Nodes:
    """Nodes `a`, `b` and so on, all connected to each other."""

    def __init__(self, monkeypatch: Any, names: str = "ab", seed: int = 1, **settings: Any) -> None:
        self.world = SimWorld(seed, conditions=Conditions(link_delay=2e-4, detection_delay=0.3), sweep_interval=200)
        self.history = History()
        #: The processes that the test has made crash.
        self.provoked: set[str] = set()
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(metadata_process, "LocalLog", self.history.make)
        monkeypatch.setattr(system_link, "pickle", Letters())
        monkeypatch.setattr(wire, "monotonic", self.world.now)
        monkeypatch.setattr(wire, "sleep", lambda seconds: self.world.run(seconds))
        self.nodes = {name: SimNode(self.world, name, **settings) for name in names}
        self.links = {
            (one, other): self.world.link_systems(one, other, follows_log=True)
            for one in names
            for other in names
            if one < other
        }
        for name, node in self.nodes.items():
            node.start()
            self.propose(AddNode(Node(f"warren@{name}", f"id of {name}", features=_FEATURES)))
        self.up(*names)
        self.meet()

    def meet(self) -> None:
        """Wait until all nodes that run are connected, and report each of them to the others."""
        up = {name for name, node in self.nodes.items() if node.is_up}
        assert self.world.run_until(
            lambda: all(
                link.session(one) and link.session(other)
                for (one, other), link in self.links.items()
                if {one, other} <= up
            ),
            30.0,
        )
        for name in sorted(up):
            for other in sorted(up - {name}):
                self.met(name, other)
        self.world.run(0.1)

    def met(self, name: str, other: str) -> None:
        """Report to a node that another one is connected."""
        metadata = self.metadata(name)
        metadata.spawn(metadata.changing.elsewhere.node_met(f"warren@{other}", self.nodes[other].base.name))

    def propose(self, command: Any, at: str = "a") -> None:
        """Have a node propose a command, and wait until all have applied it."""
        outcomes: list[CommandOutcome] = []
        self.metadata(at).log.propose(command, outcomes.append)
        assert self.world.run_until(lambda: bool(outcomes), 5.0)
        assert outcomes[0].error is None

    def restart(self, name: str) -> None:
        """Start a killed node again, and wait until it has started."""
        self.boot(name)
        self.started(name)

    def boot(self, name: str) -> None:
        """Begin to start a killed node again."""
        node = self.nodes[name]
        incarnation = f"{name}-{node.machine.boots + 1}"
        self.propose(
            ChangeNodes(up=(Node(f"warren@{name}", f"id of {name}", features=_FEATURES, incarnation=incarnation),))
        )
        node.boot()

    def started(self, name: str) -> None:
        """Wait until a node that was booted has started."""
        assert self.world.run_until(lambda: self.nodes[name].is_up, 30.0)
        self.meet()

    def up(self, *names: str) -> None:
        """Propose that these nodes run, as the leader of a real cluster does."""
        up = [
            Node(f"warren@{each}", f"id of {each}", features=_FEATURES, incarnation=self.nodes[each].base.name)
            for each in names
        ]
        self.propose(ChangeNodes(up=tuple(up)))

    def down(self, name: str, at: str = "a") -> None:
        """Propose that a node is lost, as the leader of a real cluster does; the node `at` proposes it."""
        (known,) = [
            node for node in self.metadata(at).state.definitions.nodes.values() if node.name == f"warren@{name}"
        ]
        self.propose(ChangeNodes(down=((known.name, known.incarnation),)), at)

    def metadata(self, name: str) -> Any:
        return self.nodes[name].processes("Metadata")[0]

    def home(self, name: str) -> None:
        """Give new queues their home on this node, whichever node declares them."""
        for each in self.nodes:
            if self.nodes[each].base is not None:
                self.metadata(each).homes.choose = lambda *question: f"warren@{name}"

    def crash(self, process: Any) -> None:
        """Make a process crash at its next message."""
        name = process.myAddress.addressDetails
        self.provoked.add(name)
        process._dispatch = process.after_batch = _crash
        process.request_turn()
        assert self.world.run_until(lambda: any(name == address for address, _ in self.world.crashes), 5.0)

    def connect(self, name: str, vhost: str = "%2F", **options: Any) -> wire.Client:
        """A client that is connected to this node."""
        world = self.world

        class Sockets:
            SOL_SOCKET = SO_LINGER = IPPROTO_TCP = TCP_NODELAY = 0

            @staticmethod
            def create_connection(address: Any, timeout: float) -> SimSocket:
                return SimSocket(world, address[0])

        self.monkeypatch.setattr(wire, "socket", Sockets)
        return wire.Client(f"amqp://guest:guest@{name}:{PORT}/{vhost}", **options)

    def channel(self, name: str) -> wire.Channel:
        return self.connect(name).channel()

    def cut(self, one: str, other: str) -> None:
        """Cut the connection between two nodes, and wait until both have noticed it."""
        self.world.partition([one], [other])
        link = self.links[one, other]
        assert self.world.run_until(lambda: link.session(one) is None and link.session(other) is None, 5.0)

    def kill(self, name: str) -> None:
        """Kill a node's process, and wait until the others have noticed it."""
        log = self.metadata(name).log
        self.nodes[name].kill()
        log.close()
        links = [(pair, link) for pair, link in self.links.items() if name in pair]
        self.world.run_until(lambda: all(link.session(each) is None for pair, link in links for each in pair), 5.0)
        for each in self.history.logs:
            each.changed.wake_all()
