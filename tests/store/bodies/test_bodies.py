"""A message store in positions: what `durable` promises, whichever way the writes are answered."""

from __future__ import annotations

import pytest

from warren.store.bodies.queue_bodies import StoreBodies
from warren.store.disk.faulty_disk import FaultyDisk


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def message(number: int) -> tuple[bytes, bytes]:
    return name(number), bytes(number)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def bodies(disk, tmp_path):
    bodies = StoreBodies(disk, "s", str(tmp_path / "index"), file_limit=400)
    bodies.recover(may_trust=False)
    yield bodies
    bodies.engine.abandon()


def test_durable_waits_for_the_work(bodies):
    """What is written while work is under way has a later position, which the next work reaches."""
    first = bodies.write([message(1), message(2)])
    work = bodies.take_work()
    second = bodies.write([message(3)])
    work.write()
    assert bodies.durable < first
    bodies.done(work)
    assert bodies.durable == first < second
    assert bodies.write_all() == second


def test_removed_before_written_costs_nothing(disk, bodies):
    """An empty queue delivers and gets its ack before anything is on disk: it never comes there, and holds nobody up."""
    position = bodies.write([message(1)])
    bodies.remove([name(1)])
    assert bodies.durable == position
    assert bodies.take_work() is None
    assert disk.list("s") == ["state"]


def test_removed_out_of_order(bodies):
    """The oldest write that is not answered holds back all later ones."""
    positions = [bodies.write([message(number)]) for number in range(3)]
    bodies.remove([name(1)])
    assert bodies.durable < positions[0]
    bodies.remove([name(0)])
    assert bodies.durable == positions[1]
    assert bodies.write_all() == positions[2]


def test_written_again(bodies):
    """Removed and written again it waits anew, unless it is on disk still: then it is durable at once."""
    bodies.write([message(1)])
    bodies.remove([name(1)])
    position = bodies.write([message(1)])
    assert bodies.durable < position
    bodies.write_all()
    bodies.remove([name(1)])
    assert bodies.write([message(1)]) == bodies.durable
    assert bodies.read([name(1), name(2)]) == [bytes(1), None]


def test_collection_is_run_once(disk, bodies):
    """Work that is tried again does not combine files that it has combined already, and all work together gives the space back."""
    for number in range(100, 130):
        bodies.write([message(number)])
        bodies.write_all()
    bodies.remove([name(number) for number in range(100, 130) if number % 4])
    files = len(disk.list("s"))
    while (work := bodies.take_work()) is not None:
        for _ in range(2):
            work.write()
            work.collect()
        bodies.done(work)
    size, wanted = bodies.engine.file_sizes
    assert len(disk.list("s")) < files and size <= 2 * wanted + 800
    kept = range(100, 130, 4)
    assert bodies.read([name(number) for number in kept]) == [bytes(number) for number in kept]
    bodies.engine.check()


@pytest.mark.parametrize("may_trust", [True, False])
def test_references_are_counted_unless_all_is_believed(disk, bodies, tmp_path, may_trust):
    """After a clean stop they are asked for only if a queue did not end cleanly."""
    bodies.write([message(1), message(2)])
    bodies.close()
    again = StoreBodies(disk, "s", str(tmp_path / "index"))
    assert again.recover(may_trust, lambda: [[name(1)]]) == may_trust
    assert (again.contains(name(1)), again.contains(name(2))) == (True, may_trust)
    again.close()
