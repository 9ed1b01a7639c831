"""The processes of one virtual host on a simulated machine, for tests that stop them at an exact place.

`SimVhost` runs what a node runs for a virtual host with a data directory: its `VhostSupervisor`, the journal, both
message stores and the queues. Nothing runs in another thread: a blocking call of a process becomes a `Call`, which
waits until the test makes it. So a test decides which writes reach the disk before the crash and which do not:

    vhost.queue.publish(contents)       the processes have handled it; its writes wait in `vhost.calls`
    vhost.make(vhost.call(SyncJob))     the message store has written the body; nothing has written the entry
    vhost.kill()                        or `lose_power`; the next `start` recovers what is there

`write_all` makes every call and lets the processes handle the results, until nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import UnionType
from typing import Any, NamedTuple

from warren.actors.context.node_context import NodeContext
from warren.actors.context.starting import to_new_vhost
from warren.actors.contracts.node import to_queue_supervisor, to_vhost
from warren.actors.contracts.queue import to_queue
from warren.actors.disk.journal import Journal
from warren.actors.disk.message_store import MessageStore
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.amqp.fields import table_from
from warren.routing.arguments.queue_settings import queue_settings
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable
from warren.runtime.process import Process
from warren.runtime.sim.port import SimAnswer, SimPort
from warren.runtime.sim.world import Conditions, SimWorld
from warren.settings import Settings
from warren.store.bodies.read_job import BodyReadJob
from warren.store.bodies.store_engine import StoreEngine
from warren.store.data_dir.data_dir import DataDir
from warren.store.data_dir.file_limits import FileLimits
from warren.store.data_dir.vhost_dir import PERSISTENT, TRANSIENT
from warren.store.disk.disk import Disk
from warren.store.disk.faulty_disk import Crash, FaultyDisk
from warren.store.messages.message import Origin
from warren.store.queue.variable.read_ahead import ReadAheadJob
from warren.store.queue.variable.variable_queue import VariableQueue

#: Limits with which a few messages fill a file; bodies of 60 bytes and more go to the message store.
SMALL_FILES = FileLimits(journal=1500, store=800, segment_entries=16, embed_below=60)
#: Virtual seconds in which a message store ends its longest wait before a sync (`message_store.DWELL_SECONDS`), and
#: queue and journal write records for which nobody waits (`journal.UNAWAITED_SECONDS`, `disk_levels.SIZES_WAIT_SECONDS`
#: and then `journal.SIZES_SECONDS`).
DWELL = 0.1
PROPS = b"\x10\x00\x02"
#: Names blocking calls: a class of the objects whose method is called, or the function itself.
Owner = type | UnionType | Callable[..., Any]


def content(mark: int, size: int) -> bytes:
    """A message whose body is `mark` in 8 bytes and `size` zeros; its header says `size`."""
    return (
        b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00"
        + size.to_bytes(8, "big")
        + b"\x10\x00\x02\xce"
        + mark.to_bytes(8, "big")
        + bytes(size)
    )


class Delivered(NamedTuple):
    tag: int
    content: bytes
    is_redelivered: bool
    origin: Origin


@dataclass(eq=False, slots=True)
class Call:
    """A blocking call that a process has asked for and that has not been made; `SimBase.finish` makes it."""

    cell: Any
    ref: int
    function: Callable[..., Any]
    args: tuple[Any, ...]

    def is_of(self, owner: Owner) -> bool:
        """Whether the call is of the function `owner`, or of a method of that class."""
        if isinstance(owner, type | UnionType):
            return isinstance(getattr(self.function, "__self__", None), owner)
        return self.function is owner


class _Plainest:
    """A chooser with which the actors of a simulation run as on the event loop."""

    def below(self, count: int) -> int:
        return 0


class _Node(Process):
    """Takes the place of Metadata, Alarms and the memory monitor, and answers True to every message."""

    def __init__(self) -> None:
        super().__init__()
        self.restarted: dict[str, Any] = {}

    def on_queue_restarted(self, sender: Any, vhost: str, name: str, queue_id: str, address: Any) -> None:
        self.restarted[queue_id] = address

    def on_unknown(self, sender: Any, message: Any) -> bool:
        return True


class _Channel(Process):
    """Takes the place of the one channel of a queue, and collects confirms and deliveries."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed: list[int] = []
        self.delivered: list[Delivered] = []

    def on_confirm(self, sender: Any, queue_id: str, ranges: Sequence[tuple[int, int]]) -> None:
        for first, last in ranges:
            self.confirmed += range(first, last + 1)

    def on_deliver(self, sender: Any, queue_id: str, consumer_tag: str, runs: Sequence[Any]) -> None:
        for origin, is_redelivered, tags, contents in runs:
            self.delivered += [
                Delivered(tag, got, is_redelivered, origin) for tag, got in zip(tags, contents, strict=True)
            ]
            self.send(sender, to_queue.sent(self.myAddress.actorAddressString, len(contents)))

    def on_unknown(self, sender: Any, message: Any) -> None:
        """Ignore credit and the other messages that a queue sends to a channel."""


