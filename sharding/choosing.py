"""The policies that choose the shard of a message (FC-74)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import Literal

Policy = Literal["sequence", "random", "key"]

POLICIES: tuple[Policy, ...] = ("sequence", "random", "key")


def shard_of_number(number: int, shards: int) -> int:
    return number % shards


def shard_of_key(key: str | bytes, shards: int) -> int:
    """The shard of a key: the same one in every process and on every machine, as `hash` would not be."""
    data = key.encode() if isinstance(key, str) else key
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") % shards


def random_shard(random: Random, shards: int, usable: Sequence[int]) -> int:
    """A random usable shard. If no shard is usable, any shard: the message then waits until that shard is."""
    return random.choice(usable) if usable else random.randrange(shards)
