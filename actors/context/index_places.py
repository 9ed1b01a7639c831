"""`IndexPlaces`: where the indexer of each virtual host is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..contracts.message_index import ToIndexer


class IndexPlaces:
    """The addresses of a node's indexers, by virtual host, for queues and operations. `VhostSupervisor` enters them. A
    virtual host without a directory has none.
    """

    __slots__ = ("_by_vhost",)

    def __init__(self) -> None:
        self._by_vhost: dict[str, Address[ToIndexer]] = {}

    def enter(self, vhost: str, address: Address[ToIndexer]) -> None:
        self._by_vhost[vhost] = address

    def leave(self, vhost: str) -> None:
        self._by_vhost.pop(vhost, None)

    def of(self, vhost: str) -> Address[ToIndexer] | None:
        return self._by_vhost.get(vhost)
