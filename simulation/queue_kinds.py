"""The queues that a schedule can have, as its clients declare them, and the exchange that they are bound to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: The exchange that clients bind queues to. Every bound queue gets every message.
EXCHANGE = "events"

#: The queue for the dead letters of all others.
DEAD_LETTER_QUEUE = "my-dlq"

_DEAD_LETTERING = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD_LETTER_QUEUE}


@dataclass(frozen=True, slots=True)
class QueueKind:
    """A queue's name and what it is declared with."""

    name: str
    durable: bool = True
    arguments: dict[str, Any] = field(default_factory=dict)
    exclusive: bool = False
    auto_delete: bool = False

    @property
    def has_priorities(self) -> bool:
        return "x-max-priority" in self.arguments

    @property
    def is_sharded(self) -> bool:
        """Whether it has shards. Then messages of one shard only have an order, and no client sees in which shard a
        message is.
        """
        return "x-warren-shards" in self.arguments

    @property
    def is_numbered(self) -> bool:
        """Whether its messages can be read by number."""
        return not self.has_priorities and not self.is_sharded

    @property
    def has_dead_letters(self) -> bool:
        return "x-dead-letter-exchange" in self.arguments

    @property
    def is_single_active(self) -> bool:
        return "x-single-active-consumer" in self.arguments

    @property
    def ttl(self) -> float | None:
        """Seconds after which a message expires."""
        found = self.arguments.get("x-message-ttl")
        return None if found is None else found / 1000

    @property
    def max_length(self) -> int | None:
        """The most ready messages that the queue may have; None for no limit."""
        found: int | None = self.arguments.get("x-max-length")
        return found

    @property
    def may_nack(self) -> bool:
        """Whether it refuses publishes when it is full."""
        return self.max_length is not None and "x-overflow" in self.arguments

    @property
    def dead_letters_refused(self) -> bool:
        """Whether a publish that it refuses becomes a dead letter."""
        return self.arguments.get("x-overflow") == "reject-publish-dlx"

    @property
    def is_quorum(self) -> bool:
        return self.arguments.get("x-queue-type") == "quorum"

    @property
    def delivery_limit(self) -> int | None:
        """How often a message may be returned."""
        found: int | None = self.arguments.get("x-delivery-limit")
        return found

    @property
    def drops_head(self) -> bool:
        """Whether it drops messages from the head when it is full."""
        return self.max_length is not None and not self.may_nack


KINDS = (
    QueueKind("orders"),
    QueueKind("urgent", arguments={"x-max-priority": 3}),
    QueueKind("news", durable=False),
    QueueKind("archive", arguments={"x-queue-mode": "lazy"}),
    QueueKind("brief", arguments={"x-message-ttl": 40}),
    QueueKind("last", arguments={"x-max-length": 3}),
    QueueKind("full", arguments={"x-max-length": 3, "x-overflow": "reject-publish"}),
    QueueKind("claims", arguments=_DEAD_LETTERING),
    QueueKind(DEAD_LETTER_QUEUE),
    QueueKind("fleeting", arguments={"x-message-ttl": 40, **_DEAD_LETTERING}),
    QueueKind("newest", arguments={"x-max-length": 3, **_DEAD_LETTERING}),
    QueueKind("line", arguments={"x-single-active-consumer": True, **_DEAD_LETTERING}),
    QueueKind("private", durable=False, exclusive=True),
    QueueKind("passing", auto_delete=True),
)
_RETRIED = QueueKind("retried", arguments={"x-queue-type": "quorum", "x-delivery-limit": 1, **_DEAD_LETTERING})
_REFUSING = QueueKind("refusing", arguments={"x-max-length": 3, "x-overflow": "reject-publish-dlx", **_DEAD_LETTERING})
_WIDE = QueueKind("wide", arguments={"x-warren-shards": 3})
#: Queues that take the place of others in some plans. They are apart, so that the plans of most seeds stay the same.
VARIANTS = {"orders": _RETRIED, "archive": _RETRIED, "last": _REFUSING, "full": _REFUSING, "news": _WIDE}
NAMES = {kind.name: kind for kind in (*KINDS, *VARIANTS.values())}
