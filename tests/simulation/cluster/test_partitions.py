"""A sample of the matrix of partitions (CL-117). `make bench BENCH=partitions` runs all cells."""

from __future__ import annotations

import pytest

from warren.simulation.cluster.plan import parse_cluster_plan
from warren.simulation.cluster.schedule import run
from warren.tests.simulation.cluster.matrix import (
    CONSUMERS,
    GROUPS,
    PARTITIONS,
    SECONDS,
    Cell,
    cells,
    plan_of,
    sample,
)


@pytest.mark.parametrize("cell", sample(), ids=str)
def test_nothing_confirmed_is_lost_in_a_partition(cell):
    outcome = run(1, plan_of(cell, 1))
    assert outcome.failure is None, outcome.story


@pytest.mark.parametrize(
    "cell, seed",
    [
        (Cell("random-node", 10, "consuming", "3-of-3", True), 3),
        (Cell("halves", 10, "mixed", "2-of-3", True), 1),
        (Cell("random-halves", 10, "mixed", "2-of-3", True), 5),
    ],
    ids=str,
)
def test_what_is_rejected_in_a_partition_is_not_lost(cell, seed):
    """Messages that were rejected while the network was cut were lost in these schedules (AB-147)."""
    outcome = run(seed, plan_of(cell, seed))
    assert outcome.failure is None, outcome.story


def test_the_matrix_has_all_combinations_and_the_sample_all_values():
    """There are 216 cells (CL-117)."""
    assert len(set(map(str, cells()))) == len(PARTITIONS) * len(SECONDS) * len(CONSUMERS) * len(GROUPS) * 2 == 216
    assert set(sample()) <= set(cells())
    for has_dead_letters in (False, True):
        found = [cell for cell in sample() if cell.has_dead_letters is has_dead_letters]
        assert {cell.partition for cell in found} == set(PARTITIONS)
        assert {cell.consumer for cell in found} == set(CONSUMERS)
        assert {cell.group for cell in found} == set(GROUPS)


def test_the_plan_of_a_cell_is_written_and_read_as_any_other():
    for cell in sample():
        plan = plan_of(cell, 7)
        assert str(parse_cluster_plan(str(plan))) == str(plan)
        assert plan.replicas == int(cell.group[0]) and len(plan.letters) == int(cell.group[-1])
