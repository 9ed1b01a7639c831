"""How often is too often."""

from __future__ import annotations

from warren.actors.node.restart_policy import MAX_RESTARTS, MAX_SECONDS, RestartIntensity


def test_so_many_in_so_many_seconds():
    intensity = RestartIntensity()
    assert all(intensity.allows(float(second)) for second in range(MAX_RESTARTS))
    assert not intensity.allows(MAX_SECONDS - 0.1)
    assert intensity.allows(MAX_SECONDS)  # the first is forgotten
    assert not intensity.allows(MAX_SECONDS)
