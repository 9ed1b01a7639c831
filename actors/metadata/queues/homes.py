"""`Homes`: chooses the node where a new queue will be (CL-58).

The choice is made by the node that is asked to declare the queue, and is part of the command. So all nodes agree on it,
and it does not matter that they count differently at that moment.

| locator | the home |
|---|---|
| `client-local` | the node of the client; on a witness as `min-masters` |
| `min-masters` | the node that is the home of the fewest queues; among several this one, else the first by name |
| `random` | any node |

The queue's argument `x-queue-master-locator` decides, then the policy's `queue-master-locator`, then the setting
`queue_master_locator`. A locator of another name is skipped. `min-masters` and `random` choose among the nodes that
run, have queues and are not in maintenance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ....amqp.fields import Table
from ....definitions.policies import queue_kind
from ....routing.arguments.queue_arguments import MASTER_LOCATOR
from ..state.state import State

LOCATORS = ("client-local", "min-masters", "random")


class Homes:
    """Belongs to the Metadata of the node `here`. `default` is the locator of the settings."""

    def __init__(self, here: str, default: str, state: State, random_bytes: Callable[[int], bytes]) -> None:
        self.here = here
        self._default = default
        self._state = state
        self._random_bytes = random_bytes
        #: How many queues that are being declared will be at each node. They have no row yet.
        self._chosen: Counter[str] = Counter()

    def choose(self, vhost: str, name: str, queue_type: str, arguments: Table, is_exclusive: bool) -> str:
        """The home of a new queue. `declared` must follow when the declaration is over."""
        home = self.here
        if not is_exclusive and self._state.definitions.nodes:
            locator = self._locator(vhost, name, queue_type, arguments)
            if self._is_witness() and locator == "client-local":
                locator = "min-masters"
            if locator != "client-local":
                home = self._among(locator)
        self._chosen[home] += 1
        return home

    def _is_witness(self) -> bool:
        """Whether this node is a witness, which has no queues and no clients. A command may declare queues here all the
        same.
        """
        own = self._state.definitions.node(self.here)
        return own is not None and own.role == "witness"

    def declared(self, home: str) -> None:
        """Note that the queue for which this home was chosen has its row, or was refused."""
        self._chosen[home] -= 1

    def _locator(self, vhost: str, name: str, queue_type: str, arguments: Table) -> str:
        found = arguments.get(MASTER_LOCATOR)
        argument = found[1].decode("utf-8", "replace") if found is not None and isinstance(found[1], bytes) else ""
        policies = self._state.definitions.policies_of(vhost)
        policy = None
        if policies is not None:
            policy = policies.effective(queue_kind(queue_type), name).definition.get("queue-master-locator")
        return next((each for each in (argument, policy, self._default) if each in LOCATORS), "client-local")

    def _among(self, locator: str) -> str:
        nodes = sorted(
            node.name
            for node in self._state.definitions.nodes.values()
            if node.incarnation and node.role == "data" and not node.in_maintenance
        )
        if not nodes:
            return self.here
        if locator == "random":
            return nodes[int.from_bytes(self._random_bytes(8), "big") % len(nodes)]
        counts = Counter(self._chosen)
        for rows in self._state.vhosts.values():
            counts.update(rows.homes)
        return min(nodes, key=lambda node: (counts[node], node != self.here, node))
