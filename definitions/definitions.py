"""`Definitions`: all records, by table and key, and what is looked up often.

They are a part of Metadata's state: its commands alone change them, and every process of the node reads them directly,
as it reads the routing table. Records are immutable, so a reader may keep one. `version` changes with every change, so
a reader may keep what follows from records until the version differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .json_text import parse_json
from .limits import VHOST_LIMITS, vhost_limits
from .policies import VhostPolicies
from .records import (
    DEFAULT_DESCRIPTION,
    DEFAULT_VHOST,
    TABLES,
    EnabledFeature,
    GlobalParameter,
    Node,
    Parameter,
    Permission,
    Policy,
    Record,
    RecordKey,
    TopicPermission,
    User,
    VhostProperties,
)

#: The global parameter that names the cluster, as in RabbitMQ.
CLUSTER_NAME = "cluster_name"


class Definitions:
    """See the module. At first there are none. Readers must not change the dictionaries."""

    __slots__ = (
        "version",
        "tables",
        "vhosts",
        "users",
        "permissions",
        "topic_permissions",
        "parameters",
        "global_parameters",
        "policies",
        "nodes",
        "features",
        "_of_vhost",
        "_outdated",
        "_with_policies",
        "_limits",
    )

    def __init__(self) -> None:
        self.version = 0
        self.vhosts: dict[RecordKey, VhostProperties] = {}
        self.users: dict[RecordKey, User] = {}
        self.permissions: dict[RecordKey, Permission] = {}
        self.topic_permissions: dict[RecordKey, TopicPermission] = {}
        self.parameters: dict[RecordKey, Parameter] = {}
        self.global_parameters: dict[RecordKey, GlobalParameter] = {}
        self.policies: dict[RecordKey, Policy] = {}
        self.nodes: dict[RecordKey, Node] = {}
        self.features: dict[RecordKey, EnabledFeature] = {}
        self.tables: dict[str, dict[RecordKey, Record]] = {name: getattr(self, name) for name in TABLES}
        #: The virtual hosts that have policies, and the `VhostPolicies` of those that were asked for. Names of other
        #: virtual hosts are not kept: they would be left behind by virtual hosts that are deleted.
        self._with_policies: set[str] = set()
        self._of_vhost: dict[str, VhostPolicies] = {}
        #: The policies that a virtual host had when it was asked for them last, and which have changed since then.
        self._outdated: dict[str, tuple[VhostPolicies, list[Policy]]] = {}
        #: The limits of a virtual host that has any.
        self._limits: dict[str, dict[str, int]] = {}

    # -- reading ---

    def user(self, name: str) -> User | None:
        return self.users.get((name,))

    def vhost_properties(self, name: str) -> VhostProperties:
        """What is set for a virtual host. The virtual host `/` has RabbitMQ's description unless another one is set."""
        found = self.vhosts.get((name,)) or VhostProperties(name)
        if name == DEFAULT_VHOST and not found.description:
            return replace(found, description=DEFAULT_DESCRIPTION)
        return found

    def default_queue_type(self, vhost: str) -> str:
        """The type of queues that are declared in this virtual host without one; empty if none is set."""
        found = self.vhosts.get((vhost,))
        return "" if found is None else found.default_queue_type

    def node(self, name: str) -> Node | None:
        """A member of the cluster."""
        return self.nodes.get((name,))

    def enabled_features(self) -> frozenset[str]:
        """The names of the features that are enabled in the whole cluster."""
        return frozenset(name for (name,) in self.features)

    def permission(self, user: str, vhost: str) -> Permission | None:
        """What the user may do in the virtual host; None if the user may not open it."""
        return self.permissions.get((user, vhost))

    def policies_of(self, vhost: str) -> VhostPolicies | None:
        """The policies of this virtual host; None if it has none. The same object until one of them changes."""
        if vhost not in self._with_policies:
            return None
        found = self._of_vhost.get(vhost)
        if found is None:
            before, changed = self._outdated.pop(vhost, (None, []))
            policies = [policy for policy in self.policies.values() if policy.vhost == vhost]
            found = self._of_vhost[vhost] = VhostPolicies(policies, before, changed)
        return found

    def vhost_limit(self, vhost: str, name: str) -> int | None:
        """The limit `max-connections` or `max-queues` of a virtual host; None if there is none."""
        value = self._limits.get(vhost, {}).get(name, -1)
        return value if value >= 0 else None

    def vhosts_with_limits(self) -> Iterator[str]:
        return iter(self._limits)

    def cluster_name(self, default: str) -> str:
        """The cluster's name, which the global parameter `cluster_name` sets; without it `default`."""
        found = self.global_parameters.get((CLUSTER_NAME,))
        value = None if found is None else parse_json(found.value)
        return value if isinstance(value, str) else default

    def record(self, table: str, key: RecordKey) -> Record | None:
        return self.tables[table].get(key)

    def all(self) -> Iterator[Record]:
        for records in self.tables.values():
            yield from records.values()

    def of_user(self, name: str) -> list[Record]:
        """The records that are removed with this user, the user's own record last."""
        granted: list[Permission | TopicPermission] = [*self.permissions.values(), *self.topic_permissions.values()]
        found: list[Record] = [record for record in granted if record.user == name]
        user = self.users.get((name,))
        return found if user is None else [*found, user]

    def of_vhost(self, name: str) -> list[Record]:
        """The records that are removed with this virtual host."""
        inside: list[Permission | TopicPermission | Parameter | Policy] = [
            *self.permissions.values(),
            *self.topic_permissions.values(),
            *self.parameters.values(),
            *self.policies.values(),
        ]
        found: list[Record] = [record for record in inside if record.vhost == name]
        properties = self.vhosts.get((name,))
        return found if properties is None else [*found, properties]

    # -- writing, by the commands of Metadata's state only ---

    def put(self, record: Record) -> None:
        """Add a record, or replace the one with its key."""
        replaced = self.tables[record.table].get(record.key)
        self.tables[record.table][record.key] = record
        self._changed(record, replaced)

    def remove(self, record: Record) -> None:
        removed = self.tables[record.table].pop(record.key)
        self._changed(record, removed)

    def _changed(self, record: Record, earlier: Record | None) -> None:
        """Note a record that was put or removed, and the one that had its key."""
        self.version += 1
        if isinstance(record, Policy):
            self._policy_changed(record, earlier)
        elif isinstance(record, Parameter) and record.key[1:] == VHOST_LIMITS:
            found = self.parameters.get(record.key)
            if found is None:
                self._limits.pop(record.vhost, None)
            else:
                self._limits[record.vhost] = vhost_limits(found.value)

    def _policy_changed(self, policy: Policy, earlier: Record | None) -> None:
        vhost = policy.vhost
        asked_for = self._of_vhost.pop(vhost, None)
        if asked_for is not None:
            self._outdated[vhost] = asked_for, []
        if policy.key in self.policies or any(one.vhost == vhost for one in self.policies.values()):
            self._with_policies.add(vhost)
            if vhost in self._outdated:
                changed = self._outdated[vhost][1]
                changed.append(policy)
                if isinstance(earlier, Policy) and earlier is not policy:
                    changed.append(earlier)
                if len(changed) > len(self.policies):  # to search for each of them takes as long as to begin anew
                    del self._outdated[vhost]
        else:
            self._with_policies.discard(vhost)
            self._outdated.pop(vhost, None)
