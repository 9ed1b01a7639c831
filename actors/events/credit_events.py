"""The events of credit tracing: an actor runs out of credit with a peer, or gets credit again (FC-46)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...runtime.credit import CreditFlow
    from ...runtime.process import Process
    from ..context.node_context import NodeContext


def trace_credit(process: Process, credit: CreditFlow, context: NodeContext, actor: str) -> None:
    """Have `process`, which listings call `actor`, emit these events if the settings of the node ask for them."""
    if not context.settings.credit_flow_tracing:
        return

    def changed(peer: Hashable, is_blocked: bool) -> None:
        if context.events.are_watched():
            name = "credit.blocked" if is_blocked else "credit.unblocked"
            context.events.emit(process, name, {"actor": actor, "peer": str(peer), "node": context.node_name})

    credit.trace = changed
