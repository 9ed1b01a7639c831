"""`FlowReporter`: reports what holds connections back, in the log and as events, without being asked (FC-67).

A connection that runs out of credit sends its address, at most once in five seconds. The reporter then looks at the
connections that have sent theirs, as `warren diagnose` does: first when the shares of blocked time cover
`SHARE_SECONDS`, then once in each `flow_report_interval`, as long as any of them is held back. It reports each subject,
such as a queue, once for all connections behind it, and reports as well when the subject holds nobody back any more.
Alarms have reports of their own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...runtime.contract import Address
from ...runtime.credit import SHARE_SECONDS
from ...runtime.errors import ProcessDown, ProcessTimeout
from ...runtime.process import Process
from ..context.starting import ToNewFlowReporter
from ..contracts.connection import ToConnection, to_connection
from ..contracts.info_items import InfoItems
from ..contracts.node import ToNode
from .operations.observing.bottlenecks import ADVICE
from .operations.observing.diagnosing import bottleneck
from .operations.registry import ANSWER_SECONDS, Operator

if TYPE_CHECKING:
    from ...runtime.contract import Sender
    from ..context.node_context import NodeContext

log = logging.getLogger("warren.flow")

#: Most connections that one report examines: if more are blocked, the others have the same bottleneck, or soon will.
MOST_CONNECTIONS = 200


class FlowReporter(Process):
    """See the module."""

    contract = ToNewFlowReporter

    def __init__(self) -> None:
        super().__init__()
        #: By name of the address: connections that ran out of credit, and those that were held back at the last look.
        self.connections: dict[str, Address[ToConnection]] = {}
        #: Bottleneck and subject of what was reported and has not ended.
        self.reported: set[tuple[str, str]] = set()
        self.is_timing = False

    def on_start(self, sender: Sender, context: NodeContext, node: Address[ToNode]) -> None:
        self.context = context
        self.operator = Operator(self, context, node)
        self.interval = context.settings.flow_report_interval / 1000

    def on_in_flow(self, sender: Sender, connection: Address[ToConnection]) -> None:
        if len(self.connections) < MOST_CONNECTIONS:
            self.connections[connection.actorAddressString] = connection
            self._look_in(min(SHARE_SECONDS, self.interval))

    def _look_in(self, seconds: float) -> None:
        if not self.is_timing:
            self.is_timing = True
            self.start_timer(seconds, None)

    async def on_timer(self, payload: None) -> None:
        rows = await self._held_back()
        self.is_timing = False
        by_cause: dict[tuple[str, str], list[InfoItems]] = {}
        for row in rows:
            by_cause.setdefault((row["bottleneck"], row["subject"]), []).append(row)
        for cause, behind in by_cause.items():
            self._report(cause, behind)
        for bottleneck_, subject in sorted(self.reported - by_cause.keys()):
            log.info("%s holds no connection back any more", subject)
            self._emit({"bottleneck": "", "subject": subject, "was": bottleneck_, "connections": 0})
        self.reported = set(by_cause)
        if self.connections:
            self._look_in(self.interval)

    async def _held_back(self) -> list[InfoItems]:
        """A row for each connection that is held back, as `diagnose` answers it. Only these are looked at again."""
        asked, self.connections = self.connections, {}
        rows = []
        for name, address in asked.items():
            try:
                items = await self.ask(address, to_connection.info(), timeout=ANSWER_SECONDS)
            except (ProcessDown, ProcessTimeout):
                continue
            found = await bottleneck(self.operator, address, items)
            if found is not None and found.bottleneck != "resource alarm":
                rows.append(found.row(items))
                self.connections[name] = address
        return rows

    def _report(self, cause: tuple[str, str], behind: list[InfoItems]) -> None:
        bottleneck_, subject = cause
        first = behind[0]
        others = f" and {len(behind) - 1} other connections" if len(behind) > 1 else ""
        log.info(
            "%s holds back connection %s%s: %s. %s",
            subject,
            first["connection"],
            others,
            first["evidence"],
            ADVICE[bottleneck_],
        )
        self._emit(
            {
                "bottleneck": bottleneck_,
                "subject": subject,
                "connection": first["connection"],
                "connections": len(behind),
                "evidence": first["evidence"],
            }
        )

    def _emit(self, fields: dict[str, object]) -> None:
        events = self.context.events
        if events.are_watched():
            events.emit(self, "flow.verdict", {**fields, "node": self.context.node_name})
