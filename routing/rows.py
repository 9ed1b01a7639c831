"""Rows of the routing table: one immutable value for each exchange and each queue, replaced whole when something of it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..amqp.fields import Table
from .exchange_types import NO_ARGUMENTS


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One exchange. `alternate` is the name of its alternate exchange or None."""

    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = NO_ARGUMENTS
    alternate: str | None = None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue. `state` other than `running` means that it exists and cannot be used (AB-63)."""

    vhost: str
    name: str
    address: Any
    queue_id: str  # unique for ever: a queue declared anew under the same name gets another
    durable: bool = False
    auto_delete: bool = False
    exclusive_owner: str | None = None  # connection id
    arguments: Table = NO_ARGUMENTS
    type: str = "classic"
    state: Literal["running", "crashed", "stopped", "down"] = "running"
    extra_queue: str | None = None  # gets a copy of whatever is routed here (AB-79)
