"""Definitions: the checks of commands on records, and what goes with a record."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING

from ....definitions.changes import RecordChange, RecordPut, RecordRemoved
from ....definitions.definitions import Definitions
from ....definitions.errors import DefinitionError
from ....definitions.records import Permission, Record, TopicPermission, User
from .commands import ChangeUser, PutRecords, RemoveRecords

if TYPE_CHECKING:
    from collections.abc import Iterable


def put_records(definitions: Definitions, vhosts: Container[str], command: PutRecords) -> list[RecordPut]:
    """The records that the command adds or changes; equal ones are left out. Raises DefinitionError."""
    users = {record.name for record in command.records if isinstance(record, User)}
    for record in command.records:
        _check(record, definitions, vhosts, users)
        if command.is_new and definitions.record(record.table, record.key) is not None:
            raise DefinitionError("software", f'User "{record.key[0]}" already exists')
    found = [(record, definitions.record(record.table, record.key)) for record in command.records]
    return [RecordPut(record, before) for record, before in found if before != record]


def _check(record: Record, definitions: Definitions, vhosts: Container[str], users: Container[str]) -> None:
    """Raise DefinitionError for a record that names a user or a virtual host that does not exist (AB-165)."""
    if isinstance(record, (Permission, TopicPermission)):
        if record.user not in users and definitions.user(record.user) is None:
            raise no_user(record.user)
        if record.vhost not in vhosts:
            raise DefinitionError("unavailable", f"Virtual host {record.vhost} does not exist")
    elif record.table in ("parameters", "policies", "vhosts") and record.key[0] not in vhosts:
        raise DefinitionError("data", f"Virtual host '{record.key[0]}' does not exist")


def change_user(definitions: Definitions, command: ChangeUser) -> list[RecordPut]:
    user = definitions.user(command.name)
    if user is None:
        raise no_user(command.name)
    changed = replace(user, **dict(command.values))
    return [] if changed == user else [RecordPut(changed, user)]


def remove_records(definitions: Definitions, command: RemoveRecords) -> list[RecordChange]:
    """Remove the records that exist. A user's permissions are removed with the user."""
    gone: list[Record] = []
    for table, key in command.keys:
        record = definitions.record(table, key)
        if isinstance(record, User):
            gone += definitions.of_user(record.name)
        elif record is not None:
            gone.append(record)
    return remove_all(definitions, gone)


def remove_all(definitions: Definitions, records: Iterable[Record]) -> list[RecordChange]:
    """Remove these records, each once."""
    gone = dict.fromkeys(records)
    for record in gone:
        definitions.remove(record)
    return [RecordRemoved(record) for record in gone]


def no_user(name: str) -> DefinitionError:
    return DefinitionError("no_user", f'User "{name}" does not exist')
