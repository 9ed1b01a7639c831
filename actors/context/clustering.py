"""`Clustering`: the classes of the processes by which a node is part of a cluster.

These processes belong to packages that `actors` does not import, so the program that starts the node hands their
classes in. A node without a `Clustering` is alone: it opens no cluster port, starts none of these processes, and its
metadata is ordered by `LocalLog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...runtime.process import Process
    from ..queue.mirroring import Mirroring


class Clustering(NamedTuple):
    """See the module."""

    #: Links the node to the others, and keeps the contract `ToMembership`.
    members: type[Process]
    #: The `Metadata` whose log is agreed with the other members.
    metadata: type[Process]
    #: Whether an operator has decided that this node founds a cluster if it has none (`warren start --found`).
    is_founder: bool = False
    #: Makes replicas of mirrored queues.
    mirroring: Mirroring | None = None
