"""`LivePolicies`: has queues and exchanges follow the policies of their virtual host (AB-159).

A queue reads the policies when it starts. When they change, each queue for which they define something else receives
`apply_settings`, and so do its mirrors, whose mode follows from the policies as well. A virtual host may have many
thousands of queues, so that is done in slices. Changes that come meanwhile wait for the end, and are then applied
together. For an exchange, policies define only the alternate exchange, which is written to the routing table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...definitions.changes import RecordChange
from ...definitions.definitions import Definitions
from ...definitions.policies import NO_DEFINITION, VhostPolicies, queue_kind
from ...definitions.records import Policy
from ...routing.arguments.queue_settings import QueueSettings
from ...routing.changes import ExchangePut
from ...routing.rows import ExchangeRow, QueueRow
from ...routing.table import RoutingTable
from ...runtime.contract import Address
from ...runtime.process import Process
from ..contracts.queue import ToQueue, to_queue
from ..queue.policed_settings import policed_settings

#: Queues or exchanges that one turn compares with the policies; each costs some µs for each policy.
SLICE = 50


class LivePolicies:
    """Belongs to `process`, the Metadata."""

    def __init__(
        self, process: Process, here: str, routing: RoutingTable, definitions: Definitions, queue_mode_precedence: str
    ) -> None:
        self._process = process
        #: The name of this node. Other nodes see to the queues that are at home there.
        self._here = here
        #: Called with the id of a queue that is at home elsewhere; returns the address of its mirror on this node.
        self.mirror_of: Callable[[str], Address[ToQueue] | None] = _no_mirror
        self._routing = routing
        self._definitions = definitions
        self._queue_mode_precedence = queue_mode_precedence
        #: Called with the virtual host when the policies may have changed which alternate exchanges there are.
        self.on_alternates: Callable[[str], object] = _ignore
        #: By virtual host: the policies that queues and exchanges follow.
        self._followed: dict[str, VhostPolicies | None] = {}
        #: By virtual host: the version of the definitions in which its policies changed last.
        self._changed_at: dict[str, int] = {}
        #: Virtual hosts whose queues and exchanges are being brought to follow the policies.
        self._running: set[str] = set()

    def recovered(self, vhost: str) -> None:
        """Note the policies with which a virtual host begins. Its queues have started with them."""
        policies = self._followed[vhost] = self._definitions.policies_of(vhost)
        if policies is not None and policies.defines("exchanges", "alternate-exchange"):
            for row in self._routing.exchanges(vhost):
                self._show_alternate(row, policies)
        self.on_alternates(vhost)

    def exchanges_added(self, changes: Iterable[ExchangePut]) -> None:
        """Set the alternate exchanges of exchanges that the present turn has added to the routing table."""
        for change in changes:
            policies = self._definitions.policies_of(change.row.vhost)
            if policies is not None and policies.defines("exchanges", "alternate-exchange"):
                self._show_alternate(change.row, policies)

    def queue_started(self, row: QueueRow, read_version: int) -> None:
        """Send a queue that has started its settings if the policies have changed since `read_version`, or if the
        bindings of exchanges that deduplicate may have.

        The queue's process, at the address in `row`, has read them at some time since then.
        """
        changed = self._changed_at.get(row.vhost)
        windows = self._routing.exchange_windows(row.vhost)
        if changed is not None and changed > read_version or windows is not None and windows.carried:
            self._process.send(row.address, to_queue.apply_settings(self.settings_of(row)))

    def mirror_started(self, row: QueueRow, read_version: int) -> None:
        """Send a mirror on this node its settings if the policies have changed since `read_version`."""
        if self._changed_at.get(row.vhost, 0) > read_version:
            self.apply(row)

    def apply(self, row: QueueRow) -> None:
        """Send a queue its settings, if it or a mirror of it runs on this node."""
        address = row.address if row.node == self._here else self.mirror_of(row.queue_id)
        if row.state == "running" and address is not None:
            self._process.send(address, to_queue.apply_settings(self.settings_of(row)))

    def vhost_removed(self, vhost: str) -> None:
        self._followed.pop(vhost, None)
        self._changed_at.pop(vhost, None)

    def changed(self, changes: Iterable[RecordChange]) -> None:
        """Begin to apply the policies among these changes."""
        for vhost in dict.fromkeys(each.record.vhost for each in changes if isinstance(each.record, Policy)):
            self._changed_at[vhost] = self._definitions.version
            if vhost not in self._running:
                self._running.add(vhost)
                self._process.spawn(self._follow(vhost))

    async def _follow(self, vhost: str) -> None:
        try:
            while True:
                followed, wanted = self._followed.get(vhost), self._definitions.policies_of(vhost)
                if followed is wanted:
                    return
                self._followed[vhost] = wanted
                await self._follow_from(vhost, followed, wanted)
        finally:
            self._running.discard(vhost)

    async def _follow_from(self, vhost: str, followed: VhostPolicies | None, wanted: VhostPolicies | None) -> None:
        exchanges = self._routing.exchanges(vhost)
        queues = [row for row in self._routing.queues(vhost) if self._here in (row.node, *row.replicas)]
        for at in range(0, len(exchanges), SLICE):
            for exchange in exchanges[at : at + SLICE]:
                self._show_alternate(exchange, wanted)
            self.on_alternates(vhost)
            await self._process.next_turn()
        for at in range(0, len(queues), SLICE):
            for queue in queues[at : at + SLICE]:
                self._update_queue(queue, followed, wanted)
            await self._process.next_turn()

    def _update_queue(self, shown: QueueRow, followed: VhostPolicies | None, wanted: VhostPolicies | None) -> None:
        name = shown.name if shown.shard_of is None else shown.shard_of
        definitions = [
            NO_DEFINITION if policies is None else policies.effective(queue_kind(shown.type), name).definition
            for policies in (followed, wanted)
        ]
        row = self._routing.queue(shown.vhost, shown.name)
        # Between two slices the queue may have been deleted, and declared again on another node.
        if row is not None and definitions[0] != definitions[1]:
            self.apply(row)

    def settings_of(self, row: QueueRow) -> QueueSettings:
        """The settings that the queue has, or will have in a moment."""
        return policed_settings(row, self._definitions, self._routing, self._queue_mode_precedence)

    def _show_alternate(self, shown: ExchangeRow, policies: VhostPolicies | None) -> None:
        definition = NO_DEFINITION if policies is None else policies.effective("exchanges", shown.name).definition
        self._routing.set_policy_alternate(shown.vhost, shown.name, definition.get("alternate-exchange"))


def _ignore(vhost: str) -> None:
    """Do nothing: before Metadata has started, no queue follows the alternate exchanges that policies set."""


def _no_mirror(queue_id: str) -> None:
    """None: before Metadata has started, no mirror runs."""
