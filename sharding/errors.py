"""The errors of a sharded queue."""

from __future__ import annotations

from collections.abc import Mapping


class ShardingError(Exception):
    """The base class of the errors of a sharded queue."""


class DeclarationFailed(ShardingError):
    """Some shards could not be declared; the others were. `failed` has the reason of each failed shard."""

    def __init__(self, failed: Mapping[int, str]) -> None:
        self.failed = dict(failed)
        texts = "; ".join(f"shard {index}: {reason}" for index, reason in sorted(self.failed.items()))
        super().__init__(f"These shards could not be declared: {texts}. All other shards are declared.")


class PublishFailed(ShardingError):
    """The broker did not take responsibility for a message. It may have the message nevertheless if the connection was
    lost before the confirm arrived.
    """

    def __init__(self, number: int, shard: int, reason: str) -> None:
        self.number = number
        self.shard = shard
        self.reason = reason
        super().__init__(f"Message {number} was not confirmed by shard {shard}: {reason}")


class PublishReturned(ShardingError):
    """A mandatory message reached no queue. `routing_key` is the key of the logical queue."""

    def __init__(self, number: int, code: int, text: str, exchange: str, routing_key: str, body: bytes) -> None:
        self.number = number
        self.code = code
        self.text = text
        self.exchange = exchange
        self.routing_key = routing_key
        self.body = body
        super().__init__(
            f"Message {number} was returned, because exchange {exchange!r} has no queue for routing key "
            f"{routing_key!r}: {code} {text}. Declare the shards, or their bindings, before you publish."
        )
