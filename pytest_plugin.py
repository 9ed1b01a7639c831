"""Fixtures for tests of programs that use a broker. pytest finds them once warren is installed.

def test_with_a_broker(warren_broker):          a real broker, in this process, on a free port
    connection = pika.BlockingConnection(pika.URLParameters(warren_broker.url))

def test_with_a_cluster(warren_cluster):        three nodes that are one broker: kill, pause and part them

def test_my_service(warren_sim):                a simulated broker: see docs/simulation.md
    warren_sim.check(nothing_is_lost, schedules=500)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .broker import Broker
    from .embedded_cluster import Cluster
    from .simulation.search import Scenario


@pytest.fixture
def warren_broker() -> Iterator[Broker]:
    """A `warren.Broker` that runs for this test alone and keeps everything in memory."""
    from .broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def warren_cluster() -> Iterator[Cluster]:
    """A `warren.Cluster` of three nodes that runs for this test alone and keeps everything in memory."""
    from .embedded_cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster


class Simulator:
    """The value of the fixture `warren_sim`."""

    def check(self, scenario: Scenario, schedules: int = 200, seed: int = 0, **options: Any) -> None:
        """Run `scenario(sim)` with `schedules` seeds. The test fails with a story if an assertion fails in one run.

        `simulation.service.Sim` lists what a `sim` can do, and the options.
        """
        from .simulation.search import ScheduleFailed, check

        story = ""
        try:
            with _without_log():
                check(scenario, schedules, seed, **options)
        except ScheduleFailed as failed:
            story = str(failed)
        # After the `except` block, because within it pytest would show the handled error too, with the same story.
        if story:
            pytest.fail(story, pytrace=False)

    def run(self, scenario: Scenario, seed: int = 0, **options: Any) -> str:
        """Run `scenario(sim)` once; returns the story."""
        from .simulation.service import Sim

        with _without_log(), Sim(seed, **options) as sim:
            scenario(sim)
            return sim.story()


@contextmanager
def _without_log() -> Iterator[None]:
    """Log nothing of the simulated brokers. pytest would print the lines of hundreds of runs above the one story."""
    log = logging.getLogger("warren")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


@pytest.fixture
def warren_sim() -> Simulator:
    """Runs a scenario with a simulated broker many times."""
    return Simulator()
