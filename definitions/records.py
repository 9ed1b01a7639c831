"""Records: immutable values for what operators set. A change replaces the record.

Each record belongs to a table, in which its key, a tuple of strings, identifies it. JSON values are kept as text, so
that records compare by value and survive a restart as they were given. Regular expressions are kept as text as well
(`patterns`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: The names of the tables.
TABLES = (
    "vhosts",
    "users",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "nodes",
    "features",
)

RecordKey = tuple[str, ...]


#: The virtual host that RabbitMQ describes although nobody has set a description, and how.
DEFAULT_VHOST, DEFAULT_DESCRIPTION = "/", "Default virtual host"


@dataclass(frozen=True, slots=True)
class VhostProperties:
    """What an operator may set for a virtual host. A virtual host for which nothing was set has no such record."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str = ""

    table = "vhosts"

    @property
    def key(self) -> RecordKey:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class User:
    """A user. Without a password hash a user can log in by a client certificate only."""

    name: str
    #: Base64 of 4 bytes of salt and the hash (`passwords`); empty for a user without a password.
    password_hash: str = field(default="", repr=False)
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: tuple[str, ...] = ()
    #: Names and values, sorted by name. A negative value is no limit.
    limits: tuple[tuple[str, int], ...] = ()

    table = "users"

    @property
    def key(self) -> RecordKey:
        return (self.name,)

    def limit(self, name: str) -> int | None:
        """The limit `max-connections` or `max-channels`; None if there is none."""
        return next((value for key, value in self.limits if key == name and value >= 0), None)


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user may do in a virtual host: a regular expression on names for each kind of access (AB-162)."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str

    table = "permissions"

    @property
    def key(self) -> RecordKey:
        return self.user, self.vhost


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Which routing keys a user may use with a topic exchange (AB-164)."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str

    table = "topic_permissions"

    @property
    def key(self) -> RecordKey:
        return self.user, self.vhost, self.exchange


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a component in a virtual host. `value` is JSON text."""

    vhost: str
    component: str
    name: str
    value: str

    table = "parameters"

    @property
    def key(self) -> RecordKey:
        return self.vhost, self.component, self.name


@dataclass(frozen=True, slots=True)
class GlobalParameter:
    """A parameter of the whole cluster. `value` is JSON text."""

    name: str
    value: str

    table = "global_parameters"

    @property
    def key(self) -> RecordKey:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy or an operator policy (AB-156). `definition` is a JSON object as text."""

    vhost: str
    name: str
    pattern: str
    definition: str
    apply_to: str = "all"
    priority: int = 0
    is_operator: bool = False

    table = "policies"

    @property
    def key(self) -> RecordKey:
        return self.vhost, "operator" if self.is_operator else "user", self.name


@dataclass(frozen=True, slots=True)
class Node:
    """A member of the cluster (cluster section 2). A node without a cluster has no such record."""

    name: str
    #: 128 random bits in hex digits, which the node keeps in its data directory.
    node_id: str
    #: `data`, or `witness` for a node that votes and has neither queues nor clients.
    role: str = "data"
    #: Host and port at which other nodes reach it.
    address: str = ""
    #: The version of warren that it runs, and the features that this version has.
    build: str = ""
    features: tuple[str, ...] = ()
    #: Higher than that of each member when the node became one, so the numbers order the members by their age. When the
    #: youngest member is removed, the next one gets its number again.
    number: int = 0
    in_maintenance: bool = False
    #: Which run of the node is up, 64 random bits in hex digits; empty while the node is down.
    incarnation: str = ""

    table = "nodes"

    @property
    def key(self) -> RecordKey:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class EnabledFeature:
    """A feature that is enabled in the whole cluster (`features`)."""

    name: str

    table = "features"

    @property
    def key(self) -> RecordKey:
        return (self.name,)


Record = (
    VhostProperties | User | Permission | TopicPermission | Parameter | GlobalParameter | Policy | Node | EnabledFeature
)
