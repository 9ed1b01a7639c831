"""`Changing`: how the handlers of Metadata change the state. They propose a command, wait for its outcome, and perform
its effects.

The effects of a command are performed after the log has answered. So a queue's process starts after its row is on the
disk, and its files are removed after the row is gone from the disk. `Elsewhere` performs on this node the effects of
commands that other nodes have proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import proxy

from ...amqp.constants import INTERNAL_ERROR
from ...amqp.errors import AmqpError
from ...routing.destinations import Destination
from ...routing.rows import QueueRow
from ...routing.table import RoutingTable
from ...runtime.contract import Address
from ...runtime.errors import ProcessDown, ProcessError
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...runtime.turn_work import STEP
from ..context.node_context import NodeContext
from ..contracts.node import to_queue_supervisor
from .cascades import Cascades
from .elsewhere import Elsewhere
from .live_policies import LivePolicies
from .log.log import Answer, CommandOutcome, Log, OutcomeUnknown
from .state.commands import Command, DeleteExchange, DeleteQueue, DeleteVhost, TrimBindings, TrimVhost, Unbind
from .state.effects import Applied, Effect, EndQueue, StartQueue, StartVhost
from .state.repeats import should_repeat
from .state.state import State
from .vhost_lives import VhostLives

if TYPE_CHECKING:
    from ..contracts.node import ToNode
    from ..contracts.queue import ToQueue


class _AwaitedOutcome:
    """The outcome of a command that a coroutine has proposed, and the signal at which the coroutine waits for it."""

    __slots__ = ("outcome", "signal")

    def __init__(self) -> None:
        self.outcome: CommandOutcome | None = None
        self.signal: Signal | None = None

    def take(self, outcome: CommandOutcome) -> None:
        self.outcome = outcome
        if self.signal is not None:
            self.signal.wake()


class Changing:
    """Belongs to `process`, the Metadata; `node` starts and stops the processes of a virtual host."""

    def __init__(
        self,
        process: Process,
        node: Address[ToNode],
        routing: RoutingTable,
        state: State,
        log: Log,
        policies: LivePolicies,
        context: NodeContext,
    ) -> None:
        self._process = process
        self._routing = routing
        self._state = state
        self._log = log
        self._policies = policies
        #: Called when the process of a queue runs that is at home on this node. The row has the address of the process.
        self.on_own: Callable[[QueueRow], None] = lambda row: None
        #: By id of a queue: the process that ends by itself as soon as the row of its queue is gone.
        self.leaving: dict[str, Address[ToQueue]] = {}
        self._node_name = context.node_name
        self._commit_times = context.histograms.raft_commit
        # A cycle of references would keep both objects, the log and its open files alive after the process has ended.
        me = proxy(self)
        self.cascades = Cascades(process, state, lambda command: me.note(command))
        self.elsewhere = Elsewhere(
            process,
            context.node_name,
            routing,
            state,
            context.peers,
            context.alarms,
            context.sessions,
            lambda effect: me._follow(effect),
            context.settings.channel_operation_timeout / 1000,
        )
        self.lives = VhostLives(process, context.node_name, node, routing, state, policies, self.elsewhere)
        self.supervisors = self.lives.supervisors

    # -- proposals ---

    def timed(self, answer: Answer) -> Answer:
        """Wrap `answer`, so that the time of a command that was applied is in the histogram of the node."""
        times, now, began = self._commit_times, self._process.now, self._process.now()

        def take(outcome: CommandOutcome) -> None:
            if outcome.applied is not None:
                times.observe(now() - began)
            answer(outcome)

        return take

    async def change(self, command: Command, until_durable: bool = True) -> Applied:
        """Propose a command and perform its effects, and return what it did.

        Raises AmqpError if it is refused, if an effect fails, or if its removals cannot be written now.
        """
        held: list[tuple[str, str]] = []
        if isinstance(command, DeleteQueue) and self._is_large(command):
            held = await self._trim_queue(command)
            # Removing the other rows took many turns, in which the queue's supervisor may have restarted a process that
            # crashed while it ended. So the command must end that process, too.
            command = command._replace(is_ended=False)
        proposal = _AwaitedOutcome()
        self._log.propose(command, self.timed(proposal.take), until_durable)
        outcome = proposal.outcome
        if outcome is None:
            proposal.signal = Signal(self._process)
            await proposal.signal.wait()
            outcome = proposal.outcome
            assert outcome is not None
        if held:
            self.cascades.free(held)
        applied = outcome.applied
        if applied is not None:
            for effect in applied.effects:
                await self._perform(effect)
                if isinstance(effect, StartQueue) and effect.row.group is not None:
                    await self.elsewhere.replicas_started(effect.row)
        error = outcome.error
        if error is not None:
            # The error refers to this frame by its traceback, so the frame must not refer to the error: the process
            # and its open files would outlive its end.
            del proposal, outcome
            try:
                raise error
            finally:
                del error
        assert applied is not None, "a command without an error was applied"
        return applied

    async def note(self, command: Command) -> None:
        """Propose a command that no client has asked for, and perform its effects. Errors are dropped.

        If a snapshot hides what became of the command, it is proposed again, unless the state shows that it has taken
        effect or cannot any more (`should_repeat`).
        """
        is_open = True
        while is_open:
            is_open = False
            try:
                await self.change(command, until_durable=False)
            except OutcomeUnknown:
                is_open = should_repeat(self._state, command)
            except (AmqpError, ProcessError):
                pass

    # -- exchanges, queues and virtual hosts with very many rows ---

    def is_source(self, vhost: str, exchange: str) -> bool:
        """Whether the exchange is the source of any binding."""
        rows = self._state.vhosts.get(vhost)
        return rows is not None and rows.is_source(exchange)

    def is_large(self, vhost: str, exchange: str) -> bool:
        """Whether deleting this exchange removes more than `STEP` bindings, which takes several turns."""
        rows = self._state.vhosts.get(vhost)
        if rows is None:
            return False
        return rows.is_more(exchange, STEP) or self.cascades.is_large(vhost, ("exchange", exchange))

    async def delete_large_exchange(self, command: DeleteExchange) -> None:
        """Delete an exchange that has very many bindings, or whose deletion deletes very many auto-delete exchanges.

        Raises AmqpError like `change`.
        """
        vhost, name = command.vhost, command.name
        self._routing.hide_exchange(vhost, name)
        held = await self.cascades.trim(vhost, ("exchange", name))
        for end in (name, ("exchange", name)):
            await self._trim(vhost, end)
        try:
            await self.change(command)
        finally:
            self.cascades.free(held)

    async def unbind_large(self, command: Unbind) -> None:
        """Remove a binding whose removal deletes very many auto-delete exchanges. Raises AmqpError like `change`."""
        held = await self.cascades.trim(command.vhost, command.binding)
        try:
            await self.change(command)
        finally:
            self.cascades.free(held)

    def _is_large(self, command: DeleteQueue) -> bool:
        row = self._state.queue(command.vhost, command.name)
        if row is None or row.queue_id != command.queue_id:
            return False
        return self.cascades.is_large(command.vhost, ("queue", command.name))

    async def _trim_queue(self, command: DeleteQueue) -> list[tuple[str, str]]:
        """Remove in steps the bindings and auto-delete exchanges that end with a queue, until one command can remove
        the rest. Return these exchanges: requests for them wait until `Cascades.free` is called.
        """
        vhost, end = command.vhost, ("queue", command.name)
        self._routing.hide_queue(vhost, command.name)
        held = await self.cascades.trim(vhost, end)
        await self._trim(vhost, end)
        return held

    async def _trim(self, vhost: str, end: str | Destination) -> None:
        """Remove bindings that have this source, or this destination, until few are left for the command."""
        while (rows := self._state.vhosts.get(vhost)) is not None and rows.is_more(end, STEP):
            await self.note(TrimBindings(vhost, rows.some_bindings(end, STEP)))
            await self._process.next_turn()

    async def trim_vhost(self, name: str) -> None:
        """Remove the rows of a virtual host that has very many, so that few are left for its deletion.

        The processes of the virtual host run until the deletion. A crash of the node before it leaves the virtual host
        with the remaining rows.
        """
        while (rows := self._state.vhosts.get(name)) is not None and rows.is_large(STEP):
            bindings, queues, exchanges = rows.some(STEP)
            held = await self.cascades.trim_bindings(name, bindings)
            await self.note(TrimVhost(name, bindings, queues, exchanges))
            self.cascades.free(held)
            await self._process.next_turn()

    # -- effects ---

    def _perform(self, effect: Effect) -> Coroutine[object, None, None]:
        if isinstance(effect, StartQueue):
            if effect.row.node != self._node_name:
                return self.elsewhere.home_started(effect.row)
            return self._start_queue(effect.row)
        if isinstance(effect, EndQueue):
            return self._end_queue(effect.vhost, effect.queue_id)
        return self._start_vhost(effect.name) if isinstance(effect, StartVhost) else self.lives.settle(effect.name)

    def _follow(self, effect: Effect) -> Coroutine[object, None, None]:
        """Perform an effect of a command that another node proposed."""
        return self.lives.settle(effect.name) if isinstance(effect, StartVhost) else self._perform(effect)

    async def _start_queue(self, row: QueueRow) -> None:
        """Start a queue and show it to channels. If that fails its row is deleted. Raises AmqpError."""
        # Other nodes choose this one as the home of queues as soon as it counts as up and has a virtual host.
        await self.lives.until_free(row.vhost)
        shown = self._routing.queue(row.vhost, row.name)
        if shown is not None and shown.queue_id == row.queue_id:
            return  # the row came early enough to be recovered with the others
        supervisor, started = self.supervisors.get(row.vhost), None
        version = self._state.definitions.version
        if supervisor is not None:
            with suppress(ProcessError):
                started = await self._process.ask(supervisor, to_queue_supervisor.start_queue(row))
        if started is None:
            self.elsewhere.start_ended(row.queue_id)
            # A logical queue is deleted with all its shards.
            whole = row if row.shard_of is None else self._state.queue(row.vhost, row.shard_of) or row
            await self.note(DeleteQueue(whole.vhost, whole.name, whole.queue_id, is_ended=False))
            # This raises AmqpError 320 if the virtual host was deleted. Otherwise its supervisor has failed, and the
            # node sends `vhost_down`.
            self._state.rows(row.vhost)
            raise AmqpError(INTERNAL_ERROR, f"vhost '{row.vhost}' is down")
        self._policies.queue_started(started, version)
        current = self._state.queue(row.vhost, row.name)
        if current is row:
            self.show_own(started)
        elif current is not None and current.queue_id == row.queue_id:
            self.show_own(replace(started, state=current.state))
        else:
            # The virtual host was deleted while the queue started, for which `rows` raises AmqpError 320, or the queue
            # has ended by itself already.
            self.elsewhere.start_ended(row.queue_id)
            self._state.rows(row.vhost)
            self.forget_queue(row.vhost, row.queue_id)

    def show_own(self, row: QueueRow) -> None:
        """Show a queue that is at home here, with the address of its process."""
        self._routing.put_queue(row)
        self.elsewhere.own_started(row)
        self.on_own(row)

    async def _end_queue(self, vhost: str, queue_id: str) -> None:
        """Have the queue's supervisor end the process without restarting it (AB-63), and then remove the queue's files.

        The files go last: a queue whose row is still on the disk needs them at the next start (C-17).

        A virtual host that is down has no supervisor; its next start removes the files. A process in `leaving` ends by
        itself: the supervisor would kill it before it has answered how many messages it had.
        """
        supervisor = self.supervisors.get(vhost)
        if supervisor is not None and queue_id not in self.leaving:
            with suppress(ProcessDown):
                await self._process.ask(supervisor, to_queue_supervisor.forget_queue(queue_id))

    async def _start_vhost(self, name: str) -> None:
        """Start a new virtual host. If that fails it is deleted. Raises ProcessError."""
        try:
            await self.lives.settle(name)
        except ProcessError:
            await self.note(DeleteVhost(name))
            raise
        await self.elsewhere.vhost_started(name)

    def forget_queue(self, vhost: str, queue_id: str) -> None:
        """Have the queue's supervisor end the process of a queue for good, without waiting for it.

        Does nothing if the virtual host is down.
        """
        supervisor = self.supervisors.get(vhost)
        if supervisor is not None:
            self._process.send(supervisor, to_queue_supervisor.forget_queue(queue_id))
