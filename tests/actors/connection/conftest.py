"""One connection on virtual time."""

from __future__ import annotations

import pytest

from .line import Line


@pytest.fixture(params=[1, 2, 3], ids=lambda seed: f"seed{seed}")
def make_line(request, monkeypatch):
    """`make_line(**settings)` connects a client. Each seed cuts its input and orders the turns of processes in another
    way.
    """
    return lambda **options: Line(monkeypatch, request.param, **options)


@pytest.fixture
def line(make_line):
    """A connection that is open, without heartbeats."""
    line = make_line()
    line.open()
    return line
