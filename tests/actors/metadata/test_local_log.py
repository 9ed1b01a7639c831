"""`LocalLog` without a process: how it answers a command that is refused."""

from __future__ import annotations

import gc
import weakref

from warren.actors.metadata.log.local_log import LocalLog
from warren.actors.metadata.state.commands import DeclareExchange
from warren.actors.metadata.state.state import State
from warren.routing.rows import ExchangeRow


class Asker:
    """Stands for a process that waits for a proposal, and keeps its outcome."""

    outcome = None

    def take(self, outcome):
        self.outcome = outcome


def test_a_refusal_does_not_keep_the_log_alive():
    """A refusal keeps no reference to the log. A log that outlived its node once kept the metadata's files open, so
    that the node's next run could not start.
    """
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
