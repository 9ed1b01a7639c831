"""Clients of one node use queues on another."""

from __future__ import annotations

import pytest

from .nodes import Nodes


@pytest.fixture
def nodes(monkeypatch):
    nodes = Nodes(monkeypatch)
    nodes.home("b")
    return nodes


def test_publish_and_get(nodes):
    channel = nodes.channel("a")
    channel.confirm()
    channel.queue("q")
    for number in range(3):
        channel.publish(b"%d" % number, "q")
    assert channel.confirms(1, 3) == ([1, 2, 3], [])
    assert channel.ready("q") == 3
    other = nodes.channel("b")
    assert other.get_all("q") == [b"0", b"1", b"2"]
