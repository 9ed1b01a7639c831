"""`Identity`: what a node knows of itself and keeps in its data directory, in the file `cluster.json`.

The id is drawn when the directory is used for the first time by a node that may have a cluster. By it the other members
recognise a directory that is not the one that they list under the node's name, as when its disk was lost or is not
mounted. A node without a data directory draws another id at each start.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...store.data_dir.reset import IDENTITY as FILE
from ...store.data_dir.reset import NEW_IDENTITY as TEMPORARY
from ...store.disk.disk import Disk

#: Bytes of an id, and of a cluster's id.
ID_BYTES = 16

#: The file is smaller than this, whatever the names of nodes are.
_LARGEST = 65_536


class IdentityError(Exception):
    """The file cannot be used. The text names it, the reason and the way out."""


@dataclass(frozen=True, slots=True)
class Identity:
    """See the module.

    node_id      128 random bits in hex digits
    cluster      the id of the cluster; empty if the node has none
    is_founder   whether the node founds or has founded that cluster
    promised     the id of the directory that it lets found the cluster; empty if it has promised nothing
    through      the member through which it has joined; empty if it has joined none
    is_forced    whether an operator has made it the only voter, and the other members are still to be removed
    """

    node_id: str
    cluster: str = ""
    is_founder: bool = False
    promised: str = ""
    through: str = ""
    is_forced: bool = False

    def changed(self, **values: Any) -> Identity:
        """A copy with these fields changed."""
        return replace(self, **values)


def read_identity(disk: Disk, drawn: bytes) -> Identity:
    """What the directory has; a new identity with the id `drawn` is written if it has none.

    Raises IdentityError for a file that is damaged, and OSError.
    """
    if not disk.exists(FILE):
        identity = Identity(drawn.hex())
        write_identity(disk, identity)
        return identity
    file = disk.open(FILE)
    try:
        data = file.read(0, _LARGEST)
    finally:
        file.close()
    try:
        values = json.loads(data)
        identity = Identity(**{key: values[key] for key in asdict(Identity("")) if key in values})
        if not isinstance(identity.node_id, str) or not identity.node_id:
            raise ValueError("it has no node_id")
    except (ValueError, TypeError, KeyError) as error:
        raise IdentityError(
            f"'{disk.full_path(FILE)}' is damaged ({error}): restore it from a copy, or, if other members have the"
            " metadata, remove this node from its cluster with `warren forget_cluster_node`, empty its data directory"
            " and start it again"
        ) from None
    return identity


def encoded(identity: Identity) -> bytes:
    """The content of the file."""
    return json.dumps(asdict(identity), indent=1).encode()


def write_identity(disk: Disk, identity: Identity) -> None:
    """Write all of it or nothing, and return when the disk has it. Raises OSError."""
    if disk.exists(TEMPORARY):
        disk.delete(TEMPORARY)
    file = disk.open(TEMPORARY, create=True)
    try:
        file.append_synced([encoded(identity)])
    finally:
        file.close()
    disk.rename(TEMPORARY, FILE)
    disk.sync_dir("")
