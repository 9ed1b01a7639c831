"""The floor of replicas in sync, below which a queue refuses publishes that await a confirm (CL-123)."""

from __future__ import annotations

import logging

from ...definitions.definitions import Definitions
from ...routing.phrases import queue_phrase
from ...routing.rows import QueueRow
from ..metadata.state.replica_rules import is_short, min_in_sync

log = logging.getLogger("warren.mirror")


def is_short_now(definitions: Definitions, row: QueueRow, was_short: bool) -> bool:
    """Whether the queue has too few replicas in sync. If the answer differs from `was_short`, that is logged."""
    found = is_short(definitions, row)
    if found != was_short:
        phrase = queue_phrase(row.vhost, row.name)
        if found:
            assert row.group is not None, "a queue without replicas has no floor"
            log.warning(
                "%s has %d replicas in sync and needs %d of them: it refuses publishes that await a confirm",
                phrase,
                len(row.group.ring),
                min_in_sync(definitions, row),
            )
        else:
            log.info("%s has enough replicas in sync, and takes publishes that await a confirm again", phrase)
    return found
