"""Operations on virtual hosts."""

from __future__ import annotations

import logging

from ...metadata.contract import to_metadata
from .registry import OperationError, Operator, operation

log = logging.getLogger("warren.node")

#: Bytes of UTF-8 that a short string has at most.
SHORTSTR_MAX = 255


@operation()
async def add_vhost(operator: Operator, *, name: str) -> None:
    """Create a virtual host; an existing one is success. Nobody gets permissions in it."""
    if not 0 < len(name.encode("utf-8", "surrogateescape")) <= SHORTSTR_MAX:
        raise OperationError(
            "data",
            f"a virtual host's name has 1 to {SHORTSTR_MAX} bytes of UTF-8, because a client can open no other; "
            f"this one has {len(name)} characters",
        )
    await operator.process.ask(operator.context.metadata, to_metadata.create_vhost(name))


@operation()
async def delete_vhost(operator: Operator, *, name: str) -> None:
    """Delete a virtual host with all that is in it, and close its connections."""
    if not await operator.process.ask(operator.context.metadata, to_metadata.delete_vhost(name)):
        raise OperationError("data", f"Virtual host '{name}' does not exist")
    log.info("vhost '%s' is deleted", name)
