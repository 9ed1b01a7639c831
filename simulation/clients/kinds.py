"""The queues of a schedule, as its clients declare them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GRAVES = "graves"
"""Where the dead letters of all others go."""

_DYING = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": GRAVES}


@dataclass(frozen=True, slots=True)
class QueueKind:
    """`may_refuse`: it may nack."""

    name: str
    durable: bool = True
    arguments: dict[str, Any] = field(default_factory=dict)
    exclusive: bool = False
    auto_delete: bool = False

    @property
    def has_priorities(self) -> bool:
        return "x-max-priority" in self.arguments

    @property
    def has_dead_letters(self) -> bool:
        return "x-dead-letter-exchange" in self.arguments

    @property
    def is_single_active(self) -> bool:
        return "x-single-active-consumer" in self.arguments

    @property
    def ttl(self) -> float | None:
        """Seconds that a message may stay."""
        found = self.arguments.get("x-message-ttl")
        return None if found is None else found / 1000

    @property
    def most(self) -> int | None:
        """Messages that may be ready."""
        found: int | None = self.arguments.get("x-max-length")
        return found

    @property
    def may_refuse(self) -> bool:
        return self.most is not None and self.arguments.get("x-overflow") == "reject-publish"

    @property
    def drops_head(self) -> bool:
        """What is too much goes."""
        return self.most is not None and not self.may_refuse

    @property
    def may_drop(self) -> bool:
        """Messages may go by themselves, and leave no dead letter."""
        return (self.ttl is not None or self.drops_head) and not self.has_dead_letters


KINDS = (
    QueueKind("orders"),
    QueueKind("urgent", arguments={"x-max-priority": 3}),
    QueueKind("news", durable=False),
    QueueKind("archive", arguments={"x-queue-mode": "lazy"}),
    QueueKind("brief", arguments={"x-message-ttl": 40}),
    QueueKind("last", arguments={"x-max-length": 3}),
    QueueKind("full", arguments={"x-max-length": 3, "x-overflow": "reject-publish"}),
    QueueKind("claims", arguments=_DYING),
    QueueKind(GRAVES),
    QueueKind("fleeting", arguments={"x-message-ttl": 40, **_DYING}),
    QueueKind("newest", arguments={"x-max-length": 3, **_DYING}),
    QueueKind("line", arguments={"x-single-active-consumer": True, **_DYING}),
    QueueKind("private", durable=False, exclusive=True),
    QueueKind("passing", auto_delete=True),
)
NAMES = {kind.name: kind for kind in KINDS}
