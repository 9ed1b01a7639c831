"""What the processes of the disk show for checks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warren.actors.disk.inspection import JournalView, MessageStoreView


@pytest.mark.parametrize("view", [JournalView, MessageStoreView])
def test_the_process_before_is_not_the_one_that_is_known(view):
    """The credit of a queue that crashed counts for nobody else; the simulation counted it for the next process."""
    process = SimpleNamespace(_addresses={"q": "the process before"})
    assert view(process).knows("q", "the process before")
    assert not view(process).knows("q", "the process after")
    assert not view(process).knows("another", "the process after")
