"""One logical queue over several real ones, for programs that use any AMQP 0-9-1 broker through pika (FC-72 to FC-86).

`docs/sharding.md` shows how to use it. No other folder of warren needs pika, which the extra `sharding` installs.
"""

from __future__ import annotations

try:
    import pika as _pika  # noqa: F401  only to fail here, with a text that names the way out
except ImportError as error:
    raise ImportError("warren.sharding needs the client library pika: pip install pika") from error

from .errors import DeclarationFailed, PublishFailed, PublishReturned, ShardingError
from .facade import ShardedQueue
from .hand_over import Skip
from .shard import Delivery

__all__ = [
    "DeclarationFailed",
    "Delivery",
    "PublishFailed",
    "PublishReturned",
    "ShardedQueue",
    "ShardingError",
    "Skip",
]
