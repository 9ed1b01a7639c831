"""`LocationIndex` against a dict: a look-up finds the last value, committed or not, and nothing for ids beyond the
highest.
"""

from __future__ import annotations

import tempfile

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from warren.store.bodies import location_index
from warren.store.bodies.location_index import BodyLocation, Checkpoint, LocationIndex

SOURCES = [bytes(8), bytes(7) + b"\1", b"\xff" * 8]
ids = st.builds(
    lambda source, number: source + number.to_bytes(8, "big"),
    st.sampled_from(SOURCES),
    st.integers(0, 4) | st.integers(2**64 - 2, 2**64 - 1),
)


class Lookups(RuleBasedStateMachine):
    """Random look-ups and changes. `located` is the dict that the index must agree with."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.index = LocationIndex(self.directory.name)
        self.located, self.next_offset, self.changes = {}, 0, None

    @rule(message_ids=st.lists(ids, min_size=1, max_size=4))
    def place(self, message_ids):
        for message_id in message_ids:
            self.next_offset += 1
            entry = self.located[message_id] = BodyLocation(1, 1, self.next_offset, 10)
            self.index.place(message_id, entry)

    @rule(message_id=ids)
    def drop(self, message_id):
        self.located.pop(message_id, None)
        self.index.drop(message_id)

    @precondition(lambda self: self.changes is None)
    @rule()
    def freeze(self):
        self.changes = self.index.freeze({}, [], Checkpoint(1, self.next_offset))

    @precondition(lambda self: self.changes is not None)
    @rule()
    def commit(self):
        self.index.commit(self.changes)

    @precondition(lambda self: self.changes is not None)
    @rule()
    def committed(self):
        self.index.commit(self.changes)
        self.index.committed()
        self.changes = None

    @rule(message_ids=st.lists(ids, max_size=6))
    def look_up(self, message_ids):
        assert [self.index.get(message_id) for message_id in message_ids] == [
            self.located.get(message_id) for message_id in message_ids
        ]

    def teardown(self):
        for message_id in self.located:
            assert self.index.get(message_id) == self.located[message_id]
        self.index.close()
        self.directory.cleanup()


@pytest.mark.hypothesis
def test_look_ups_see_what_was_said_last(monkeypatch):
    """Look-ups are right even after look-ups of more sources than the index remembers."""
    monkeypatch.setattr(location_index, "SOURCES_MOST", 2)
    run_state_machine_as_test(Lookups)


def test_what_is_beyond_all_that_is_there_is_not_looked_up(tmp_path):
    """Ids beyond the highest of a source are not looked up: the ids of a queue ascend, and most that are written are
    new.
    """
    index = LocationIndex(str(tmp_path))
    index.place(SOURCES[1] + bytes(8), BodyLocation(1, 1, 0, 10))
    index.commit(index.freeze({}, [], Checkpoint(1, 0)))
    index.committed()
    assert index.get(SOURCES[1] + b"\1" * 8) is None
    index._stop_reading()
    assert index.get(SOURCES[1] + b"\2" * 8) is None
    assert index._reader is None, "no transaction was needed"
    assert index.get(SOURCES[1] + bytes(8)) == BodyLocation(1, 1, 0, 10)
    index.close()


def test_what_was_on_its_way_when_its_source_was_first_looked_up_is_found(tmp_path):
    index = LocationIndex(str(tmp_path))
    index.place(SOURCES[1] + b"\1" * 8, BodyLocation(1, 1, 0, 10))
    changes = index.freeze({}, [], Checkpoint(1, 0))
    assert index.get(SOURCES[1] + bytes(8)) is None
    index.commit(changes)
    index.committed()
    assert index.get(SOURCES[1] + b"\1" * 8) == BodyLocation(1, 1, 0, 10)
    index.close()
