"""`Cycles`: dead letters that go round in a cycle of queues are dropped (AB-153)."""

from __future__ import annotations

import logging

from .....amqp.dead_letter_headers import is_cycle
from .....amqp.fields import Table

log = logging.getLogger("warren.queue")

#: The first drop for each target is logged, for this many targets; later ones are not, so that the log stays bounded.
CYCLES_REMEMBERED = 100

#: The logged cycles of a queue that has logged none. Nearly all queues share them.
_NONE: frozenset[str] = frozenset()


class Cycles:
    """The cycles that dead letters of the queue `name` would go round in."""

    __slots__ = ("_logged", "_name", "_vhost")

    def __init__(self, vhost: str, name: str) -> None:
        self._vhost = vhost
        self._name = name
        self._logged = _NONE

    def has(self, headers: Table | None, target: str) -> bool:
        """Whether messages with these headers came back to the queue `target` without a rejection.

        Logged once for each target.
        """
        if not is_cycle(headers, target):
            return False
        if target not in self._logged and len(self._logged) < CYCLES_REMEMBERED:
            self._logged |= {target}
            log.warning(
                "queue '%s' in vhost '%s': dead letters that came back to queue '%s' without a rejection are dropped. "
                "Another dead-letter exchange or routing key of a queue in the cycle ends it",
                self._name,
                self._vhost,
                target,
            )
        return True
