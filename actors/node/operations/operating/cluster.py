"""Operations about the cluster that the node belongs to (CM-61, CM-66)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from .....definitions.errors import DefinitionError
from .....routing.rows import QueueRow
from .....runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from .....store.data_dir import reset as data_reset
from ....contracts.info_items import InfoItems
from ....contracts.membership import to_membership
from ....contracts.metadata import to_metadata
from ....contracts.node import to_node
from ....metadata.state.commands import RemoveNode
from ....metadata.state.replica_rules import is_short
from ..columns import LINKS
from ..observing.status import status
from ..registry import OperationError, Operator, Rows, operation
from .features import feature_rows

#: Seconds that the members may take to agree on a change.
CHANGE_SECONDS = 15.0

#: Seconds that it may take to reach a cluster and to be added to it.
JOIN_SECONDS = 60.0

#: How many rows of queues are looked at in one turn.
ROWS_AT_ONCE = 500

#: The refusal of a node without a cluster port.
NO_PORT = (
    "this node has no port for other nodes. Set cluster_port in its configuration file, such as `cluster_port = 25672`,"
    " and start it again"
)

#: Seconds in which the cluster declares a member down whose links have ended.
DOWN_SECONDS = 10.0


@operation(while_booting=True)
async def cluster_status(operator: Operator) -> dict[str, object]:
    """The cluster as the node sees it.

    `membership` is None on a node that is alone; `nodes` has the status of each node that answers, by name.
    """
    process, members = operator.process, operator.context.members
    own = await status(operator)
    nodes = {operator.context.node_name: own}
    features = [row for row in feature_rows(operator.context) if row["state"] == "enabled"]
    if members is None:
        return {"membership": None, "nodes": nodes, "feature_flags": features}
    membership = await process.ask(members, to_membership.membership())
    nodes |= await process.ask(members, to_membership.statuses())
    listed = [{**member, **_of_member(nodes, member["node"])} for member in membership["members"]]
    short_queues = await _count_short_queues(operator)
    return {
        "membership": {**membership, "members": listed, "short_queues": short_queues},
        "nodes": nodes,
        "feature_flags": features,
    }


async def _count_short_queues(operator: Operator) -> int:
    """How many queues refuse publishes that await a confirm, because too few replicas are in sync (CL-123)."""
    context, found = operator.context, 0
    for vhost in context.routing.vhosts():
        rows = context.routing.queues(vhost)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            slice_ = rows[start : start + ROWS_AT_ONCE]
            found += sum([row.state == "running" and is_short(context.definitions, row) for row in slice_])
            await operator.process.next_turn()
    return found


def _of_member(nodes: Mapping[str, InfoItems], name: str) -> dict[str, object]:
    """The status that a member has returned: how far it has applied the log, and for how long it may act.

    All values are None if it has not answered. `lag` is how many committed entries it has not applied.
    """
    known: InfoItems | None = nodes.get(name, {}).get("cluster")
    if known is None:
        return {"stage": None, "applied": None, "lag": None, "lease": None}
    committed = max(facts["cluster"]["committed"] for facts in nodes.values() if facts.get("cluster") is not None)
    lag = max(0, committed - known["applied"])
    return {"stage": known["stage"], "applied": known["applied"], "lag": lag, "lease": known["lease"]}


@operation(while_booting=True)
async def links(operator: Operator, *, columns: list[str] | None = None) -> AsyncIterator[Rows]:
    """A row for each lane of the links to other nodes; a node that is alone has none."""
    chosen = LINKS.chosen(columns or [])
    members = operator.context.members
    if members is not None:
        rows: Sequence[Mapping[str, object]] = await operator.process.ask(members, to_membership.links())
        yield [{name: "" if row[name] is None else row[name] for name in chosen} for row in rows]


@operation(while_booting=True)
async def join_cluster(operator: Operator, *, node: str, role: str | None = None) -> str:
    """Make this node, whose app is stopped, a member of the cluster of `node` (CM-60).

    Returns a text if it is a member already. Otherwise another run of the node begins, and this session ends.
    """
    await _check_stopped(operator)
    context = operator.context
    if node == context.node_name:
        raise OperationError("software", f"Error: cannot cluster node with itself: {node}")
    if context.members is None:
        raise OperationError("unavailable", NO_PORT)
    wanted = role or context.settings.cluster_role
    text = await operator.process.ask(context.members, to_membership.join(node, wanted), JOIN_SECONDS)
    if not text:
        await operator.process.ask(operator.node, to_node.begin_stopped())
    return text


@operation(while_booting=True)
async def change_cluster_node_type(operator: Operator, *, role: str) -> bool:
    """Make this node, whose app is stopped, one with queues (`data`) or a `witness` (CM-63)."""
    await _check_stopped(operator)
    if operator.context.members is None:
        raise OperationError("unavailable", "Non-clustered nodes can only be disc nodes.")
    return await operator.process.ask(operator.context.members, to_membership.change_role(role), JOIN_SECONDS)


@operation(while_booting=True)
async def reset(operator: Operator, *, force: bool = False) -> bool:
    """Take this node, whose app is stopped, out of its cluster, and delete everything that it has (CM-50, CM-51).

    With `force` the other members are not asked to remove it. Another run of the node begins, and this session ends.
    """
    await _check_stopped(operator)
    process, context = operator.process, operator.context
    if context.members is not None and not force:
        await process.ask(context.members, to_membership.leave())
    path = context.settings.data_dir
    if path is not None:
        try:
            await process.run_blocking(data_reset.request, path)
        except OSError as error:
            raise OperationError("unavailable", f"the node cannot write to '{path}': {error.strerror}") from None
    await process.ask(operator.node, to_node.begin_stopped())
    return True


async def _check_stopped(operator: Operator) -> None:
    if await operator.process.ask(operator.node, to_node.app_state()) != "stopped":
        raise OperationError(
            "usage",
            "this command requires the 'warren' app to be stopped on the target node. Stop it with 'warren stop_app'.",
        )


@operation()
async def await_online_nodes(operator: Operator, *, count: int, timeout: float = 300.0) -> bool:
    """Wait until `count` members of the cluster run (CM-46)."""
    process, context = operator.process, operator.context
    deadline = process.now() + timeout
    while _running(operator) < count:
        if process.now() > deadline:
            raise OperationError(
                "software",
                f"Error: timed out while waiting. Not enough nodes joined {context.node_name}'s cluster.",
            )
        await process.sleep(0.1)
    return True


def _running(operator: Operator) -> int:
    nodes = operator.context.definitions.nodes.values()
    return sum(bool(node.incarnation) for node in nodes) if nodes else 1


@operation()
async def forget_cluster_node(operator: Operator, *, node: str, accept_loss: bool = False) -> list[str]:
    """Remove a member that does not run (CM-61). Returns the queues that go with it, as `queue in vhost`."""
    context = operator.context
    found = context.definitions.node(node)
    if found is None:
        raise OperationError("unavailable", "{:not_a_cluster_node, 'The node selected is not in the cluster.'}")
    if not await _is_down(operator, node):
        raise OperationError(
            "unavailable",
            f"RabbitMQ on node {node} must be stopped with 'warren -n {node} stop_app' before it can be removed",
        )
    lost = await operator.process.in_steps(_shown, [row for row in _queues(operator) if row.is_lost_with((node,))])
    if lost and not accept_loss:
        raise OperationError(
            "unavailable",
            f"{len(lost)} durable queues are at home on {node}, and no other node has their messages. They would be"
            " deleted: repeat the command with --accept-loss if that is wanted",
            tuple(lost),
        )
    try:
        await operator.process.ask(context.metadata, to_metadata.change_definitions(RemoveNode(node)), CHANGE_SECONDS)
    except DefinitionError as error:
        raise OperationError("unavailable", str(error)) from None
    except (ProcessDown, ProcessTimeout, ProcessError) as error:
        raise OperationError("unavailable", f"the members have not agreed to remove {node}: {error}") from None
    return lost


async def _is_down(operator: Operator, node: str) -> bool:
    """Whether the cluster counts this member as down. One that has just stopped is given the time until it does."""
    process, context = operator.process, operator.context
    deadline = process.now() + DOWN_SECONDS
    while (found := context.definitions.node(node)) is not None and found.incarnation:
        if context.members is None or process.now() > deadline:
            return False
        membership = await process.ask(context.members, to_membership.membership())
        runs = {member["node"]: member["linked_run"] for member in membership["members"]}
        if runs.get(node) == found.incarnation:
            return False
        await process.sleep(0.1)
    return True


def _queues(operator: Operator) -> list[QueueRow]:
    routing = operator.context.routing
    return [row for vhost in routing.vhosts() for row in routing.queues(vhost)]


def _shown(row: QueueRow) -> str:
    return f"queue '{row.name}' in vhost '{row.vhost}'"
