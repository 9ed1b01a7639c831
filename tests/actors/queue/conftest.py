from __future__ import annotations

import pytest

from ..disk_stage import DurableStage, HeldDisk


@pytest.fixture
def disk():
    """A disk that stands still, fills up or fails when the test says so."""
    return HeldDisk()


@pytest.fixture
def stage(tmp_path, disk):
    """A virtual host whose queues have the real journal and message stores beside them."""
    with DurableStage(tmp_path, disk) as stage:
        yield stage
