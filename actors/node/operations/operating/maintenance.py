"""Operations by which an operator keeps clients away from a node (CM-53, CM-54, CM-65)."""

from __future__ import annotations

import logging

from .....definitions.errors import DefinitionError
from .....runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ....contracts.membership import to_membership
from ....contracts.metadata import to_metadata
from ....contracts.node import to_node
from ....metadata.state.commands import SetMaintenance
from ..registry import OperationError, Operator, operation
from .masters import has_majority, move_masters_away

log = logging.getLogger("warren.mirror")

#: Seconds that the members may take to agree on a change.
CHANGE_SECONDS = 15.0

#: The reason in the connection.close to clients of a node that is drained, as in RabbitMQ.
DRAINED = "Node was put into maintenance mode"


@operation()
async def drain(operator: Operator) -> bool:
    """Put the node into maintenance: no new queues, no clients, no masters of mirrored queues, and no leadership.

    It is no error if the node is in maintenance already.

    The maintenance ends with the run of the node.
    """
    process, context = operator.process, operator.context
    await _mark(operator, True)
    await process.ask(operator.node, to_node.suspend("maintenance", DRAINED))
    await move_masters_away(operator)
    if context.members is not None:
        await process.ask(context.members, to_membership.yield_leadership())
    return True


async def prepare_to_stop(operator: Operator) -> None:
    """The node stops in order: have other nodes lead what it leads, so that their clients notice nothing (CL-98).

    The mark of maintenance ends with the run of the node. Until then no node moves a master here; if several nodes stop
    at the same time, a master would go round between them.
    """
    if await has_majority(operator):
        operator.process.send(operator.context.metadata, to_metadata.node_stops())
        try:
            await _mark(operator, True)
        except OperationError as error:
            log.warning("%s stops with the masters that it has: %s", operator.context.node_name, error)
        else:
            await move_masters_away(operator)


@operation()
async def revive(operator: Operator) -> bool:
    """End the maintenance of the node."""
    await _mark(operator, False)
    return await operator.process.ask(operator.node, to_node.resume("maintenance"))


async def _mark(operator: Operator, is_on: bool) -> None:
    """Have the cluster list the node as one in maintenance, or not. A node that is alone is listed nowhere."""
    context = operator.context
    known = context.definitions.node(context.node_name)
    if known is None or known.in_maintenance == is_on:
        return
    command = SetMaintenance(context.node_name, is_on)
    try:
        await operator.process.ask(context.metadata, to_metadata.change_definitions(command), CHANGE_SECONDS)
    except (DefinitionError, ProcessDown, ProcessTimeout, ProcessError) as error:
        raise OperationError("unavailable", f"the members have not agreed to the change: {error}") from None


@operation()
async def suspend_listeners(operator: Operator) -> bool:
    """Accept no new clients. Those that are connected stay."""
    return await operator.process.ask(operator.node, to_node.suspend("operator", ""))


@operation()
async def resume_listeners(operator: Operator) -> bool:
    """Accept clients again, unless something else closes the listeners."""
    return await operator.process.ask(operator.node, to_node.resume("operator"))
