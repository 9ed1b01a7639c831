"""The fixture `node`, which makes nodes and ends them with the test."""

from __future__ import annotations

import pytest

from .nodes import Node


@pytest.fixture
def node():
    """`node("a", incarnation="2", ...)` makes a node, which is stopped after the test."""
    made = []

    def make(name, **options):
        made.append(Node(name, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()