class SimQueue:
    """A durable queue, as its one channel uses it.

    Publishes are numbered from 1; `tags` are those of the backing queue.
    """

    def __init__(self, vhost: SimVhost, number: int, max_priority: int | None) -> None:
        self.vhost = vhost
        self.number = number
        arguments = {} if max_priority is None else {"x-max-priority": max_priority}
        self.row = QueueRow("/", str(number), None, f"{number:014x}{0:018x}", True, arguments=table_from(arguments))
        self.published: list[bytes] = []  # to this process of the queue
        self._consumers = 0

    def opened(self, row: QueueRow) -> None:
        self.row = row
        self._channel = self.vhost.base.newPrimaryActor(_Channel)
        self.published = []

    @property
    def channel(self) -> _Channel:
        channel: _Channel = self.vhost.actor(self._channel)
        return channel

    @property
    def actor(self) -> Any:
        return self.vhost.actor(self.row.address)

    @property
    def backing(self) -> Any:
        return self.actor.backing

    @property
    def levels(self) -> dict[int, VariableQueue]:
        """The variable queues of the queue, by priority."""
        levels: dict[int, VariableQueue] = self.actor.durability.levels
        return levels

    def __len__(self) -> int:
        """The number of ready messages."""
        return len(self.backing)

    def _send(self, message: Any) -> None:
        self.vhost.base.enqueue(self._channel, self.row.address, message)
        self.vhost.turn()

    @property
    def _id(self) -> str:
        address: str = self._channel.actorAddressString
        return address

    def publish(
        self,
        contents: Sequence[bytes],
        size: int | None = None,
        persistent: bool = True,
        priority: int = 0,
        shared: int = 0,
    ) -> range:
        """Publish one run, each body of `size` bytes or as its header says.

        Returns the numbers by which they are confirmed.
        """
        body_bytes = (
            sum(int.from_bytes(got[11:19], "big") for got in contents) if size is None else size * len(contents)
        )
        origin = Origin("", (self.row.name,), persistent, priority)
        first = len(self.published) + 1
        self.published += contents
        self._send(to_queue.publish(self._id, [(origin, list(contents), body_bytes, first, True, shared)]))
        return range(first, len(self.published) + 1)

    @property
    def confirmed(self) -> set[int]:
        """The numbers of the confirmed publishes, each of which was confirmed once (QS-18)."""
        confirmed = self.channel.confirmed
        assert len(set(confirmed)) == len(confirmed), "confirmed twice"
        return set(confirmed)

    def consume(self, prefetch: int) -> str:
        """Begin to consume, with acknowledgements; returns the consumer's tag."""
        self._consumers += 1
        tag = f"c{self._consumers}"
        self._send(
            to_queue.consume(self._id, self._channel, tag, False, False, prefetch, False, 0, table_from({}), "guest")
        )
        return tag

    def cancel(self, tag: str) -> None:
        self._send(to_queue.cancel(self._id, tag))

    def fetch(self, count: int) -> list[Delivered]:
        """Up to `count` messages from the head, which are pending from then on.

        Of the calls that wait, it makes only reads.
        """
        channel = self.channel
        wanted = min(count, len(self))
        if not wanted:
            return []
        before = len(channel.delivered)
        tag = self.consume(wanted)
        self.vhost.make_all(ReadAheadJob, BodyReadJob)
        self.cancel(tag)
        return channel.delivered[before:]

    def settle(self, outcome: str, tags: Sequence[int]) -> None:
        """`ack` or `requeue` pending messages."""
        if tags:
            self._send(to_queue.settle(self._id, outcome, [tags]))

    def ack(self, tags: Sequence[int]) -> None:
        self.settle("ack", tags)

    def look(self) -> list[Delivered]:
        """All ready messages, in order; they are consumed and requeued."""
        found = self.fetch(1 << 30)
        self.settle("requeue", [got.tag for got in found])
        return found

    def begin(self, message: Any) -> SimAnswer:
        """Ask the queue, and have the processes handle it as far as they can without the disk."""
        answer = self.vhost.port.begin(self.row.address, message)
        self.vhost.turn()
        return answer

    def set_mode(self, mode: str) -> None:
        settings = replace(queue_settings(self.row.arguments), queue_mode=mode)
        self.begin(to_queue.apply_settings(settings))

    def page_out(self) -> None:
        """Page out all messages that can be, as with a memory monitor that allows no seconds of traffic in memory."""
        for level in self.levels.values():
            level.paging._io_batch_size = 1
        self._send(to_queue.ram_duration_target(0.0))
        self._send(to_queue.ram_duration_target(float("inf")))

    def purge(self) -> int:
        count: int = self.vhost.ask(self.row.address, to_queue.purge())
        return count

    def delete(self) -> None:
        """Delete the queue, as Metadata does."""
        self.vhost.ask(self.row.address, to_queue.delete(False, False))
        self.vhost.write_all()

    def crash(self) -> None:
        """End the process of the queue by a fault, and wait until its supervisor has restarted it from the disk."""
        node, base = self.vhost.node, self.vhost.base
        node.restarted.pop(self.row.queue_id, None)
        self.vhost.world.advance(60.0)  # Without this pause, a queue that crashes again soon would stay down.
        assert self.actor is not None  # a dormant queue wakes at this
        base.crash(base.cells[self.row.address.actorAddressString], RuntimeError("as the test wants"))
        self.vhost.run_until(lambda: self.row.queue_id in node.restarted)
        self.vhost.put(self.number, node.restarted[self.row.queue_id])


