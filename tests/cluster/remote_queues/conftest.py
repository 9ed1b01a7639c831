"""Nodes for the tests of this folder, whose processes must not crash unless the test provokes it."""

from __future__ import annotations

import pytest

from .nodes import Nodes


@pytest.fixture
def make(monkeypatch):
    """`make(names, seed, **settings)` starts nodes, which are closed after the test."""
    made = []

    def make(names="ab", **options):
        made.append(Nodes(monkeypatch, names, **options))
        return made[-1]

    yield make
    for nodes in made:
        assert [crash for crash in nodes.world.crashes if crash[0] not in nodes.provoked] == []


@pytest.fixture
def nodes(make):
    """The nodes a and b; new queues get their home on b."""
    nodes = make()
    nodes.home("b")
    return nodes
