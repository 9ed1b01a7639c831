"""The bytes of digests on the disk: the body of a DIGESTS record in the journal and in `.ids` files.

    u64 first number, then 16 bytes for each message: its digest, or zeros if it has no key

A number of `COPIED` or above belongs to no message: the digests come from another replica of the queue, whose messages
may have left long ago. Each such record has a number of its own. Such a record without digests is a *new beginning*:
the records before it no longer count.

A record whose digests are all zeros takes back what earlier records have of these messages: they are lost, because a
crash came before their bodies were on the disk, so their publishers may publish them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .window import DIGEST_SIZE, NO_KEY

#: Above the numbers of all messages.
COPIED = 1 << 63


def encode_digests(first: int, digests: Sequence[bytes]) -> bytes:
    """The body of a record; the message `first` has the first digest, and the others follow it."""
    return first.to_bytes(8, "big") + b"".join(digests)


def decode_digests(body: bytes) -> tuple[int, list[bytes]]:
    """The number of the first message in the body of a record, and the digests. Raises ValueError if it is cut off."""
    if len(body) < 8 or (len(body) - 8) % DIGEST_SIZE:
        raise ValueError(f"a record of digests cannot have {len(body)} bytes")
    return int.from_bytes(body[:8], "big"), split_digests(body[8:])


def digests_in(body: bytes) -> int:
    """How many digests the body of a record has."""
    return (len(body) - 8) // DIGEST_SIZE


def from_last_beginning(bodies: Sequence[bytes]) -> Sequence[bytes]:
    """The bodies of records from the last new beginning on; all if there is none.

    Records before it may belong to an earlier window, whose files are deleted.
    """
    beginnings = [at for at, body in enumerate(bodies) if len(body) == 8 and int.from_bytes(body, "big") >= COPIED]
    return bodies[beginnings[-1] :] if beginnings else bodies


def split_digests(digests: bytes) -> list[bytes]:
    """The digests that were joined."""
    return [digests[at : at + DIGEST_SIZE] for at in range(0, len(digests), DIGEST_SIZE)]


def taken_back(numbers: Iterable[int]) -> list[bytes]:
    """The bodies of records that take back the digests of these messages."""
    return [encode_digests(number, [NO_KEY]) for number in numbers]


def remaining(bodies: Sequence[bytes]) -> Iterator[bytes]:
    """The digests in the bodies of records, in their order, without those that a later record takes back."""
    decoded = [decode_digests(body) for body in bodies]
    gone = {first + at for first, digests in decoded if not any(map(any, digests)) for at in range(len(digests))}
    begins = max([at for at, (first, digests) in enumerate(decoded) if first >= COPIED and not digests], default=0)
    for first, digests in decoded[begins:]:
        for at, digest in enumerate(digests):
            if any(digest) and first + at not in gone:
                yield digest