class SimVhost:
    """The virtual host `/`. `root` is the data directory; `queues` maps the number of each durable queue to its
    highest priority.

    `disk` holds the files (the indexes in LMDB are real files below `root` in any case); a new `FaultyDisk` if it is
    None.
    """

    def __init__(
        self,
        root: Path | str,
        queues: Mapping[int, int | None] | None = None,
        *,
        disk: Disk | None = None,
        limits: FileLimits = SMALL_FILES,
        boot_id: str = "boot 0",
    ) -> None:
        self.root = str(root)
        self.disk: Any = FaultyDisk() if disk is None else disk
        self.highest = dict(queues or {1: None})
        self.not_started: frozenset[int] = frozenset()
        self.limits = limits
        self.boot_id = boot_id
        self.calls: list[Call] = []
        self.queues: dict[int, SimQueue] = {}
        self._boots = 0
        self._machine: Any = None

    @property
    def path(self) -> str:
        """The directory of the virtual host."""
        return DataDir(self.root).vhost("/")

    @property
    def queue(self) -> SimQueue:
        """The queue with the number 1."""
        return self.queues[1]

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every process, and recover the queues from the disk. Raises the error of a failed start.

        The queues with the numbers `not_started` get no process, and keep what they have on the disk.
        """
        world = self.world = SimWorld(chooser=_Plainest(), conditions=Conditions(blocking_delay=0))
        self._machine = world.machine("a")
        base = self.base = self._machine.boot()
        base.run_blocking = self._put_off
        self.port = SimPort(base)
        self._node = base.newPrimaryActor(_Node)
        self.routing = RoutingTable()
        self.routing.add_vhost("/")
        context = NodeContext(
            "warren@test",
            Settings(data_dir=self.root),
            self.routing,
            self._node,
            self._node,
            memory_monitor=self._node,
            open_disk=lambda path: self.disk,
            boot_id=self.boot_id,
            limits=self.limits,
        )
        self.address = base.newPrimaryActor(VhostSupervisor)
        self.queues = {
            number: SimQueue(self, number, highest)
            for number, highest in self.highest.items()
            if number not in self.not_started
        }
        rows = [queue.row for queue in self.queues.values()]
        self.supervisor, found = self.ask(self.address, to_new_vhost.start(context, "/", rows, self.not_started))
        for row in found:
            assert row.state == "running", f"queue {row.name} is {row.state}"
            self._put(row)

    def _put(self, row: QueueRow) -> None:
        self.routing.put_queue(row)
        self.queues[int(row.name)].opened(row)

    def put(self, number: int, address: Any) -> None:
        """Note the address of the queue, which has changed."""
        row = self.queues[number].row
        self._put(QueueRow(row.vhost, row.name, address, row.queue_id, row.durable, arguments=row.arguments))

    def declare(self, number: int, max_priority: int | None = None) -> SimQueue:
        """Start a new queue."""
        queue = self.queues[number] = SimQueue(self, number, max_priority)
        self.highest[number] = max_priority
        self._put(self.ask(self.supervisor, to_queue_supervisor.start_queue(queue.row)))
        return queue

    def stop(self) -> None:
        """End every process as a node does when it stops. Call `kill` afterwards."""
        self.ask(self.address, to_vhost.terminate())

    def kill(self) -> None:
        """Kill every process. Written bytes stay in the files; calls that wait are never made."""
        self._end()
        if isinstance(self.disk, FaultyDisk):
            self.disk.kill()

    def lose_power(self, random: Random) -> None:
        """Kill every process by a power cut: `random` decides which bytes without a sync are left."""
        self._end()
        self.disk.crash(random)
        self._boots += 1
        self.boot_id = f"boot {self._boots}"

    def _end(self) -> None:
        if self._machine is None or self._machine.base is None:
            return
        for engine in self._engines():
            engine.abandon()  # an LMDB environment must be closed before this process opens it again
        self.calls.clear()
        self._machine.crash()
        self.queues = {}

    def _engines(self) -> list[StoreEngine]:
        stores = [cell.actor for cell in self.base.cells.values() if type(getattr(cell, "actor", None)) is MessageStore]
        starting = [getattr(call.function, "__self__", None) for call in self.calls]
        return [store._engine for store in stores if store._engine is not None] + [
            engine for engine in starting if isinstance(engine, StoreEngine)
        ]

    # -- processes -------------------------------------------------------------------------------

    def actor(self, address: Any) -> Any:
        if address.actorAddressString in self.base.dormant.by_address:
            self.ask(address, to_queue.counts())  # a dormant process wakes at this
        return self.base.cells[address.actorAddressString].actor

    @property
    def node(self) -> _Node:
        node: _Node = self.actor(self._node)
        return node

    def _process(self, kind: type[Process]) -> list[Any]:
        return [cell.actor for cell in self.base.cells.values() if type(getattr(cell, "actor", None)) is kind]

    @property
    def journal(self) -> Journal:
        (journal,) = self._process(Journal)
        assert isinstance(journal, Journal)
        return journal

    @property
    def persistent(self) -> StoreEngine:
        """The engine of the persistent message store."""
        return self._store(PERSISTENT)

    @property
    def transient(self) -> StoreEngine:
        return self._store(TRANSIENT)

    def _store(self, name: str) -> StoreEngine:
        (engine,) = [store.engine for store in self._process(MessageStore) if store._name == name]
        assert isinstance(engine, StoreEngine)
        return engine

    @property
    def wanted_bytes(self) -> int:
        """Bytes in the persistent message store that queues refer to."""
        return self.persistent.file_sizes[1]

    # -- what happens ----------------------------------------------------------------------------

    def _put_off(
        self, cell: Any, ref: int, function: Callable[..., Any], args: tuple[Any, ...], is_brief: bool = False
    ) -> None:
        self.calls.append(Call(cell, ref, function, args))

    def turn(self) -> None:
        """Have the processes handle every message that waits. No call is made."""
        self.world.run_until(lambda: not self.base.ready)

    def pass_time(self) -> None:
        """Let the time pass for which disk writes are put off. No call is made."""
        self.world.run(DWELL)

    def call(self, owner: Owner) -> Call:
        """The only waiting call of that function, or of a method of that class."""
        (call,) = [call for call in self.calls if call.is_of(owner)]
        return call

    def waits(self, owner: Owner) -> bool:
        return any(call.is_of(owner) for call in self.calls)

    def make(self, call: Call) -> None:
        """Make a call. Its process receives the result, and handles it at the next `turn`."""
        self.calls.remove(call)
        self.base.jobs.append(call)
        self.base.finish(call)

    def make_all(self, *owners: Owner) -> None:
        """Make the calls of `owners`, or all calls, until none waits; the processes handle the results."""
        self.turn()
        while chosen := [call for call in self.calls if not owners or any(call.is_of(owner) for owner in owners)]:
            self.make(chosen[0])
            self.turn()

    def run_until(self, condition: Callable[[], Any]) -> None:
        """Make every call and let time pass until `condition()` holds."""
        while True:
            self.turn()
            if condition():
                return
            if self.calls:
                self.make(self.calls[0])
            else:
                assert self.world.step(self.world.time + 60.0), "nothing is left that could happen"

    def ask(self, address: Any, message: Any) -> Any:
        """Send a message and return its answer, making every call meanwhile."""
        answer = self.port.begin(address, message)
        self.run_until(lambda: answer.is_here)
        return answer.value()

    def write_all(self) -> None:
        """Make every call until nothing is left to do."""
        self.make_all()
        while self.world.run(DWELL) or self.calls:
            self.make_all()

    def dies_in(self, action: Callable[[], object], operations: int) -> bool:
        """Crash `action` at that operation of the disk. Returns False if it needs fewer operations."""
        self.disk.fail_after(operations, Crash())
        try:
            action()
        except Crash:
            return True
        finally:
            self.disk.heal()
        return False
