"""Nodes that a test makes are ended with it."""

from __future__ import annotations

import pytest

from .nodes import Node


@pytest.fixture
def node():
    """Make a node: `node("a", incarnation="2", ...)`."""
    made = []

    def make(name, **options):
        made.append(Node(name, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()
