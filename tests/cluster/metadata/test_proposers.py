"""`Proposers`: each command takes effect once, also on a node that was restarted in between (CL-25)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.cluster.metadata.proposers import KEPT_RUNS, TABLE, WINDOW, Proposers
from warren.store.data_dir.metadata_store import Row

#: Steps from one serial to the next: mostly small ones, sometimes back to earlier or repeated serials.
SERIALS = st.lists(st.one_of(st.integers(1, 40), st.integers(1, 3 * WINDOW)), max_size=40)


def restarted(proposers: Proposers) -> Proposers:
    """The proposers that another node reads from the disk."""
    again = Proposers()
    again.fill(Row(change.key, change.fields) for change in proposers.rows())
    return again


@given(SERIALS, st.sets(st.integers(0, 40)))
def test_each_serial_is_taken_once_and_none_that_is_too_old(serials, restarts):
    proposers, taken = Proposers(), set()
    for at, serial in enumerate(serials):
        if at in restarts:
            proposers = restarted(proposers)
        expected = serial not in taken and serial > max(taken, default=0) - WINDOW
        assert proposers.take(("a", "1"), serial) == expected
        if expected:
            taken.add(serial)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 20)), max_size=60))
def test_the_disk_has_what_the_memory_has(steps):
    """The proposers on the disk are those in memory; old runs of a node are forgotten, and its latest ones kept."""
    proposers, disk, runs = Proposers(), {}, {"a": {}, "b": {}}
    for node, run in steps:
        if run not in runs[node] and len(runs[node]) == KEPT_RUNS:
            del runs[node][next(iter(runs[node]))]
        runs[node].setdefault(run)
        proposers.take((node, str(run)), 1)
        for change in proposers.changes_for((node, str(run))):
            assert change.table == TABLE
            if change.fields is None:
                del disk[change.key]
            else:
                disk[change.key] = change.fields
    assert disk == {change.key: change.fields for change in proposers.rows()}
    assert {(node, str(run)) for node in runs for run in runs[node]} == {key[1:] for key in disk}
