"""`Faults`: what happens to the machine of a schedule and to the processes on it.

It has a method `do_…` for each action of a plan that begins with `machine`. After each step of the world it examines
which processes have crashed, and starts a node that has ended again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..runtime.errors import ProcessDown
from ..runtime.sim.sim_base import Match, SimulatedCrash
from ..runtime.system.cell import Cell
from .model import invariants
from .model.copies import PromiseBroken
from .model.numbering import NumberingCheck
from .node import MEMORY_USED
from .plan import ESSENTIAL, Action

if TYPE_CHECKING:
    from .clients.client import Client
    from .schedule import Schedule

#: Virtual seconds within which a node comes to rest.
REST_SECONDS = 5.0
#: Virtual seconds after which the monitors have looked at memory and disk again, and what a full disk has refused was
#: tried again.
ALARM_SECONDS = 1.2
#: Intervals of the heartbeat after which a silent connection has ended (AB-25).
HEARTBEATS = 3.2
RESOURCES = ("memory", "disk")
#: The definition of the policy: limits that are wider than those of every kind of queue.
WIDE_POLICY = '{"queue-mode":"lazy","max-length":1000,"message-ttl":3600000}'
#: Lines of the story for a resource that becomes low, and for one that no longer is.
_LOW_TEXTS = {
    "memory": ("memory is low", "there is memory again"),
    "disk": ("the disk is full", "there is room on the disk again"),
}


class Faults:
    """See the module.

    has_crashed    a process has crashed or the node was stopped, so connections may end
    is_vhost_down  the virtual host is down, until the next start of the node
    is_ending      a process has crashed that the node cannot run without, so the node is about to end
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.world = schedule.world
        self.node = schedule.node
        self.has_crashed = False
        self.is_vhost_down = False
        self.is_ending = False
        self._numbering = NumberingCheck()
        self._is_low = dict.fromkeys(RESOURCES, False)
        #: When a resource last became low, or was freed.
        self._low_changed_at = 0.0
        #: Whether the disk was full since the node was last at rest: a process may get that error only later.
        self._was_full = False
        #: When the last pause ended.
        self._paused_until = 0.0
        #: How many of `world.crashes` were examined.
        self._seen_crashes = 0

    def _tell(self, text: str) -> None:
        self.schedule.tell("machine", text)

    # -- after each step ---

    def after_step(self) -> None:
        """Examine what has crashed or ended in the last step. Raises PromiseBroken if it had no reason."""
        if len(self.world.crashes) > self._seen_crashes:
            self._check_crashes()
        base = self.node.base
        if base is None:
            self.restart("the machine loses power in the middle of writing", self.node.lose_power)
        elif base.living == 0 and not self.node.is_stopping:
            if not self.is_ending:
                raise PromiseBroken("the node has ended by itself")
            self.restart("the node has ended, and starts again", self.node.kill)

    def _check_crashes(self) -> None:
        for address, error in self.world.crashes[self._seen_crashes :]:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC and self._was_full:
                # A process that cannot recover on a full disk ends. A queue is tried again later; a store takes its
                # virtual host with it.
                if "/Queue-" in address:
                    self._all_queues_crash()
                else:
                    self._vhost_fails()
            elif not (
                isinstance(error, SimulatedCrash)
                or isinstance(error, ProcessDown)
                and (self.is_vhost_down or self.is_ending)
            ):
                raise PromiseBroken(f"process {address} crashed by itself: {type(error).__name__}: {error}") from error
        self._seen_crashes = len(self.world.crashes)

    def _vhost_fails(self) -> None:
        self.is_vhost_down = self.has_crashed = True
        for client in self.schedule.clients.values():
            client.connection_leaving()
        self._all_queues_crash()

    def _all_queues_crash(self) -> None:
        self.has_crashed = True
        for queue in self.schedule.queues.values():
            queue.on_crash(queue.survives_restart, may_stay_down=True)

    # -- rest ---

    def do_rest(self, action: Action) -> None:
        """Start the node again if it needs that, and run until it is at rest."""
        self.bring_up()
        self.rest()

    def bring_up(self) -> None:
        """Wait until the node and its queues run, and restart the node if it cannot come up by itself."""
        if self.is_ending:
            node = self.node.base
            self.schedule.until(
                lambda: self.node.base is not node, lambda: "the node goes on without a process that it needs"
            )
        if self.is_vhost_down:
            self.restart("the node is restarted, for its virtual host is down", self.node.kill)
        if not self._is_low["disk"]:
            # The node tries again to recover what it could not recover on a full disk or what has crashed meanwhile.
            self.schedule.until(
                lambda: self.node.base is None or not self.node.is_up or self._is_all_up(),
                lambda: "what could not be recovered stays down",
            )

    def _is_all_up(self) -> bool:
        """Whether every virtual host and queue of the node runs, or cannot run before the next start."""
        supervisor = self.node.supervisor
        if supervisor is None:
            return True
        routing = supervisor.routing
        if routing.down or any(row.state != "running" for vhost in routing.vhosts() for row in routing.queues(vhost)):
            return self.is_vhost_down or self.is_ending
        return True

    def rest(self) -> bool:
        """Run until the node is at rest, and check what must hold then. False if it does not come to rest.

        At rest nothing moves, nothing is in flight, and the disk has taken everything that was to be written.
        """
        world = self.world
        world.run(max(0.0, self._low_changed_at + ALARM_SECONDS - world.time))
        self._await_heartbeats()
        end = world.time + REST_SECONDS
        # A short timer is part of what moves, for example that of a store which waits for more to write.
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
        if not world.is_quiet() or not self._is_all_up():
            return False
        invariants.check_at_rest(base)
        self._numbering.check(invariants.open_queues(base))
        self._was_full = False
        clients = self.schedule.clients.values()
        for client in clients:
            for stream, _ in client.silent:
                invariants.check_silent_closed(base, stream)
        if not any(client.is_stalled for client in clients):
            # Tell the queue for dead letters last, because the other queues add to it the messages that have died by
            # now.
            for queue in sorted(self.schedule.queues.values(), key=lambda queue: bool(queue.dead_letter_sources)):
                queue.on_rest()
        return True

    def _await_heartbeats(self) -> None:
        """Run until silent connections have ended.

        A connection that is blocked, or whose process does nothing, does not check heartbeats. Its intervals count from
        the moment at which that ends.
        """
        checked_since = max(self._low_changed_at + ALARM_SECONDS, self._paused_until)
        for client in self.schedule.clients.values():
            for _, since in client.silent:
                self.world.run(max(0.0, max(since, checked_since) + HEARTBEATS * client.heartbeat - self.world.time))

    # -- ends of the whole node ---

    def do_kill(self, action: Action) -> None:
        self.restart("the process is killed", self.node.kill)

    def do_power_cut(self, action: Action) -> None:
        after = action.number("after")
        if not after or self.node.disks is None:
            self.restart("the machine loses power", self.node.lose_power)
        else:
            self.node.disks.cut_power_after(after)

    def restart(self, text: str, end: Callable[[], None]) -> None:
        """End the node with `end` and boot it; `text` is the line of the story."""
        self._tell(text)
        self.has_crashed = True
        self.is_ending = False
        self.is_vhost_down = False
        end()
        for client in self.schedule.clients.values():
            if client.connection is not None:
                stream = client.connection.stream
                client.connection_ended(in_order=False)
                stream.reset()
        for queue in self.schedule.queues.values():
            queue.on_node_end()
        self.schedule.has_exchange = self.schedule.has_exchange and self.schedule.plan.has_store
        if self.node.disks is not None:
            self.node.disks.heal()
        self._was_full = self._is_low["disk"]
        self.node.boot()

    def do_stop(self, action: Action) -> None:
        """Stop the node in order, and start it again."""
        if not self.node.is_up or self.is_ending:
            return
        self._tell("the node is stopped in order")
        self.has_crashed = True
        self.node.begin_stop()
        for client in self.schedule.clients.values():
            client.connection_leaving()
            for channel in client.channels.values():
                channel.leave()  # the node closes every channel, in an order of its own
        port = self.node.port
        self.schedule.until(
            lambda: self.node.has_stopped or self.node.port is not port, lambda: "the node does not stop"
        )
        if self.node.port is port:
            self.restart("the node has stopped, and starts again", self.node.kill)

    def do_pause(self, action: Action) -> None:
        """Let the process do nothing for a while. Its machine still takes what arrives."""
        self._tell(f"the process does nothing for {action.number('for')} ms")
        self.node.machine.pause()
        self.world.run(action.number("for") / 1000)
        self.node.machine.resume()
        self._paused_until = self.world.time

    # -- operators ---

    def do_policy(self, action: Action) -> None:
        if action.number("on"):
            self._tell("an operator sets a policy for all queues")
            self.node.begin_operation("set_policy", name="wide", pattern="", definition=WIDE_POLICY)
        else:
            self._tell("an operator removes the policy")
            self.node.begin_operation("clear_policy", name="wide")

    # -- memory and disk ---

    def do_memory(self, action: Action) -> None:
        self._set_low("memory", bool(action.number("low")))

    def do_disk(self, action: Action) -> None:
        self._set_low("disk", bool(action.number("low")) and self.node.disks is not None, action.number("room"))

    def _set_low(self, resource: str, is_low: bool, room: int = 0) -> None:
        if is_low != self._is_low[resource]:
            self._tell(_LOW_TEXTS[resource][not is_low])
            self._low_changed_at = self.world.time
        self._is_low[resource] = is_low
        if resource == "memory":
            self.node.machine.memory.used = self.node.machine.memory.size if is_low else MEMORY_USED
        elif self.node.disks is not None:
            self.node.disks.fill(is_low, room)
            self._was_full |= is_low

    def undo(self) -> None:
        """Repair the machine, cancel what has not happened yet, and wait until the whole node runs."""
        for resource in RESOURCES:
            self._set_low(resource, False)
        if self.node.base is not None:
            self.node.base.crash_never()
        if self.node.disks is not None:
            self.node.disks.heal()
        self.bring_up()
        self.schedule.until(lambda: self.node.is_up and self._is_all_up(), lambda: "the node does not start completely")

    # -- crashes of processes ---

    def do_crash(self, action: Action) -> None:
        """Let a process of the action's class crash at one of its next messages."""
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
            if process in ESSENTIAL and not self.node.is_up:
                return False  # the node would not start, which the schedule does not expect
            left -= 1
            if left < 0:
                self._will_crash(base.cells[address].actor)  # type: ignore[union-attr]
                return True
            return False

        if base is not None:
            base.crash_when(match, after=bool(action.number("late")))

    def crash_at(self, match: Match, after: bool) -> None:
        """Let the process crash that is about to handle the first message for which `match` returns True.

        With `after` it crashes when it has handled the message.
        """
        base = self.node.base

        def crashes(address: str, message: Any) -> bool:
            if base is None or not match(address, message):
                return False
            self._will_crash(base.cells[address].actor)
            return True

        if base is not None:
            base.crash_when(crashes, after=after)

    def crash_now(self, cell: Cell) -> None:
        """Let this process crash between two of its turns."""
        assert self.node.base is not None
        self._will_crash(cell.actor)
        self.node.base.crash(cell, SimulatedCrash("by the scenario"))

    def _will_crash(self, actor: Any) -> None:
        """Report to the model that this process crashes now."""
        self.has_crashed = True
        kind = type(actor).__name__
        if kind == "Queue":
            self._tell(f"the process of queue '{actor.row.name}' crashes")
            for each in self.schedule.clients.values():
                for channel in each.channels.values():
                    channel.on_queue_crash()
            queue = self.schedule.queues[actor.row.shard_of or actor.row.name]
            # A queue that cannot be recovered when the node starts is down until it is tried again after a while.
            queue.on_crash(queue.survives_restart, may_stay_down=not self.node.is_up)
        elif kind in ("Channel", "Connection"):
            client = self.client_of(actor)
            self._tell(
                f"the process of {'a channel' if kind == 'Channel' else 'the connection'} of "
                f"{client.name if client else 'nobody'} crashes"
            )
            if client is not None:
                # A channel that crashes takes its connection with it, unless it has closed before.
                is_certain = kind != "Channel" or not client.is_closing_channel(actor.config.number)
                client.connection_leaving(is_certain)
                for channel in list(client.channels.values()):
                    channel.on_process_crash(is_certain)
        elif kind in ESSENTIAL:
            self._tell(f"process {kind} crashes, and the node with it")
            self.is_ending = True
            self._vhost_fails()
        else:
            self._tell(f"process {kind} crashes, and the virtual host with it")
            self._vhost_fails()

    def client_of(self, actor: Any) -> Client | None:
        """The client at the other end of a connection or channel, whose name begins with the client's host and port."""
        name = str(getattr(actor, "connection_name", None) or getattr(actor, "name", ""))
        for client in self.schedule.clients.values():
            if client.connection is not None and invariants.is_of(client.connection.stream, name):
                return client
        return None
