"""`Elsewhere`: the part of Metadata that has to do with other nodes (cluster section 9).

Every node of a cluster applies every command, whichever node proposed it. So the routing table of each node has the
queues of all nodes. The addresses of queues on other nodes follow from their rows (`actors/context/peers.py`). Each
node performs the effects that concern it: the home of a queue starts the queue, every node starts a virtual host. The
node that proposed the command performs its own effects before it answers the client, and asks the home of a new queue
to answer when the queue runs (`await_queue`).

The effects of other nodes' commands are performed one after the other in each virtual host, because a queue cannot be
started before its virtual host.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...amqp.errors import AmqpError
from ...routing.changes import Change, QueuePut, QueueRemoved
from ...routing.phrases import queue_unavailable
from ...routing.rows import QueueRow
from ...routing.table import RoutingTable
from ...runtime.contract import Address, Sender
from ...runtime.coroutines import TimerCall
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ...runtime.process import Process
from ...runtime.signal import Signal
from ..context.peers import QUEUES, Peers
from ..context.sessions import Sessions
from ..contracts.connection import to_session_tracking
from ..contracts.metadata import ToMetadata, to_metadata
from ..contracts.resources import to_alarms
from .state.effects import Effect, EndQueue, StartQueue, StartVhost
from .state.state import State

if TYPE_CHECKING:
    from ..contracts.queue import ToQueue
    from ..contracts.resources import ToAlarms

log = logging.getLogger("warren.metadata")

#: When another node has started and is connected, at most this many of its queues get their addresses in one turn.
ROWS_AT_A_TIME = 1_000


class Elsewhere:
    """Belongs to `process`, the Metadata of the node `here`.

    sessions  has the process that is to meet the one of its kind on each node
    perform   performs an effect of a command that another node proposed
    timeout   seconds to wait for the home of a queue
    """

    def __init__(
        self,
        process: Process,
        here: str,
        routing: RoutingTable,
        state: State,
        peers: Peers,
        alarms: Address[ToAlarms],
        sessions: Sessions,
        perform: Callable[[Effect], Coroutine[object, None, None]],
        timeout: float,
    ) -> None:
        self._process = process
        self._here = here
        self._routing = routing
        self._state = state
        self._peers = peers
        self._alarms = alarms
        self._sessions = sessions
        self._perform = perform
        self._timeout = timeout
        #: By virtual host: effects of other nodes' commands that are not performed yet.
        self._effects: dict[str, deque[Effect]] = {}
        #: By queue id: the nodes that wait until the queue, which is starting here, runs.
        self._waiting: dict[str, list[Sender]] = {}
        #: By id of a queue in `_expected`: wakes the coroutines that wait until the routing table has the queue.
        self._unshown: dict[str, Signal] = {}
        #: By virtual host that is starting here: the nodes that wait for it.
        self._waiting_for_vhost: dict[str, list[Sender]] = {}
        #: The rows of the queues at home here, by id. Empty as long as this node has never met another one.
        self._own: dict[str, QueueRow] = {}
        #: The processes of queues here that run, but are not in the routing table yet, by their `_name`.
        self._next: dict[str, Address[ToQueue]] = {}
        #: By id of each new queue here that is starting: the `_name` of its process.
        self._expected: dict[str, str] = {}
        #: While this node recovers its queues, messages of other nodes to queues that do not run yet are held. This is
        #: the time until which they are held at most.
        self._recovery_end = 0.0
        #: The timer that releases the held messages at that time, while this node recovers its queues.
        self._recovery_limit: int | None = None
        #: Called with the virtual host and name of a queue of another node that has got another address.
        self.on_new_address: Callable[[str, str], None] = lambda vhost, name: None

    # -- what others proposed ---

    def perform(self, effects: Iterable[Effect]) -> None:
        """Perform the effects of a command that another node proposed, as far as they concern this node."""
        for effect in effects:
            if isinstance(effect, StartQueue):
                if effect.row.node != self._here:
                    continue
                vhost = effect.row.vhost
                self._waiting.setdefault(effect.row.queue_id, [])
            else:
                vhost = effect.vhost if isinstance(effect, EndQueue) else effect.name
                if isinstance(effect, StartVhost):
                    self._waiting_for_vhost.setdefault(vhost, [])
            waiting = self._effects.get(vhost)
            if waiting is not None:
                waiting.append(effect)
            else:
                self._effects[vhost] = deque((effect,))
                self._process.spawn(self._perform_all(vhost))

    async def _perform_all(self, vhost: str) -> None:
        effects = self._effects[vhost]
        while effects:
            effect = effects.popleft()
            error: AmqpError | None = None
            try:
                await self._perform(effect)
            except AmqpError as refusal:
                error = refusal
            except ProcessError as failure:
                log.error("vhost '%s': cannot do here what another node's change requires: %s", vhost, failure)
            if isinstance(effect, StartQueue):
                self._answer(effect.row.queue_id, error)
            elif isinstance(effect, StartVhost):
                for sender in self._waiting_for_vhost.pop(vhost, ()):
                    self._process.reply(sender, True)
        del self._effects[vhost]

    def _answer(self, queue_id: str, error: AmqpError | None) -> None:
        for sender in self._waiting.pop(queue_id, ()):
            if error is None:
                self._process.reply(sender, True)
            else:
                self._process.reply_error(sender, error)

    # -- the start of a virtual host on every node ---

    def await_vhost(self, sender: Sender, name: str) -> None:
        """Answer another node True when this virtual host is no longer starting here."""
        waiting = self._waiting_for_vhost.get(name)
        if waiting is not None:
            waiting.append(sender)
        else:
            self._process.reply(sender, True)

    async def vhost_started(self, name: str) -> None:
        """Return when the other nodes that can be reached have started a new virtual host, too.

        So when the client has its answer, it may open the virtual host on any node.
        """
        question = to_metadata.await_vhost(name)
        asked = [(self._peers.metadata(node), question) for node in self._peers.nodes()]
        await self._process.ask_each(asked, self._timeout)

    # -- the start of a queue at its home ---

    def starts(self, row: QueueRow) -> None:
        """Note that a new queue is about to start here. Other nodes have its row already, so messages that they send to
        it are held until it runs.
        """
        if self._peers:
            self._expected[row.queue_id] = _name(row)

    def start_ended(self, queue_id: str) -> None:
        """Note that the start of a queue here has ended: it runs, was deleted, or could not be started."""
        name = self._expected.pop(queue_id, None)
        if name is not None:
            self._process.release_held(f"{QUEUES}/{name}")
        signal = self._unshown.pop(queue_id, None)
        if signal is not None:
            signal.wake_all()

    def recovers(self) -> None:
        """Note that this node recovers its queues, whose rows the other nodes have already.

        Messages of other nodes to these queues are held until the queues run, for `timeout` seconds at most.
        """
        self._stop_limit()
        self._recovery_end = self._process.now() + self._timeout
        self._recovery_limit = self._process.start_timer(self._timeout, TimerCall(self._process.release_held))

    def _stop_limit(self) -> None:
        if self._recovery_limit is not None:
            self._process.cancel_timer(self._recovery_limit)
            self._recovery_limit = None

    def recovered(self) -> None:
        """Note that the recovery has ended: every queue runs here that could be recovered."""
        self._stop_limit()
        self._recovery_end = 0.0
        self._process.release_held()

    def is_expected(self, name: str) -> bool:
        """Whether the process with the name `q/<name>` will soon run here."""
        return self._expected.get(name.partition("/")[0]) == name or self._process.now() < self._recovery_end

    def await_queue(self, sender: Sender, vhost: str, name: str, queue_id: str) -> None:
        """Answer another node when this queue, which is at home here, runs (True) or is gone (False).

        Raises AmqpError if the queue cannot be started.
        """
        waiting = self._waiting.get(queue_id)
        if waiting is not None:
            waiting.append(sender)
        else:
            self._process.spawn(self._answer_when_shown(sender, vhost, name, queue_id))

    async def _answer_when_shown(self, sender: Sender, vhost: str, name: str, queue_id: str) -> None:
        self._process.reply(sender, await self.shown(vhost, name, queue_id))

    async def shown(self, vhost: str, name: str, queue_id: str) -> bool:
        """Wait until the routing table has a queue that is at home here. Return False if it is gone, or does not start
        in time.
        """
        if queue_id in self._expected:
            signal = self._unshown.setdefault(queue_id, Signal(self._process))
            with suppress(ProcessTimeout):
                await signal.wait_for(lambda: queue_id not in self._expected, self._timeout)
        row = self._routing.queue(vhost, name)
        return row is not None and row.queue_id == queue_id

    async def home_started(self, row: QueueRow) -> None:
        """Return when the home of a new queue has started it, or finds that it was deleted meanwhile.

        Raises AmqpError if the home cannot start it, or cannot be reached.
        """
        question = to_metadata.await_queue(row.vhost, row.name, row.queue_id)
        try:
            await self._process.ask(self._peers.metadata(row.node), question, timeout=self._timeout)
        except (ProcessDown, ProcessTimeout):
            raise queue_unavailable(row.vhost, row.name, "down", row.node) from None

    async def replicas_started(self, row: QueueRow) -> None:
        """Return when the nodes of a new mirrored queue have started their replicas, as far as they can be reached."""
        question = to_metadata.await_replica(row.queue_id)
        nodes = [node for node in row.replicas if node != self._here]
        me: Address[ToMetadata] = self._process.myAddress
        asked = [(me, question), *((self._peers.metadata(node), question) for node in nodes)]
        await self._process.ask_each(asked, self._timeout)

    # -- the routing table ---

    def show(self, changes: Sequence[Change]) -> None:
        """Put addresses into the rows of queues on other nodes that the routing table has just received."""
        for change in changes:
            if isinstance(change, QueuePut):
                if change.row.node != self._here and self._routing.has_vhost(change.row.vhost):
                    # Messages for the master that was here must not reach this replica, which may be a mirror now.
                    self._own.pop(change.row.queue_id, None)
                    self.show_queue(change.row)
                elif change.row.queue_id in self._own:
                    self._keep(change.row)
            elif isinstance(change, QueueRemoved):
                self._own.pop(change.row.queue_id, None)
                self.start_ended(change.row.queue_id)

    def show_queue(self, row: QueueRow) -> None:
        """Put a queue whose home is another node into the routing table, with its address there."""
        self._routing.put_queue(row.at(self._peers.queue(row)))

    def own_starts(self, row: QueueRow, generation: int, address: Address[ToQueue]) -> None:
        """Note the new process of a queue that is at home here, before the other nodes receive its address.

        Their messages to it may arrive before the routing table of this node shows the process.
        """
        if self._peers:
            self._next[f"{row.queue_id}/{generation}"] = address

    def own_started(self, row: QueueRow) -> None:
        """Note that a queue that is at home here is in the routing table with the address of its process."""
        if self._peers:
            self._own[row.queue_id] = row
            self._next.pop(_name(row), None)
            if self._recovery_end:
                self._process.release_held(f"{QUEUES}/{_name(row)}")
            self.start_ended(row.queue_id)

    def _keep(self, row: QueueRow) -> None:
        shown = self._routing.queue(row.vhost, row.name)
        if shown is not None and shown.queue_id == row.queue_id:
            self._own[row.queue_id] = shown

    def find(self, name: str) -> Address[ToQueue] | None:
        """The address of the process with the name `q/<name>`, where `name` is `<queue id>/<generation>`; None if no
        such process runs.
        """
        found = self._next.get(name)
        if found is None:
            row = self._own.get(name.partition("/")[0])
            if row is not None and _name(row) == name:
                found = row.address
        return found

    async def node_met(self, node: str, system: str) -> None:
        """Give the queues of another node, which is connected now, their addresses in its `system` of actors."""
        is_first = not self._peers
        is_new = self._peers.met(node, system)
        self._process.send(self._alarms, to_alarms.node_met(node, self._peers.alarms(node)))
        if self._sessions.tracking is not None:
            self._process.send(
                self._sessions.tracking, to_session_tracking.node_met(self._peers.session_tracking(node))
            )
        if not is_new:
            return
        shown = [row for vhost in self._routing.vhosts() for row in self._routing.queues(vhost)]
        if is_first:
            # Note all of them in one turn, because the other node may use any of them from now on.
            self._own = {row.queue_id: row for row in shown if row.node == self._here}
        theirs = [row for row in shown if row.node == node]
        for at in range(0, len(theirs), ROWS_AT_A_TIME):
            for row in theirs[at : at + ROWS_AT_A_TIME]:
                current = self._routing.queue(row.vhost, row.name)
                if current is not None and current.queue_id == row.queue_id:
                    self.show_queue(current)
                    self.on_new_address(current.vhost, current.name)
            await self._process.next_turn()


def _name(row: QueueRow) -> str:
    """The name of the queue's process, without `q/` in front."""
    return f"{row.queue_id}/{row.generation}"
