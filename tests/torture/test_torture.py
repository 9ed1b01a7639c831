"""kill -9 at random moments while clients publish and consume: nothing confirmed is lost, nothing is invented, and order holds (QS-37 to QS-41)."""

from __future__ import annotations

import os
import random

import pytest

from warren.tests.torture.broker import AS_IT_IS, SMALL
from warren.tests.torture.model import Violation
from warren.tests.torture.torture import Torture

# Another seed every day would find more, and make yesterday's failure hard to see again.
SEED = int(os.environ.get("WARREN_TORTURE_SEED", "1"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("files", "kills"), [(SMALL, 22), (AS_IT_IS, 12)], ids=["small files", "files as they are"])
def test_nothing_confirmed_is_lost_and_nothing_invented(tmp_path, files, kills):
    """The account, the log and the data directory before the last start stay in the temporary directory of a test that failed."""
    torture = Torture(tmp_path, SEED, files, tell=print)
    torture.run(kills)
    assert torture.kills >= kills and torture.model.confirmed > 100 * kills and torture.model.found > 100 * kills, (
        "the clients hardly got to do anything"
    )


FAULTS = {
    "the journal forgets a batch now and then": """
from warren.store.journal import Journal
commit, count = Journal.commit, iter(range(1_000_000_000))
Journal.commit = lambda self, batch: None if next(count) % 20 == 19 else commit(self, batch)
""",
    "acks are not written": """
from warren.store.log_writer import LogWriter
LogWriter.ack = lambda self, queue, gone: self.position
""",
    "nothing is flagged after a crash": """
from warren.store.variable_queue import VariableQueue
init = VariableQueue.init_without
def forgetful(self, recover, missing):
    init(self, recover, missing)
    self._watermark = 0
VariableQueue.init_without = forgetful
""",
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broker_with_a_fault_is_found_out(tmp_path, fault):
    """A torture that finds nothing in such a broker would prove nothing by finding nothing in ours."""
    with pytest.raises(Violation):
        Torture(tmp_path, random.Random(fault).randrange(1000), SMALL, FAULTS[fault]).run(60)
