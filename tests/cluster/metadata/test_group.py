"""The Metadata of three nodes agree: what one is asked for, all have (CL-25, CL-31, CL-33, CL-37)."""

from __future__ import annotations

import pytest

from warren.actors.metadata.contract import to_metadata

from .group import Group, V


@pytest.fixture
def group():
    with Group() as group:
        yield group


@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_was_answered_on_one_node_is_in_force_on_all(group, at):
    asked = group.members[at]
    row, is_new = asked.ask(asked.declare("q"))
    assert is_new and row.node == asked.name
    for member in group.members:
        shown = member.routing.queue(V, "q")
        assert (shown.queue_id, shown.node) == (row.queue_id, asked.name)
    asked.ask(asked.bind("q", "amq.direct"))
    assert all(member.has_binding("q", "amq.direct") for member in group.members)
    asked.ask(to_metadata.delete_queue(V, "q", False, False, "c"))
    assert all(member.routing.queue(V, "q") is None for member in group.members)
    group.check_equal()
