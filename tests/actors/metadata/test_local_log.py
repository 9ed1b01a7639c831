"""`LocalLog` without a process: what it answers to a command that is refused."""

from __future__ import annotations

import gc
import weakref

from warren.actors.metadata.log.local_log import LocalLog
from warren.actors.metadata.state.commands import DeclareExchange
from warren.actors.metadata.state.state import State
from warren.routing.rows import ExchangeRow


class Asker:
    """Keeps the outcome of its proposal, as a process that waits for one does."""

    outcome = None

    def take(self, outcome):
        self.outcome = outcome


def test_a_refusal_does_not_keep_the_log_alive():
    """A log that outlived its node had the metadata's files open, and the next run of the node could not start."""
    log, asker = LocalLog(None, State(), None), Asker()
    gc.disable()
    try:
        log.propose(DeclareExchange(ExchangeRow("no such vhost", "x", "direct")), asker.take)
        assert asker.outcome.error.code == 320
        gone = weakref.ref(log)
        del log
        assert gone() is None
    finally:
        gc.enable()
