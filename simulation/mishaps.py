"""What happens to the machine of a schedule, and to processes of the node on it: `do_` for each line of a plan that begins with `machine`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..runtime.errors import ProcessDown
from ..runtime.sim.sim_base import SimulatedCrash
from .model import invariants
from .model.book import Broken
from .node import MEMORY_USED
from .plan import CORE, Action

if TYPE_CHECKING:
    from .clients.client import Client
    from .schedule import Schedule

REST_SECONDS = 5.0
ALARM_SECONDS = 1.2  # in which monitors look again, and what the disk has refused is tried again
HEARTBEATS = 3.2  # intervals after which a silent connection has ended (AB-25)
SOURCES = ("memory", "disk")


class Mishaps:
    """
    has_crashed    something has, or was stopped: connections may end
    is_vhost_down  and stays so until the next start
    is_ending      a process has crashed without which the node does not go on
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.world = schedule.world
        self.node = schedule.node
        self.has_crashed = False
        self.is_vhost_down = False
        self.is_ending = False
        self._is_low = dict.fromkeys(SOURCES, False)
        self._was_low_at = 0.0
        self._was_full = (
            False  # the disk, since the node was last at rest: a process may still have to hear what it refused
        )
        self._paused_at = 0.0
        self._seen_crashes = 0

    def _tell(self, text: str) -> None:
        self.schedule.tell("machine", text)

    # -- after each step ---------------------------------------------------------------------------

    def look(self) -> None:
        """What has crashed in the last step, or ended."""
        if len(self.world.crashes) > self._seen_crashes:
            self._look_at_crashes()
        base = self.node.base
        if base is None:
            self.restart("the machine loses power in the middle of writing", self.node.lose_power)
        elif base.living == 0 and not self.node.is_stopping:
            if not self.is_ending:
                raise Broken("the node has ended by itself")
            self.restart("the node has ended, and starts again", self.node.kill)

    def _look_at_crashes(self) -> None:
        for address, error in self.world.crashes[self._seen_crashes :]:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC and self._was_full:
                # What recovers on a full disk gives up: a queue is tried again later, a store takes its virtual host with it.
                if "/Queue-" in address:
                    self._all_queues_crash()
                else:
                    self._vhost_fails()
            elif not (
                isinstance(error, SimulatedCrash)
                or isinstance(error, ProcessDown)
                and (self.is_vhost_down or self.is_ending)
            ):
                raise Broken(f"process {address} crashed by itself: {type(error).__name__}: {error}") from error
        self._seen_crashes = len(self.world.crashes)

    def _vhost_fails(self) -> None:
        self.is_vhost_down = self.has_crashed = True
        for client in self.schedule.clients.values():
            client.leaves()
        self._all_queues_crash()

    def _all_queues_crash(self) -> None:
        self.has_crashed = True
        for queue in self.schedule.queues.values():
            queue.crashed(queue.outlives, may_stay_down=True)

    # -- rest --------------------------------------------------------------------------------------

    def do_rest(self, action: Action) -> None:
        """Let everything come to rest."""
        self.revive()
        self.rest()

    def revive(self) -> None:
        """Start the node again if it needs that."""
        if self.is_ending:
            node = self.node.base
            self.schedule.until(
                lambda: self.node.base is not node, lambda: "the node goes on without a process that it needs"
            )
        if self.is_vhost_down:
            self.restart("the node is restarted, for its virtual host is down", self.node.kill)
        if not self._is_low["disk"]:
            # What could not be recovered on a full disk, or crashed meanwhile, is tried again.
            self.schedule.until(
                lambda: self.node.base is None or not self.node.is_up or self._all_is_up(),
                lambda: "what could not be recovered stays down",
            )

    def _all_is_up(self) -> bool:
        for node in self.node.processes("NodeSupervisor"):
            routing = node.routing
            if routing.down or any(
                row.state != "running" for vhost in routing.vhosts() for row in routing.queues(vhost)
            ):
                return self.is_vhost_down or self.is_ending
        return True

    def rest(self) -> bool:
        """Whether it came to rest; looks at what must hold then."""
        world = self.world
        world.run(max(0.0, self._was_low_at + ALARM_SECONDS - world.time))
        self._await_heartbeats()
        end = world.time + REST_SECONDS
        # Small timers, such as a store's that waits for more to write, are part of what moves.
        while world.time < end:
            if not world.settle(REST_SECONDS):
                return False
            before = world.steps
            world.run(0.02)
            if world.steps == before:
                break
        base = self.node.base
        if base is None or not self.node.is_up or self.is_vhost_down or self.is_ending or any(self._is_low.values()):
            return False
        if not world.is_quiet() or not self._all_is_up():
            return False
        invariants.check_at_rest(base)
        self._was_full = False
        clients = self.schedule.clients.values()
        for client in clients:
            for stream, _ in client.silent:
                invariants.check_hung_up(base, stream)
        if not any(client.is_stalled for client in clients):
            # The graves last: what has died by now is moved there.
            for queue in sorted(self.schedule.queues.values(), key=lambda queue: bool(queue.sources)):
                queue.rested()
        return True

    def _await_heartbeats(self) -> None:
        """While a connection is blocked, or its process does nothing, nobody looks for its heartbeats: they count from the end of that."""
        looked_since = max(self._was_low_at + ALARM_SECONDS, self._paused_at)
        for client in self.schedule.clients.values():
            for _, since in client.silent:
                self.world.run(max(0.0, max(since, looked_since) + HEARTBEATS * client.heartbeat - self.world.time))

    # -- ends of the whole node --------------------------------------------------------------------

    def do_kill(self, action: Action) -> None:
        self.restart("the process is killed", self.node.kill)

    def do_power_cut(self, action: Action) -> None:
        after = action.number("after")
        if not after or self.node.disks is None:
            self.restart("the machine loses power", self.node.lose_power)
        else:
            self.node.disks.cut_power_after(after)

    def restart(self, text: str, end: Callable[[], None]) -> None:
        self._tell(text)
        self.has_crashed = True
        self.is_ending = False
        self.is_vhost_down = False
        end()
        for client in self.schedule.clients.values():
            if client.connection is not None:
                stream = client.connection.stream
                client.gone(in_order=False)
                stream.reset()
        for queue in self.schedule.queues.values():
            queue.node_ended()
        self.schedule.has_exchange = self.schedule.has_exchange and self.schedule.plan.has_store
        if self.node.disks is not None:
            self.node.disks.heal()
        self._was_full = self._is_low["disk"]
        self.node.boot()

    def do_stop(self, action: Action) -> None:
        if not self.node.is_up or self.is_ending:
            return
        self._tell("the node is stopped in order")
        self.has_crashed = True
        self.node.begin_stop()
        for client in self.schedule.clients.values():
            client.leaves()
            for channel in client.channels.values():
                channel.leave()  # the node closes them all, one sooner than the other
        port = self.node.port
        self.schedule.until(
            lambda: self.node.has_stopped or self.node.port is not port, lambda: "the node does not stop"
        )
        if self.node.port is port:
            self.restart("the node has stopped, and starts again", self.node.end_stopped)

    def do_pause(self, action: Action) -> None:
        """The process does nothing for a while; its machine takes what comes."""
        self._tell(f"the process does nothing for {action.number('for')} ms")
        self.node.machine.pause()
        self.world.run(action.number("for") / 1000)
        self.node.machine.resume()
        self._paused_at = self.world.time

    # -- memory and disk ---------------------------------------------------------------------------

    def do_memory(self, action: Action) -> None:
        self._set_low("memory", bool(action.number("low")))

    def do_disk(self, action: Action) -> None:
        self._set_low("disk", bool(action.number("low")) and self.node.disks is not None, action.number("room"))

    def _set_low(self, source: str, is_low: bool, room: int = 0) -> None:
        if is_low != self._is_low[source]:
            what = {
                "memory": ("memory is low", "there is memory again"),
                "disk": ("the disk is full", "there is room on the disk again"),
            }[source]
            self._tell(what[not is_low])
            self._was_low_at = self.world.time
        self._is_low[source] = is_low
        if source == "memory":
            self.node.machine.memory.used = self.node.machine.memory.size if is_low else MEMORY_USED
        elif self.node.disks is not None:
            self.node.disks.fill(is_low, room)
            self._was_full |= is_low

    def undo(self) -> None:
        """The machine is well again, and nothing more will happen to it."""
        for source in SOURCES:
            self._set_low(source, False)
        if self.node.base is not None:
            self.node.base.crash_never()
        if self.node.disks is not None:
            self.node.disks.heal()
        self.revive()
        self.schedule.until(
            lambda: self.node.is_up and self._all_is_up(), lambda: "the node does not start, or not whole"
        )

    # -- crashes of processes ----------------------------------------------------------------------

    def do_crash(self, action: Action) -> None:
        """A process crashes at one of its next messages."""
        base, process = self.node.base, action.text("process")
        wanted = f"/{process}-"
        left = action.number("after")

        def match(address: str, message: Any) -> bool:
            nonlocal left
            if (
                wanted not in address
                or type(message) is not tuple
                or message[0] == "start"
                or message[0] == "ask"
                and message[2][0] == "start"
            ):
                return False
            if process in CORE and not self.node.is_up:
                return False  # a node that does not start is another matter
            left -= 1
            if left < 0:
                self._will_crash(address, base.cells[address].actor)  # type: ignore[union-attr]
                return True
            return False

        if base is not None:
            base.crash_when(match, after=bool(action.number("late")))

    def _will_crash(self, address: str, actor: Any) -> None:
        self.has_crashed = True
        kind = type(actor).__name__
        if kind == "Queue":
            self._tell(f"the process of queue '{actor.row.name}' crashes")
            queue = self.schedule.queues[actor.row.name]
            # One that cannot be recovered when the node starts is tried again after a while, and down until then.
            queue.crashed(queue.outlives, may_stay_down=not self.node.is_up)
        elif kind in ("Channel", "Connection"):
            client = self._client_at(actor)
            self._tell(
                f"the process of {'a channel' if kind == 'Channel' else 'the connection'} of {client.name if client else 'nobody'} crashes"
            )
            if client is not None:
                client.leaves()
                # A channel that crashes takes its connection with it.
                for channel in list(client.channels.values()):
                    channel.doom()
        elif kind in CORE:
            self._tell(f"process {kind} crashes, and the node with it")
            self.is_ending = True
            self._vhost_fails()
        else:
            self._tell(f"process {kind} crashes, and the virtual host with it")
            self._vhost_fails()

    def _client_at(self, actor: Any) -> Client | None:
        """Whose connection or channel the process is: its name begins with where the client connected from."""
        name = str(getattr(actor, "connection_name", None) or getattr(actor, "name", ""))
        for client in self.schedule.clients.values():
            if client.connection is not None and invariants.is_of(client.connection.stream, name):
                return client
        return None
