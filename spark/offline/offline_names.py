"""The virtual hosts of a data directory and their queues: from its metadata, or without them (`metadata=ignore`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...amqp.fields import decode_table_at, table_to_dict
from ...store.data_dir.data_dir import DataDir, is_vhost_id, queue_number
from ...store.data_dir.metadata_store import MetadataError, MetadataStore
from ...store.data_dir.vhost_dir import LEVEL_BITS, QUEUES, queue_numbers
from ...store.disk.read_only_disk import ReadOnlyDisk
from ..errors import unusable_metadata, wrong_options
from ..options import DirectoryOptions
from .offline_journal import replay


class OfflineQueue(NamedTuple):
    """A durable queue. Without metadata its id is empty, and how it was declared is None.

    arguments    of its declaration, as JSON
    """

    name: str
    id: str = ""
    is_durable: bool | None = None
    arguments: str | None = None


class OfflineVhost(NamedTuple):
    """A virtual host, and its queues by their numbers (`queue_number`). The directory need not exist."""

    name: str
    directory: str
    queues: Mapping[int, OfflineQueue]


def offline_vhosts(path: str, options: DirectoryOptions) -> list[OfflineVhost]:
    """The virtual hosts and queues that the options name, or all, by name. Raises SparkSourceError E4 and E11."""
    found = _of_metadata(path) if options.needs_metadata else _of_files(path)
    names = sorted(vhost.name for vhost in found)
    if options.vhost is not None and options.vhost not in names and names:
        raise wrong_options(f"there is no virtual host '{options.vhost}' in '{path}'; it has {', '.join(names)}")
    return [
        vhost._replace(queues={n: queue for n, queue in vhost.queues.items() if options.queue in (None, queue.name)})
        for vhost in sorted(found, key=lambda vhost: vhost.name)
        if options.vhost in (None, vhost.name)
    ]


def metadata_tables(path: str) -> Mapping[str, Any]:
    """The metadata, which list the virtual hosts and queues; empty if there are none. Raises SparkSourceError E11 if
    they are damaged.
    """
    directory = DataDir(path)
    if not os.path.isdir(directory.metadata):
        return {}
    try:
        store = MetadataStore(directory.metadata, is_read_only=True)
        try:
            return store.load()
        finally:
            store.close()
    except MetadataError as error:
        raise unusable_metadata(str(error)) from error


def _of_metadata(path: str) -> list[OfflineVhost]:
    tables = metadata_tables(path)
    queues: dict[str, dict[int, OfflineQueue]] = {str(row.key[0]): {} for row in tables.get("vhosts", ())}
    for row in tables.get("queues", ()):
        vhost, name = row.key
        number = queue_number(row.fields["queue_id"])
        is_durable = row.fields.get("durable", True)
        arguments = _arguments(row.fields.get("arguments"))
        queues.setdefault(vhost, {})[number] = OfflineQueue(
            str(name), str(row.fields["queue_id"]), is_durable, arguments
        )
    return [OfflineVhost(name, DataDir(path).vhost(name), found) for name, found in queues.items()]


def _arguments(encoded: Any) -> str:
    """The arguments of a declaration as JSON."""
    if not isinstance(encoded, bytes):
        return "{}"
    return json.dumps(table_to_dict(decode_table_at(encoded, 0)[0]), default=str, sort_keys=True)


def _of_files(path: str) -> list[OfflineVhost]:
    """The virtual hosts whose directories are there, and the queues that have files or records in the journal."""
    found = []
    for name in ReadOnlyDisk(path).list("vhosts"):
        if is_vhost_id(name):
            directory = f"{path}/vhosts/{name}"
            disk = ReadOnlyDisk(directory)
            levels = queue_numbers(disk) if QUEUES in disk.list("") else set()
            levels |= {level for level, replayed in replay(directory).queues.items() if not replayed.is_empty}
            numbers = sorted({level >> LEVEL_BITS for level in levels})
            queues = {number: OfflineQueue(f"#{number:x}") for number in numbers}
            found.append(OfflineVhost(_written_name(disk) or f"#{name}", directory, queues))
    return found


def _written_name(disk: ReadOnlyDisk) -> str:
    """The name that the broker has written into the directory for people; empty if it is not there."""
    try:
        file = disk.open("name")
    except FileNotFoundError:
        return ""
    try:
        return file.read(0, file.size()).decode("utf-8", "replace")
    finally:
        file.close()
