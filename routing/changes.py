"""Changes of rows: what a command did to Metadata's state, for everyone who keeps something that follows from the rows:
the routing table, the metadata store, and the extensions of an embedding program.
"""

from __future__ import annotations

from typing import NamedTuple

from .rows import Binding, ExchangeRow, QueueRow


class VhostAdded(NamedTuple):
    """A virtual host exists now. It has the exchanges of `default_exchanges`, which have no changes of their own."""

    vhost: str


class VhostRemoved(NamedTuple):
    """A virtual host is gone. The changes before this one removed everything that was in it."""

    vhost: str


class ExchangePut(NamedTuple):
    """An exchange was added."""

    row: ExchangeRow


class ExchangeRemoved(NamedTuple):
    """An exchange was removed. Changes of their own removed its bindings before."""

    row: ExchangeRow


class QueuePut(NamedTuple):
    """A queue was added, or its row was replaced."""

    row: QueueRow


class QueueRemoved(NamedTuple):
    """A queue was removed. Changes of their own removed its bindings before."""

    row: QueueRow


class BindingAdded(NamedTuple):
    """A binding was added. It is durable if both ends are (AB-73)."""

    vhost: str
    binding: Binding
    durable: bool


class BindingRemoved(NamedTuple):
    """A binding was removed, alone or with one of its ends."""

    vhost: str
    binding: Binding
    durable: bool


Change = (
    VhostAdded | VhostRemoved | ExchangePut | ExchangeRemoved | QueuePut | QueueRemoved | BindingAdded | BindingRemoved
)
