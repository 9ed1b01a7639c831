"""`force_boot`: makes the node of a data directory the only voter of its cluster, when the majority is gone for good.

Nothing else may use the directory meanwhile. All entries of this node's log are kept, even those that are not known to
be committed: they may have been, and the lost members can no longer be asked. What only other members have is lost. The
cluster gets a new id, so that a member that was not lost after all cannot come back with another history (CL-48).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...store.data_dir.data_dir import DataDir
from ...store.data_dir.log_tables import LogFound, LoggedEntry, LogStart, LogWrite
from ...store.data_dir.metadata_store import MetadataError, MetadataStore, MetadataWriteError, Row
from ...store.disk.real_disk import RealDisk
from ..consensus.log import EMPTY, MEMBERS
from ..consensus.membership import RaftMembers
from .identity import IdentityError, read_identity, write_identity


class ForceBootError(Exception):
    """The node cannot be made the only voter. The text has the reason and the way out."""


class Outlook(NamedTuple):
    """What will become of the cluster.

    node      the node that stays
    others    the members that are removed
    applied   the last entry of the log whose effects the directory has
    last      the last entry of the log
    queues    queues whose messages only other members have, as (virtual host, name): they are deleted
    """

    node: str
    others: list[str]
    applied: int
    last: int
    queues: list[tuple[str, str]]


def outlook(path: str) -> Outlook:
    """What `force_boot` would do. The caller holds the claim on the directory. Raises ForceBootError."""
    store, found = _opened(path)
    try:
        names = {row.fields["node_id"]: row.key[0] for row in _rows(store, "nodes")}
        own = read_identity(RealDisk(path), b"").node_id
        node = names.get(own)
        if node is None:
            raise ForceBootError(f"the metadata in '{path}' do not list the node of this directory as a member")
        others = sorted(name for name in names.values() if name != node)
        queues = [(row.key[0], row.key[1]) for row in _rows(store, "queues") if _holders(row) <= {*others}]
    except (IdentityError, OSError) as error:
        raise ForceBootError(str(error)) from None
    finally:
        store.close()
    last = found.entries[-1][0] if found.entries else found.applied
    return Outlook(node, others, found.applied, last, sorted(queues))


def _holders(row: Row) -> set[str]:
    """The members that have all messages of the queue in this row of the store."""
    group = row.fields.get("group")
    return {row.fields.get("node", "")} if group is None else {member[0] for member in group["ring"]}


def force_boot(path: str, node: str, cluster: str) -> None:
    """Make `node` the only voter, of a cluster with the new id `cluster`. Raises ForceBootError.

    The disk gets the new id first. A crash before it gets the log leaves a node that waits for a majority of a cluster
    that it is no member of, until it is forced again. In the other order it would decide alone, and the others would
    take it for a member of their cluster.
    """
    store, found = _opened(path)
    try:
        disk = RealDisk(path)
        identity = read_identity(disk, b"").changed(cluster=cluster, is_founder=True, is_forced=True)
        write_identity(disk, identity)
        store.apply([], sole_voter(found, node))
    except MetadataWriteError as error:
        raise ForceBootError(
            f"{node} has left its cluster, but its log could not be written: {error}. Free space on the disk of"
            f" '{path}', and repeat the command"
        ) from None
    except (MetadataError, IdentityError, OSError) as error:
        raise ForceBootError(str(error)) from None
    finally:
        store.close()


def sole_voter(found: LogFound, node: str) -> LogWrite:
    """The write that makes `node` the only voter, from what the disk has.

    The log begins after the last applied entry, with `node` as its only member. Later entries are kept, but those that
    change the members are emptied.
    """
    assert found.start is not None, "a member has a log"
    terms = {index: term for index, term, _, _ in found.entries} | {found.start.index: found.start.term}
    later: Sequence[LoggedEntry] = [
        (index, term, EMPTY, b"") if kind == MEMBERS else (index, term, kind, data)
        for index, term, kind, data in found.entries
        if index > found.applied
    ]
    start = LogStart(found.applied, terms[found.applied], RaftMembers((node,)).packed())
    return LogWrite(ballot=(found.ballot[0] + 1, None), entries=later, start=start)


def _opened(path: str) -> tuple[MetadataStore, LogFound]:
    try:
        store = MetadataStore(DataDir(path).metadata)
    except MetadataError as error:
        raise ForceBootError(str(error)) from None
    try:
        found = store.load_log()
    except MetadataError as error:
        store.close()
        raise ForceBootError(str(error)) from None
    if found is None or found.start is None:
        store.close()
        raise ForceBootError(f"the node of '{path}' is no member of a cluster: it starts alone without being forced")
    return store, found


def _rows(store: MetadataStore, table: str) -> Iterator[Row]:
    for row in store.read(table):
        if isinstance(row, MetadataError):
            raise ForceBootError(str(row))
        yield row
