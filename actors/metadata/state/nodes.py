"""Nodes: who belongs to the cluster, which of them run, and what goes with a node that does not (CL-33, CL-42)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ....definitions.changes import RecordPut, RecordRemoved
from ....definitions.definitions import Definitions
from ....definitions.errors import DefinitionError
from ....definitions.records import EnabledFeature
from ....routing.changes import Change as RowChange
from ....routing.changes import QueuePut
from ....routing.rows import QueueRow, QueueState
from ....routing.vhost_rows import VhostRows
from .commands import AddNode, ChangeNodes, EnableFeatures, RemoveNode, SetMaintenance
from .effects import Change
from .groups import in_slices, node_removed, nodes_gone, nodes_up


def add_node(definitions: Definitions, vhosts: Collection[VhostRows], command: AddNode) -> list[RecordPut]:
    """The record to put.

    Raises DefinitionError if another node has the name, or if a node that has queues is to become a witness.
    """
    wanted, found = command.node, definitions.node(command.node.name)
    if found is None:
        number = 1 + max((node.number for node in definitions.nodes.values()), default=0)
        return [RecordPut(replace(wanted, number=number))]
    if found.node_id != wanted.node_id:
        raise DefinitionError(
            "unavailable",
            f"{wanted.name} is a member of this cluster with another data directory. If that directory is lost, run "
            f"'warren forget_cluster_node {wanted.name}' on a running node, then start this node again. "
            "If it is only not mounted, mount it.",
        )
    if wanted.role == "witness" and found.role != "witness":
        _check_may_be_witness(definitions, vhosts, found.name)
    changed = replace(wanted, number=found.number, incarnation=found.incarnation, in_maintenance=found.in_maintenance)
    return [] if changed == found else [RecordPut(changed, found)]


def _check_may_be_witness(definitions: Definitions, vhosts: Collection[VhostRows], name: str) -> None:
    """Raise DefinitionError if the node has queues, or if no other node may have any."""
    at_home = (row for rows in vhosts for row in rows.queues.values() if name in (row.node, *row.replicas))
    queues = [f"'{row.name}' in vhost '{row.vhost}'" for row in at_home]
    if queues:
        raise DefinitionError(
            "unavailable",
            f"{name} cannot become a witness while {len(queues)} queues are at home there: {min(queues)}"
            f"{' and others' if len(queues) > 1 else ''}. Delete them first",
        )
    if not _has_data_node(definitions, name):
        raise DefinitionError(
            "unavailable", f"{name} cannot become a witness, because it is the last node of the cluster that has queues"
        )


def _has_data_node(definitions: Definitions, without: str) -> bool:
    return any(node.role == "data" and node.name != without for node in definitions.nodes.values())


def enable_features(definitions: Definitions, command: EnableFeatures) -> list[RecordPut]:
    """The records to put. Raises DefinitionError if a member's version lacks one of the features."""
    wanted = [name for name in command.names if (name,) not in definitions.features]
    for name in wanted:
        without = sorted(node.name for node in definitions.nodes.values() if name not in node.features)
        if without:
            raise DefinitionError(
                "unavailable",
                f"the feature flag '{name}' is not supported by {', '.join(without)}. Upgrade these nodes and start "
                "them, or remove them from the cluster",
            )
    return [RecordPut(EnabledFeature(name)) for name in wanted]


def remove_node(
    definitions: Definitions, vhosts: Collection[VhostRows], command: RemoveNode
) -> Iterator[Sequence[Change]]:
    """Remove the node with all queues whose messages no other node has, in slices."""
    found = definitions.node(command.name)
    if found is None:
        return
    if len(definitions.nodes) == 1:
        raise DefinitionError("unavailable", f"{command.name} is the last node of the cluster, and cannot be removed")
    if not _has_data_node(definitions, command.name):
        raise DefinitionError(
            "unavailable",
            f"{command.name} is the last node of the cluster that has queues, and cannot be removed: the others are"
            " witnesses",
        )
    definitions.remove(found)
    yield [RecordRemoved(found)]
    for rows in list(vhosts):
        yield from node_removed(definitions, rows, command.name)
        yield from _remove_queues(rows, [row for row in _plain(rows) if row.is_lost_with((command.name,))])


