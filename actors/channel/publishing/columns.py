"""Decides for each message of a run where it goes, if the method frames or the expirations of its messages differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....amqp.errors import AmqpError
from ....amqp.parser.events import Expirations, Payloads
from ....store.messages.message import Origin, each_of
from .publications import Publication, Publications


class Decided(NamedTuple):
    """The publication and the origin of each message, up to the first one that is refused, with that error."""

    publications: list[Publication]
    origins: list[Origin]
    error: AmqpError | None


def decide_each(
    publications: Publications,
    decide: Callable[[bytes, bytes, bytes], Publication],
    payloads: Payloads,
    key: bytes,
    contents: Sequence[bytes],
    expirations: Expirations,
) -> Decided:
    """Look each message up. `decide` is called with the method payload, the key and the content of an unknown one."""
    known, expiring = publications.known, publications.expiring
    decided = Decided(found := [], origins := [], None)
    count = len(contents)
    each = [payloads] * count if isinstance(payloads, bytes) else payloads
    for at, (payload, expiration) in enumerate(zip(each, each_of(expirations, count))):
        publication = known.get((payload, key))
        try:
            if publication is None:
                publication = decide(payload, key, contents[at])
            origin = publication.origin
            if expiration is not None and not publication.is_by_headers:
                origin = expiring(origin, expiration)
        except AmqpError as refused:
            return decided._replace(error=refused)
        found.append(publication)
        origins.append(origin)
    return decided
