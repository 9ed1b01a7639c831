"""How often is too often."""

from __future__ import annotations

import pytest

from warren.actors.node.restart_policy import MAX_RESTARTS, MAX_SECONDS, RestartIntensity, is_fault


def test_so_many_in_so_many_seconds():
    intensity = RestartIntensity()
    assert all(intensity.allows(float(second)) for second in range(MAX_RESTARTS))
    assert not intensity.allows(MAX_SECONDS - 0.1)
    assert intensity.allows(MAX_SECONDS)  # the first is forgotten
    assert not intensity.allows(MAX_SECONDS)


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("crash: ValueError: x", True),
        ("overload: 2 messages wait", True),
        ("exit: 1", True),
        ("normal", False),
        ("deleted", False),
    ],
)
def test_faults(reason, fault):
    assert is_fault(reason) is fault