def _plain(rows: VhostRows) -> list[QueueRow]:
    """The queues that are not mirrored."""
    return [row for row in rows.queues.values() if row.group is None]


def set_maintenance(definitions: Definitions, command: SetMaintenance) -> list[Change]:
    """See `SetMaintenance`. Raises DefinitionError if the node is no member."""
    if definitions.node(command.name) is None:
        raise DefinitionError("unavailable", f"{command.name} is no member of this cluster")
    return _put(definitions, command.name, in_maintenance=command.is_on)


def change_nodes(
    definitions: Definitions, vhosts: Collection[VhostRows], command: ChangeNodes
) -> Iterator[Sequence[Change]]:
    """See `ChangeNodes`. What changes, in slices.

    Raises DefinitionError if a node that is up is no member, or another node has its name.
    """
    for node in command.up:
        known = definitions.node(node.name)
        if known is None or known.node_id != node.node_id:
            raise DefinitionError("unavailable", f"{node.name} is no member of this cluster")
    incarnations = dict(command.down)
    gone: dict[str, None] = {}
    for name, incarnation in incarnations.items():
        found = definitions.node(name)
        if found is not None and found.incarnation == incarnation:
            gone[name] = None
    started = {node.name: node for node in command.up}
    for name, node in started.items():
        found = definitions.node(name)
        if found is not None and found.incarnation != node.incarnation:
            gone[name] = None
    vhosts = list(vhosts)
    yield [change for name in gone for change in _put(definitions, name, incarnation="")]
    if gone:
        for rows in vhosts:
            yield from _nodes_gone(rows, gone)
            yield from nodes_gone(definitions, rows, gone, command.stopped)
    changes: list[Change] = []
    for name, node in started.items():
        changes += _put(
            definitions,
            name,
            incarnation=node.incarnation,
            address=node.address,
            build=node.build,
            features=node.features,
            in_maintenance=False,
        )
    yield changes
    if not any(node.incarnation for node in definitions.nodes.values()):
        for rows in vhosts:
            yield rows.remove_transient()
    for rows in vhosts:
        yield from _nodes_up(rows, started)
        yield from nodes_up(definitions, rows, started)


def _put(definitions: Definitions, name: str, **values: object) -> list[Change]:
    found = definitions.node(name)
    assert found is not None
    changed = replace(found, **values)  # type: ignore[arg-type]
    if changed == found:
        return []
    definitions.put(changed)
    return [RecordPut(changed, found)]


def _nodes_gone(rows: VhostRows, gone: Collection[str]) -> Iterator[list[RowChange]]:
    """The transient queues of these nodes go; nobody can use their durable ones until the nodes are back."""
    homeless = [row for row in _plain(rows) if row.node in gone]
    yield from _remove_queues(rows, [row for row in homeless if not row.durable])
    yield from _set_states(rows, [row for row in homeless if row.durable], "down")


def _nodes_up(rows: VhostRows, up: Collection[str]) -> Iterator[list[RowChange]]:
    down = [row for row in _plain(rows) if row.node in up and row.state != "running"]
    return _set_states(rows, down, "running")


def _remove_queues(rows: VhostRows, queues: Collection[QueueRow]) -> Iterator[list[RowChange]]:
    return in_slices(queues, lambda row: rows.remove_queue(row.name) if row.name in rows.queues else [])


def _set_states(rows: VhostRows, queues: Collection[QueueRow], state: QueueState) -> Iterator[list[RowChange]]:
    def set_state(row: QueueRow) -> list[RowChange]:
        if row.state == state:
            return []
        changed = replace(row, state=state)
        rows.put_queue(changed)
        return [QueuePut(changed)]

    return in_slices(queues, set_state)
