"""Feature flags: abilities of newer versions that all nodes of a cluster must have before any node uses them (CL-26).

An operator enables a feature for the whole cluster, after an upgrade of all nodes; until then any node may go back to
the old version. A feature cannot be disabled again. A new cluster has every feature of its version enabled. A node
whose version lacks an enabled feature is refused by the others, and refuses to start.
"""

from __future__ import annotations

#: The features of this version with their descriptions for operators. An entry is never removed.
FEATURES: dict[str, str] = {
    "metadata_log": "Nodes agree on the metadata by a log of commands of format 1, over links of version 1",
    "mirrored_queues": "Queues may have replicas on several nodes, which the nodes agree on",
    "replicated_quorum_queues": "Quorum queues have replicas on several nodes",
    "replicated_streams": "Streams have replicas on several nodes",
    "pace_groups": "Queues on several nodes may share the rate of a pace group",
    "promote_on_shutdown": "Nodes know of each run that has ended whether it was stopped in order",
    "mirrored_deduplication": "Queues that deduplicate may have replicas on several nodes",
    "expiry_columns": "Messages that are published to a mirrored queue together may expire at different times",
    "live_homes": "A queue is declared only at a node that runs",
    "policies_of_types": "Policies may apply to the queues of one type",
}

#: Without this feature no queue is mirrored: older nodes cannot read the group in the row of a queue.
MIRRORED_QUEUES = "mirrored_queues"

#: Without this feature a quorum queue is on one node: older mirrors do not record how often messages were returned.
REPLICATED_QUORUM_QUEUES = "replicated_quorum_queues"

#: Without this feature a stream is on one node: older mirrors cannot read the segments of streams.
REPLICATED_STREAMS = "replicated_streams"

#: A node whose build lacks this feature holds no clock of a pace group.
PACE_GROUPS = "pace_groups"

#: Without this feature a node that is stopped in order counts as one that has failed.
PROMOTE_ON_SHUTDOWN = "promote_on_shutdown"

#: Without this feature a queue that deduplicates is on one node: older mirrors do not learn which ids it has had.
MIRRORED_DEDUPLICATION = "mirrored_deduplication"

#: Without this feature a mirrored queue takes messages with different expirations one after the other: older mirrors
#: cannot read a run of them.
EXPIRY_COLUMNS = "expiry_columns"

#: Without this feature a queue is declared although its home has ended meanwhile, as older nodes do it.
LIVE_HOMES = "live_homes"

#: Without this feature no policy is for the queues of one type: older nodes would apply it to all queues.
POLICIES_OF_TYPES = "policies_of_types"
