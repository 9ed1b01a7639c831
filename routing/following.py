"""How messages get from exchange to exchange: by bindings, and to alternate exchanges (AB-74, AB-76)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..amqp.fields import Table
from .decorators import ExchangeDecorator
from .destinations import Destination, DestinationSet
from .exchanges.exchange_types import Router
from .exchanges.exchange_windows import ExchangeWindows
from .rows import ExchangeRow, QueueRow


class VhostTable:
    """The rows and routers of one virtual host in the routing table, which alone changes them."""

    __slots__ = ("bindings", "exchanges", "groups", "routers", "queues", "shards", "onward", "unbound", "windows")

    def __init__(self) -> None:
        self.exchanges: dict[str, ExchangeRow] = {}
        self.routers: dict[str, Router] = {}
        # By exchange: how many bindings its router has.
        self.bindings: dict[str, int] = {}
        self.queues: dict[str, QueueRow] = {}
        # The names of the queues that are shards, and of those that are groups. The default exchange has no bindings to
        # them (FC-88, QP-76), so `unbound` has them all.
        self.shards: set[str] = set()
        self.groups: set[str] = set()
        self.unbound: set[str] = set()
        # Source -> exchanges among its destinations. An exchange without an entry needs no walk.
        self.onward: dict[str, DestinationSet] = {}
        self.windows = ExchangeWindows()


def visits(
    host: VhostTable,
    exchange: str,
    keys: tuple[str, ...],
    headers: Table | None,
    decorators: tuple[ExchangeDecorator, ...],
) -> Iterator[tuple[str, Sequence[Destination]]]:
    """Each exchange that the message visits from `exchange` on, with the destinations to which it sends the message.

    The table may change between two steps. An exchange that is gone before the message visits it is left out.
    """
    seen = {exchange}
    waiting = [exchange]
    while waiting:
        name = waiting.pop()
        if name == "":
            # The default exchange is reached only as an alternate exchange. Its bindings are implicit.
            yield name, [("queue", key) for key in keys if key in host.queues and key not in host.unbound]
            continue
        row = host.exchanges.get(name)
        if row is None:
            continue
        destinations = host.routers[name].route(keys, headers)
        if not destinations and row.alternate is not None:
            destinations = (("exchange", row.alternate),)
        for decorator in decorators:
            destinations = (*destinations, *decorator.route(row, keys, headers))
        yield name, destinations
        for kind, destination in destinations:
            if kind != "queue" and destination not in seen and destination in host.exchanges:
                seen.add(destination)
                waiting.append(destination)


def reachable(host: VhostTable, exchange: str) -> Iterator[ExchangeRow]:
    """Every exchange that some message published to this one could visit."""
    seen = {exchange}
    waiting = [exchange]
    while waiting:
        name = waiting.pop()
        row = host.exchanges.get(name)
        if row is None:
            continue
        yield row
        for destination in following(host, name):
            if destination not in seen:
                seen.add(destination)
                waiting.append(destination)


def following(host: VhostTable, name: str) -> list[str]:
    """The exchanges to which this one may hand a message on."""
    row = host.exchanges.get(name)
    found = [] if row is None or row.alternate is None else [row.alternate]
    if name in host.onward:
        found += [destination for _, destination in host.onward[name].as_tuple]
    return found
