"""`Document`: a document of definitions, read and checked as a whole, with all errors, before anything is changed."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from .....amqp.errors import AmqpError
from .....amqp.fields import FieldError, Table, encode_table, table_from
from .....definitions import patterns
from .....definitions.errors import DefinitionError
from .....definitions.json_text import json_text, parse_json
from .....definitions.limits import MAX_QUEUES, VHOST_LIMITS, user_limits, vhost_limits
from .....definitions.password_rules import check_password
from .....definitions.passwords import SALT_BYTES, SHA256, check_hash, hashed, is_password
from .....definitions.policy_keys import checked_policy
from .....definitions.records import (
    GlobalParameter,
    Parameter,
    Permission,
    Record,
    TopicPermission,
    User,
    VhostProperties,
)
from .....routing.arguments.equivalence import check_exchange_equivalence, check_queue_equivalence
from .....routing.arguments.exchange_arguments import check_exchange_arguments
from .....routing.arguments.queue_arguments import check_queue_declaration
from .....routing.exchanges.exchange_types import check_binding, check_exchange_type
from .....routing.phrases import check_not_reserved
from .....routing.queue_types import with_default_type
from .....routing.rows import QueueRow
from ....context.events import OPERATOR
from ....context.node_context import NodeContext
from ....contracts.metadata import to_metadata
from ..observing.listings import SLICE
from ..registry import is_text
from .changing import checked_default_type
from .policies import check_feature

#: What RabbitMQ writes beside the sections.
FACTS = frozenset(
    {"rabbit_version", "rabbitmq_version", "rabbitmq_definition_format", "product_name", "product_version"}
    | {"original_cluster_name", "original_vhost_name", "explanation", "metadata", "description", "default_queue_type"}
    | {"limits"}
)

#: The sections that are imported into a single virtual host. Those of the whole node are left alone.
OF_VHOST = ("parameters", "policies", "exchanges", "queues", "bindings")

#: Bytes of UTF-8 that a name has at most.
NAME_MAX = 255


class _WrongError(Exception):
    """One thing of the document is wrong; the text is the reason."""


class Document:
    """See the module. `errors` has a line for each error: its place in the document and the reason.

    vhosts      the names of virtual hosts, which are created first
    records     users, permissions, policies and the like, which then become valid all at once
    requests    the declarations of exchanges, queues and bindings in this order, each with a phrase for errors
    limits      limits of virtual hosts that become valid in the end
    """

    #: The sections that a document may have, in the order in which they are read.
    sections = ("vhosts", "users", "permissions", "topic_permissions", "parameters", "global_parameters") + (
        "policies",
        "exchanges",
        "queues",
        "bindings",
    )

    def __init__(self, context: NodeContext, vhost: str | None, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self.errors: list[str] = []
        #: Bindings whose source or destination neither the document nor the node has, with the reason. RabbitMQ exports
        #: the bindings of exclusive queues and internal exchanges, but not these themselves, and imports such a file.
        #: Queues and exchanges too whose names only a broker may give, unless the node has them: an export contains the
        #: queues to which it gave a name for a client. Unknown sections too: their names may be misspelt.
        self.left_out: list[str] = []
        self.vhosts: list[str] = []
        self.records: list[Record] = []
        self.requests: list[tuple[str, Any]] = []
        self.limits: list[Record] = []
        self._context = context
        self._vhost = vhost
        self._known_vhosts = set(context.routing.vhosts())
        self._known_users = {user.name for user in context.definitions.users.values()}
        #: The default queue types of the virtual hosts whose properties the document sets.
        self._default_types: dict[str, str] = {}
        #: By virtual host: how many queues the document has that the node lacks.
        self._new_queues: Counter[str] = Counter()
        #: The limits of virtual hosts, by the name of the virtual host.
        self._limits: dict[str, tuple[Parameter, dict[str, int]]] = {}
        #: What bindings may connect, beside what the node has: by virtual host and name the properties, which are
        #: compared if the document declares the thing again.
        self._queues: dict[tuple[str, str], tuple[bool, bool, Table]] = {}
        self._exchanges: dict[tuple[str, str], tuple[str, bool, bool, bool, Table]] = {}

    def read(self, document: Mapping[str, object]) -> Iterator[None]:
        """Read the document in slices: the caller lets others have a turn at each step."""
        for section in self.sections if self._vhost is None else OF_VHOST:
            items = document.get(section) or []
            if not isinstance(items, list):
                self.errors.append(f"{section}: this must be a list")
                continue
            take: Callable[[_Item], None] = getattr(self, f"_take_{section}")
            for index, values in enumerate(items):
                try:
                    take(_Item(values))
                except (_WrongError, DefinitionError, FieldError, AmqpError) as error:
                    reason = error.text if isinstance(error, (DefinitionError, AmqpError)) else str(error)
                    self.errors.append(f"{section}[{index}]: {' '.join(reason.split())}")
                if index % SLICE == SLICE - 1:
                    yield
            yield
        self._place_limits()
        for key in document.keys() - {*self.sections, *FACTS}:
            near = difflib.get_close_matches(key, self.sections, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            self.left_out.append(f"'{key}', which definitions do not have{hint}")

    def forget(self, document: dict[str, Any]) -> Iterator[None]:
        """Empty the document, which has been read, in slices: to free 20,000 queues at once takes 5 ms."""
        while document:
            _, items = document.popitem()
            while isinstance(items, list) and items:
                del items[-SLICE:]
                yield
        for declared in (self._queues, self._exchanges):
            while declared:
                for _ in range(min(SLICE, len(declared))):
                    declared.popitem()
                yield

    def _vhost_of(self, item: _Item) -> str:
        name = self._vhost if self._vhost is not None else item.text("vhost")
        if name not in self._known_vhosts:
            raise _WrongError(f"there is no virtual host '{name}', neither in the node nor in the document")
        return name

    def _user_of(self, item: _Item) -> str:
        name = item.text("user")
        if name not in self._known_users:
            raise _WrongError(f"there is no user '{name}', neither in the node nor in the document")
        return name

    # -- records ---

    def _take_vhosts(self, item: _Item) -> None:
        name = item.name()
        if not name:
            raise _WrongError("a virtual host needs a name")
        # RabbitMQ exports what is set for a virtual host as its metadata, and also imports it without this layer.
        metadata = _Item({**_Item(item.values.get("metadata") or {}).values, **item.values})
        self.vhosts.append(name)
        self._known_vhosts.add(name)
        default = checked_default_type(metadata.text("default_queue_type", ""))
        properties = VhostProperties(name, metadata.text("description", ""), metadata.texts("tags"), default)
        if properties != VhostProperties(name):
            self.records.append(properties)
            self._default_types[name] = default

    def _take_users(self, item: _Item) -> None:
        name = item.name()
        if not name:
            raise _WrongError("a user needs a name")
        password_hash, algorithm = item.text("password_hash", ""), item.text("hashing_algorithm", SHA256)
        if item.values.get("password") is not None:
            if item.values.get("password_hash") is not None:
                raise _WrongError("a user has either 'password' or 'password_hash'")
            password_hash, algorithm = self._hash_of(name, item.text("password"))
        elif password_hash:
            check_hash(password_hash, algorithm)
        limits = user_limits(json_text(item.values.get("limits") or {}))
        self._known_users.add(name)
        self.records.append(User(name, password_hash, algorithm, item.texts("tags"), tuple(sorted(limits.items()))))

    def _hash_of(self, user: str, password: str) -> tuple[str, str]:
        """The hash of a password, and its algorithm: those that the user has if the password is his already."""
        settings, known = self._context.settings, self._context.definitions.user(user)
        if known is not None and is_password(password, known.password_hash, known.hashing_algorithm):
            return known.password_hash, known.hashing_algorithm
        check_password(password, settings.credential_validator_min_length, settings.credential_validator_regexp)
        return hashed(password, self._random_bytes(SALT_BYTES)), SHA256

    def _take_permissions(self, item: _Item) -> None:
        given = item.patterns("configure", "write", "read")
        self.records.append(Permission(self._user_of(item), self._vhost_of(item), *given))

    def _take_topic_permissions(self, item: _Item) -> None:
        given = item.patterns("write", "read")
        self.records.append(TopicPermission(self._user_of(item), self._vhost_of(item), item.text("exchange"), *given))

    def _take_parameters(self, item: _Item) -> None:
        vhost, component, name = self._vhost_of(item), item.text("component"), item.text("name")
        value = item.values.get("value")
        if component == "operator_policy":
            self._policy(vhost, name, _Item(value), True)
        elif (component, name) == VHOST_LIMITS:
            limits = vhost_limits(json_text(value))
            self._limits[vhost] = Parameter(vhost, component, name, json_text(limits)), limits
        else:
            raise _WrongError(f"component {component} not found")

    def _place_limits(self) -> None:
        """Decide when limits become valid: before the queues are declared if they allow more of them than those of the
        node, otherwise afterwards. A limit that is set when there are more queues leaves them, so an export may have
        more queues than its limits allow.
        """
        routing, definitions = self._context.routing, self._context.definitions
        new = self._new_queues
        for vhost in {**new, **self._limits}:
            allowed = definitions.vhost_limit(vhost, MAX_QUEUES)
            if vhost in self._limits:
                record, limits = self._limits[vhost]
                given = limits.get(MAX_QUEUES, -1)
                is_wider = allowed is not None and (given < 0 or given > allowed)
                (self.records if is_wider else self.limits).append(record)
                if is_wider:
                    allowed = given if given >= 0 else None
            if allowed is not None and vhost in new:
                present = sum(row.shard_of is None for row in routing.queues(vhost))
                if present + new[vhost] > allowed:
                    self.errors.append(
                        f"queues: the limit of vhost '{vhost}' is {allowed} queues. It has {present}, and the document "
                        f"has {new[vhost]} more"
                    )

    def _take_global_parameters(self, item: _Item) -> None:
        self.records.append(GlobalParameter(item.text("name"), json_text(item.values.get("value"))))

    def _take_policies(self, item: _Item) -> None:
        self._policy(self._vhost_of(item), item.text("name"), item, False)

    def _policy(self, vhost: str, name: str, item: _Item, is_operator: bool) -> None:
        definition = item.values.get("definition")
        if isinstance(definition, str):
            # RabbitMQ's HTTP API accepts JSON in a text.
            definition = _parsed(definition)
        if isinstance(definition, list) and all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in definition
        ):
            # RabbitMQ's own export of an operator policy, which its import refuses (CM-218).
            definition = dict(definition)
        priority = item.values.get("priority", 0)
        if type(priority) is not int:
            raise _WrongError("'priority' must be a whole number")
        apply_to = item.text("apply-to", "all")
        pattern = item.text("pattern")
        policy = checked_policy(vhost, name, pattern, json_text(definition), apply_to, priority, is_operator)
        check_feature(self._context.definitions, policy)
        self.records.append(policy)

    # -- exchanges, queues and bindings ---

    def _take_exchanges(self, item: _Item) -> None:
        vhost, name, arguments = self._vhost_of(item), item.name(), item.table()
        kind = item.text("type")
        durable, auto_delete, internal = item.flag("durable", True), item.flag("auto_delete"), item.flag("internal")
        if not name:
            raise _WrongError("an exchange needs a name; every virtual host has the default exchange")
        check_exchange_type(kind)
        row, new = self._context.routing.exchange(vhost, name), (kind, durable, auto_delete, internal, arguments)
        if row is not None:
            present = row.type, row.durable, row.auto_delete, row.internal, row.arguments
            self._note_present("exchange", vhost, name, partial(check_exchange_equivalence, vhost, name, present, new))
            return
        old = self._exchanges.get((vhost, name))
        if old is not None:
            check_exchange_equivalence(vhost, name, old, new)
        elif self._is_reserved("exchange", vhost, name):
            return
        else:
            check_exchange_arguments(vhost, name, arguments)
        self._exchanges[vhost, name] = new
        request = to_metadata.declare_exchange(vhost, name, kind, durable, auto_delete, internal, arguments, OPERATOR)
        self.requests.append((f"exchange '{name}' in vhost '{vhost}'", request))

    def _take_queues(self, item: _Item) -> None:
        vhost, name, arguments = self._vhost_of(item), item.name(), item.table()
        if not name:
            raise _WrongError("a queue needs a name")
        durable, auto_delete = item.flag("durable", True), item.flag("auto_delete")
        row = self._context.routing.queue(vhost, name)
        kind = item.values.get("type")
        if not isinstance(kind, str) or not kind:
            default = self._default_types.get(vhost, self._context.definitions.default_queue_type(vhost))
            is_permanent = durable and not auto_delete
            arguments = with_default_type(arguments, default, is_permanent, None if row is None else row.arguments)
        elif kind != "classic" and "x-queue-type" not in _names(arguments):
            arguments = Table((*arguments, ("x-queue-type", "S", kind.encode())))
        new = durable, auto_delete, arguments
        if row is not None:
            present = row.durable, row.auto_delete, row.arguments
            self._note_present("queue", vhost, name, partial(check_queue_equivalence, vhost, name, present, new))
            return
        old = self._queues.get((vhost, name))
        if old is not None:
            check_queue_equivalence(vhost, name, old, new)
        elif self._is_reserved("queue", vhost, name):
            return
        else:
            check_queue_declaration(QueueRow(vhost, name, None, "", durable, auto_delete, None, arguments))
            self._new_queues[vhost] += 1
        self._queues[vhost, name] = new
        request = to_metadata.declare_queue(vhost, name, durable, None, auto_delete, arguments, "", OPERATOR, True)
        self.requests.append((f"queue '{name}' in vhost '{vhost}'", request))

    def _take_bindings(self, item: _Item) -> None:
        vhost, arguments = self._vhost_of(item), item.table()
        source, destination, kind = item.text("source"), item.text("destination"), item.text("destination_type")
        if kind not in ("queue", "exchange"):
            raise _WrongError(f"'destination_type' must be queue or exchange, not '{kind}'")
        if not source or (kind == "exchange" and not destination):
            raise _WrongError("the default exchange has a binding to each queue, and no others")
        for of_kind, name in (("exchange", source), (kind, destination)):
            if not self._exists(of_kind, vhost, name):
                self.left_out.append(
                    f"the binding of {kind} '{destination}' to exchange '{source}' in vhost '{vhost}': "
                    f"there is no {of_kind} '{name}'"
                )
                return
        check_binding(self._exchange_type(vhost, source), arguments)
        request = to_metadata.bind(
            vhost, kind, destination, source, item.name("routing_key", ""), arguments, "", OPERATOR
        )
        self.requests.append((f"binding of {kind} '{destination}' to exchange '{source}' in vhost '{vhost}'", request))

    def _note_present(self, kind: str, vhost: str, name: str, check: Callable[[], None]) -> None:
        """Leave a queue or an exchange as it is that the node has. That it has other properties than in the document is
        an error only for a predefined exchange: the document may be imported at each start, and clients may have
        declared the queue anew since it was written.
        """
        try:
            check()
        except AmqpError as error:
            if name.startswith("amq."):
                raise
            self.left_out.append(f"the {kind} '{name}' in vhost '{vhost}', which stays as it is: {error.text}")

    def _is_reserved(self, kind: str, vhost: str, name: str) -> bool:
        """Whether only a broker may give this name. If so, the queue or exchange is left out, as RabbitMQ does."""
        try:
            check_not_reserved(kind, name)
        except AmqpError as error:
            self.left_out.append(f"the {kind} '{name}' in vhost '{vhost}': {error.text}")
            return True
        return False

    def _exists(self, kind: str, vhost: str, name: str) -> bool:
        if kind == "queue":
            return (vhost, name) in self._queues or self._context.routing.queue(vhost, name) is not None
        # A virtual host of the document that the node lacks will have the predefined exchanges.
        is_known = (vhost, name) in self._exchanges or self._context.routing.exchange(vhost, name) is not None
        return is_known or (vhost in self.vhosts and name in _PREDEFINED)

    def _exchange_type(self, vhost: str, name: str) -> str:
        """The type of an exchange that exists."""
        row = self._context.routing.exchange(vhost, name)
        if row is not None:
            return row.type
        found = self._exchanges.get((vhost, name))
        return _PREDEFINED[name] if found is None else found[0]


#: The predefined exchanges with their types.
_PREDEFINED = {
    **{"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic"},
    **{"amq.headers": "headers", "amq.match": "headers", "amq.rabbitmq.trace": "topic"},
}


def _names(arguments: Table) -> set[str]:
    return {name for name, _, _ in arguments}


class _Item:
    """One thing of a document, whose values are checked as they are read."""

    def __init__(self, values: Any) -> None:
        if not isinstance(values, dict):
            raise _WrongError("this must be an object")
        self.values: dict[str, object] = values

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key)
        if value is None:
            value = default
        if not isinstance(value, str):
            raise _WrongError(f"'{key}' is missing" if value is None else f"'{key}' must be a text")
        if not is_text(value):
            raise _WrongError(f"'{key}' has half of a surrogate pair, which is no character")
        return value

    def name(self, key: str = "name", default: str | None = None) -> str:
        """A text that AMQP can carry as a name or as a routing key."""
        name = self.text(key, default)
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise _WrongError(f"'{key}' is not UTF-8") from None
        if size > NAME_MAX:
            raise _WrongError(f"'{key}' has more than {NAME_MAX} bytes")
        return name

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; RabbitMQ also takes one text with commas."""
        value = self.values.get(key) or []
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list) or not all(isinstance(one, str) and is_text(one) for one in value):
            raise _WrongError(f"'{key}' must be a list of texts")
        return tuple(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise _WrongError(f"'{key}' must be true or false")
        return value

    def patterns(self, *keys: str) -> tuple[str, ...]:
        found = tuple(self.text(key) for key in keys)
        for pattern in found:
            patterns.check(pattern)
        return found

    def table(self) -> Table:
        """The arguments."""
        value = self.values.get("arguments") or {}
        if not isinstance(value, dict):
            raise _WrongError("'arguments' must be an object")
        try:
            table = table_from(value)
            encode_table(table)  # names of arguments may be too long
            return table
        except (TypeError, ValueError, OverflowError) as error:
            raise _WrongError(f"'arguments' has a value that AMQP cannot carry: {error}") from None


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except DefinitionError as error:
        raise _WrongError(f"'definition' is not JSON: {error.text}") from None
