"""`Clustering`: the classes of the processes by which a node is part of a cluster.

These processes belong to rooms that `actors` does not import, so the program that starts the node hands their classes
in. A node without a `Clustering` is alone: it opens no cluster port,
starts none of these processes, and its metadata is ordered by `LocalLog`.
"""

from __future__ import annotations

from typing import NamedTuple

from ...runtime.process import Process


class Clustering(NamedTuple):
    """See the module."""

    #: Links the node to the others.
    members: type[Process]
    #: The `Metadata` whose log is agreed with the other members.
    metadata: type[Process]
