"""A disk under the test's control, and a stage with queues that use it."""

from __future__ import annotations

import pytest

from ..disk_stage import DurableStage, HeldDisk


@pytest.fixture
def disk():
    """A disk that the test can stop, fill up or let fail."""
    return HeldDisk()


@pytest.fixture
def stage(tmp_path, disk):
    """A virtual host whose queues have the real journal and message stores beside them."""
    with DurableStage(tmp_path, disk) as stage:
        yield stage
