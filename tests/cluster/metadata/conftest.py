from __future__ import annotations

import pytest

from warren.definitions.features import FEATURES, MIRRORED_QUEUES

from . import group as stubs
from .group import Group
from .replicas import Mirrored, Supervisor


@pytest.fixture
def can_mirror(monkeypatch):
    """Nodes that a test makes can have mirrored queues; their supervisors are stubs that start replicas."""
    monkeypatch.setattr(stubs, "StubSupervisor", Supervisor)
    monkeypatch.setitem(FEATURES, MIRRORED_QUEUES, "")


@pytest.fixture
def mirrored(can_mirror):
    with Group() as group:
        yield Mirrored(group)
