"""Export and import of definitions: everything that a node has but messages, as RabbitMQ's JSON (CM-215 to CM-219).

An import is read as a whole before the first change (`document.py`): a document with an error changes nothing. If the
disk refuses a write in the middle of an import, the changes before it stay, and the document can be imported again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from .....amqp.errors import AmqpError
from .....routing.rows import QueueRow
from .....version import __version__
from ....contracts.info_items import InfoItems
from ....contracts.metadata import to_metadata
from ....metadata.state.commands import PutRecords
from ..observing.listings import SLICE
from ..plain_values import plain_table
from ..registry import OperationError, Operator, Rows, check_vhost, operation
from .changing import change
from .document import Document
from .policies import OPERATOR_POLICY, rule_of

log = logging.getLogger("warren.node")

#: The log has at most this many lines about what an import has left out.
LOGGED = 20


@operation()
async def export_definitions(operator: Operator) -> AsyncIterator[Rows]:
    """The definitions as rows with `section` and `item`, such as `queues` and one queue."""
    rows: Rows = []
    for section, item in _records(operator):
        rows.append({"section": section, "item": item})
        if len(rows) == SLICE:
            yield rows
            rows = []
            await operator.process.next_turn()
    yield rows
    for vhost in operator.context.routing.vhosts():
        for start in range(0, len(queues := operator.context.routing.queues(vhost)), SLICE):
            yield [
                {"section": "queues", "item": _queue(row)}
                for row in queues[start : start + SLICE]
                if row.exclusive_owner is None and row.shard_of is None
            ]
            await operator.process.next_turn()
        for kind in ("exchanges", "bindings"):
            found = await operator.process.ask(operator.context.metadata, to_metadata.list(kind, vhost))
            shown = _exchange if kind == "exchanges" else _binding
            for start in range(0, len(found), SLICE):
                items = [shown(items) for items in found[start : start + SLICE]]
                yield [{"section": kind, "item": item} for item in items if item is not None]
                await operator.process.next_turn()


def _records(operator: Operator) -> Iterator[tuple[str, Any]]:
    definitions, routing = operator.context.definitions, operator.context.routing
    yield from (
        *(("rabbit_version", "3.10.8"), ("rabbitmq_version", "3.10.8")),
        *(("product_name", "warren"), ("product_version", __version__)),
    )
    for user in definitions.users.values():
        yield (
            "users",
            {
                "name": user.name,
                "password_hash": user.password_hash,
                "hashing_algorithm": user.hashing_algorithm,
                "tags": list(user.tags),
                "limits": dict(user.limits),
            },
        )
    for name in routing.vhosts():
        found = definitions.vhost_properties(name)
        metadata: dict[str, object] = {"description": found.description, "tags": list(found.tags)}
        if found.default_queue_type:
            metadata["default_queue_type"] = found.default_queue_type
        yield "vhosts", {"name": name, "metadata": metadata, "limits": []}
    for permission in definitions.permissions.values():
        yield (
            "permissions",
            {
                "user": permission.user,
                "vhost": permission.vhost,
                "configure": permission.configure,
                "write": permission.write,
                "read": permission.read,
            },
        )
    for topic in definitions.topic_permissions.values():
        yield (
            "topic_permissions",
            {
                "user": topic.user,
                "vhost": topic.vhost,
                "exchange": topic.exchange,
                "write": topic.write,
                "read": topic.read,
            },
        )
    for parameter in definitions.parameters.values():
        yield (
            "parameters",
            {
                "vhost": parameter.vhost,
                "component": parameter.component,
                "name": parameter.name,
                "value": json.loads(parameter.value),
            },
        )
    for each in definitions.global_parameters.values():
        yield "global_parameters", {"name": each.name, "value": json.loads(each.value)}
    for policy in definitions.policies.values():
        rule = rule_of(policy)
        if policy.is_operator:
            item = {"vhost": policy.vhost, "component": OPERATOR_POLICY, "name": policy.name, "value": rule}
            yield "parameters", item
        else:
            yield "policies", {"vhost": policy.vhost, "name": policy.name, **rule}


def _queue(row: QueueRow) -> dict[str, object]:
    return {
        "name": row.name,
        "vhost": row.vhost,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "arguments": plain_table(row.arguments),
        "type": row.type,
    }


def _exchange(items: InfoItems) -> dict[str, object] | None:
    """An exchange that a client declared; the predefined ones are in every virtual host."""
    if not items["name"] or items["name"].startswith("amq."):
        return None
    kept = ("name", "vhost", "type", "durable", "auto_delete", "internal")
    return {**{name: items[name] for name in kept}, "arguments": plain_table(items["arguments"])}


def _binding(items: InfoItems) -> dict[str, object] | None:
    """A binding that a client made; those to the default exchange come with the queues."""
    if not items["source_name"]:
        return None
    return {
        "source": items["source_name"],
        "vhost": items["vhost"],
        "destination": items["destination_name"],
        "destination_type": items["destination_kind"],
        "routing_key": items["routing_key"],
        "arguments": plain_table(items["arguments"]),
    }


@operation()
async def import_definitions(
    operator: Operator, *, document: InfoItems, vhost: str | None = None, only_check: bool = False
) -> dict[str, object]:
    """Create what a document has and the node lacks; replace users, permissions, policies and the like.

    With `vhost` everything in the document that is in a virtual host belongs to this one, and nothing else is imported.
    Returns how many things of each kind the document has, and as `left_out` a line for each binding of which an end
    does not exist, for each queue and each exchange that cannot be declared, and for each unknown section.
    """
    if vhost is not None:
        check_vhost(operator, vhost)
    read = Document(operator.context, vhost, operator.process.random_bytes)
    for _ in read.read(document):
        await operator.process.next_turn()
    if read.errors:
        raise OperationError("data", "The definitions are wrong, and nothing of them is in force:", tuple(read.errors))
    counts = {section: len(document.get(section) or ()) for section in read.sections if section in document}
    for _ in read.forget(document):
        await operator.process.next_turn()
    if not only_check:
        await _apply(operator, read)
        for line in read.left_out[:LOGGED]:
            log.warning("an import of definitions has left out %s", line)
        if len(read.left_out) > LOGGED:
            log.warning("the import has left out %d more", len(read.left_out) - LOGGED)
    return {**counts, "left_out": read.left_out}


async def load_definitions(operator: Operator, path: str) -> None:
    """Import the definitions in this file, or in each file of this directory whose name ends in `.json`, by name
    (CM-220). Raises OperationError at the first file that is wrong, of which nothing is in force then.
    """
    for name, text in await operator.process.run_blocking(_read_files, path):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OperationError("data", f"setting 'load_definitions': {name} is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise OperationError("data", f"setting 'load_definitions': {name} has no JSON object")
        try:
            await import_definitions(operator, document=document)
        except OperationError as error:
            raise OperationError(
                error.kind, f"setting 'load_definitions': {name}: {error.text}", error.details
            ) from None
        log.info("the definitions in %s are loaded", name)


def _read_files(path: str) -> list[tuple[str, bytes]]:
    """The names and contents of the files. Raises OperationError if one cannot be read."""
    try:
        found = sorted(Path(path).glob("*.json")) if Path(path).is_dir() else [Path(path)]
        return [(str(each), each.read_bytes()) for each in found]
    except OSError as error:
        raise OperationError("unavailable", f"setting 'load_definitions': {error}") from None


async def _apply(operator: Operator, read: Document) -> None:
    metadata = operator.context.metadata
    for name in read.vhosts:
        await operator.process.ask(metadata, to_metadata.create_vhost(name))
    if read.records:
        await change(operator, PutRecords(tuple(read.records)))
    requests = read.requests
    requests.reverse()
    while requests:
        phrase, request = requests.pop()  # freed one by one, because 20,000 at once take 5 ms
        try:
            await operator.process.ask(metadata, request)
        except AmqpError as error:
            text = f"The import stopped at {phrase}: {error.text}. What comes before it in the document is in force."
            raise OperationError("unavailable", text) from None
    if read.limits:
        await change(operator, PutRecords(tuple(read.limits)))
