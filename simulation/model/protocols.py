"""The objects of clients, as far as the model examines them."""

from __future__ import annotations

from typing import Protocol


class ObservedChannel(Protocol):
    """A client's channel."""

    @property
    def may_be_closed(self) -> bool:
        """Whether the broker may have closed it already. Other channels may see the consequences first."""

    @property
    def is_leaving(self) -> bool:
        """Whether it is about to end."""


class ObservedConsumer(Protocol):
    """A client's consumer. A basic.get counts as a consumer without a tag."""

    #: Whether `QueueModel.on_consumer_leaving` was called for it.
    has_left: bool
    #: `QueueModel.delete_count` when it was started.
    delete_count: int

    @property
    def channel(self) -> ObservedChannel: ...
    @property
    def tag(self) -> str: ...
    @property
    def no_ack(self) -> bool: ...
    @property
    def since(self) -> float:
        """When it was requested, in seconds of the world."""

    @property
    def is_stale(self) -> bool:
        """Whether the queue may have been deleted since it was started."""


class Owner(Protocol):
    """A client's connection, as the owner of an exclusive queue."""

    @property
    def name(self) -> str:
        """The client's name."""
