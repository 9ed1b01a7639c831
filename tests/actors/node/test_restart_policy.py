"""How often a process may be restarted in a time."""

from __future__ import annotations

from warren.actors.node.restart_policy import MAX_RESTARTS, MAX_SECONDS, RestartIntensity


def test_at_most_so_many_restarts_in_so_many_seconds():
    intensity = RestartIntensity()
    assert all(intensity.allows(float(second)) for second in range(MAX_RESTARTS))
    assert not intensity.allows(MAX_SECONDS - 0.1)
    assert intensity.allows(MAX_SECONDS)  # The first restart was too long ago to count.
    assert not intensity.allows(MAX_SECONDS)
