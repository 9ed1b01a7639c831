"""The handlers of the counts of logins: `/auth/attempts/:node`, and by address and user `…/source` (CM-230).

A DELETE has the counts begin at 0 again. The counters of the node go on, because the metrics show them and must not
fall (CM-376). So this process remembers their values at the DELETE and subtracts them.
"""

from __future__ import annotations

from typing import Any

from ..call import Answer, ApiCall
from .reading import answering_node

Row = dict[str, Any]
Counts = tuple[int, int]

CHANGED = Answer(204)


async def attempts(call: ApiCall) -> Any:
    node, forgotten = answering_node(call).node_name, call.logins.forgotten
    since = {protocol: _less(counts, forgotten.get((node, protocol))) for protocol, counts in _counts(call).items()}
    return [{"protocol": protocol, **_shown(*counts)} for protocol, counts in since.items() if any(counts)]


async def forget_attempts(call: ApiCall) -> Any:
    node = answering_node(call).node_name
    for protocol, counts in _counts(call).items():
        call.logins.forgotten[node, protocol] = counts
    return CHANGED


def _counts(call: ApiCall) -> dict[str, Counts]:
    """By protocol: the logins that the node has accepted and refused since its start."""
    counted, logins = answering_node(call), call.logins
    succeeded, failed = counted.node["logins"]
    if counted is not call.state.own:
        return {"amqp091": (succeeded, failed)}
    # Each management process counts the logins over HTTP of its own node.
    return {"http": (logins.attempts - logins.failures, logins.failures), "amqp091": (succeeded, failed)}


async def sources(call: ApiCall) -> Any:
    """The logins over AMQP, by address and user."""
    node, forgotten = answering_node(call).node_name, call.logins.forgotten
    found = []
    for row in await _source_rows(call, node):
        counts = _less((row["auth_attempts_succeeded"], row["auth_attempts_failed"]), forgotten.get(_source(node, row)))
        if any(counts):
            found.append({**row, **_shown(*counts)})
    return found


async def forget_sources(call: ApiCall) -> Any:
    node = answering_node(call).node_name
    for row in await _source_rows(call, node):
        call.logins.forgotten[_source(node, row)] = row["auth_attempts_succeeded"], row["auth_attempts_failed"]
    return CHANGED


async def _source_rows(call: ApiCall, node: str) -> list[Row]:
    return await call.operate_on(node, "list_node_auth_attempt_stats", by_source=True) or []


def _source(node: str, row: Row) -> tuple[str, ...]:
    return node, str(row["remote_address"]), str(row["username"])


def _less(counts: Counts, before: Counts | None) -> Counts:
    """The counts without those from before. A node that has started again counts from 0."""
    if before is None or counts[0] < before[0] or counts[1] < before[1]:
        return counts
    return counts[0] - before[0], counts[1] - before[1]


def _shown(succeeded: int, failed: int) -> Row:
    return {
        "auth_attempts": succeeded + failed,
        "auth_attempts_failed": failed,
        "auth_attempts_succeeded": succeeded,
    }
