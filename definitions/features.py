"""Features: what a version of warren can do that an older one cannot, and that all nodes must be able to do (CL-26).

A feature is used once it is enabled in the whole cluster, for ever. A new node has every feature of its version enabled
from the beginning. After an upgrade of all nodes an operator enables the new ones; until then any node may go back to
the old version. A node that lacks an enabled feature is refused by the others, and refuses to start.
"""

from __future__ import annotations

#: The features of this version and what they are, for operators. An entry is never removed.
FEATURES: dict[str, str] = {
    "metadata_log": "Nodes agree on the metadata by a log of commands of format 1, over links of version 1",
    "mirrored_queues": "Queues may have replicas on several nodes, which the nodes agree on",
    "replicated_quorum_queues": "Quorum queues have replicas on several nodes",
    "replicated_streams": "Streams have replicas on several nodes",
    "promote_on_shutdown": "Nodes know of each run that has ended whether it was stopped in order",
}

#: The feature without which no queue is mirrored: the nodes must know what the group of a queue is.
MIRRORED_QUEUES = "mirrored_queues"

#: The feature without which a quorum queue is on one node: its mirrors must know how often messages were returned.
REPLICATED_QUORUM_QUEUES = "replicated_quorum_queues"

#: The feature without which a stream is on one node: its mirrors must know what segments are.
REPLICATED_STREAMS = "replicated_streams"

#: The feature without which a node that is stopped in order counts as one that has failed.
PROMOTE_ON_SHUTDOWN = "promote_on_shutdown"
