"""Fixtures for the tests of programs that use a broker; pytest finds them by itself once warren is installed.

def test_with_a_broker(warren_broker):          a real one, in this process, on a free port
    connection = pika.BlockingConnection(pika.URLParameters(warren_broker.url))

def test_my_service(warren_sim):                a simulated one: see docs/simulation.md
    warren_sim.check(nothing_is_lost, schedules=500)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def warren_broker() -> Iterator[Any]:
    """A `warren.Broker` that runs for this test alone; everything is in memory."""
    from .broker import Broker

    with Broker() as broker:
        yield broker


class Simulator:
    """What `warren_sim` is."""

    def check(self, scenario: Any, schedules: int = 200, seed: int = 0, **options: Any) -> None:
        """Run `scenario(sim)` with so many seeds; fails with a story if one of them breaks an assertion. See `simulation.service.Sim` for what a `sim` can do."""
        from .simulation.search import ScheduleFailed, check

        try:
            check(scenario, schedules, seed, **options)
        except ScheduleFailed as failed:
            pytest.fail(str(failed), pytrace=False)

    def run(self, scenario: Any, seed: int = 0, **options: Any) -> str:
        """One run; its story."""
        from .simulation.service import Sim

        sim = Sim(seed, **options)
        try:
            scenario(sim)
            return sim.story()
        finally:
            sim.close()


@pytest.fixture
def warren_sim() -> Simulator:
    """Simulated brokers and programs, many times over."""
    return Simulator()
