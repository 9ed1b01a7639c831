"""kill -9 at random moments while clients publish and consume (QS-37 to QS-41)."""

from __future__ import annotations

import os
import random

import pytest

from warren.tests.torture.broker import AS_IT_IS, SMALL
from warren.tests.torture.model import Violation
from warren.tests.torture.torture import Torture

#: The same seed in every run, so that a failure can be repeated.
SEED = int(os.environ.get("WARREN_TORTURE_SEED", "1"))


@pytest.mark.parametrize(("files", "kills"), [(SMALL, 10), (AS_IT_IS, 5)], ids=["small files", "files as they are"])
def test_nothing_confirmed_is_lost_and_nothing_invented(tmp_path, files, kills):
    """However often a broker is killed, no confirmed message is lost, none is invented, and order holds. On a failure
    `tmp_path` keeps account, log and data directory.
    """
    torture = Torture(tmp_path, SEED, files, on_note=print)
    torture.run(kills, messages=100 * kills)


FAULTS = {
    "the journal drops every 20th batch": """
from warren.store.journal.journal_engine import JournalEngine
commit, count = JournalEngine.commit, iter(range(1_000_000_000))
JournalEngine.commit = lambda self, batch: None if next(count) % 20 == 19 else commit(self, batch)
""",
    "acks are not written": """
from warren.store.journal.log_writer import LogWriter
LogWriter.ack = lambda self, queue, spans: self.position
""",
    "no message is flagged as redelivered after a crash": """
from warren.store.queue.variable.variable_queue import VariableQueue
recover = VariableQueue.recover
def forgetful(self, *arguments):
    recover(self, *arguments)
    self._watermark = 0
VariableQueue.recover = forgetful
""",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_of_a_faulty_broker_is_found(tmp_path, fault):
    """The torture finds the faults of faulty brokers; otherwise a run without a violation would prove nothing."""
    with pytest.raises(Violation):
        Torture(tmp_path, random.Random(fault).randrange(1000), SMALL, FAULTS[fault]).run(60)
