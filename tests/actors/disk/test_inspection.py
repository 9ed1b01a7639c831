"""What journal and message store show to the tests and the simulation that check them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warren.actors.disk.inspection import JournalView, MessageStoreView


@pytest.mark.parametrize("view", [JournalView, MessageStoreView])
def test_the_process_before_is_not_the_one_that_is_known(view):
    """The credit of a queue's crashed process is not shown as that of the queue's next process, as it once was."""
    addresses = {"q": "the process before"}
    process = SimpleNamespace(_addresses=addresses, _queues=SimpleNamespace(addresses=addresses))
    assert view(process).knows("q", "the process before")
    assert not view(process).knows("q", "the process after")
    assert not view(process).knows("another", "the process after")
