"""Which broker the tests connect to, and where warren differs from RabbitMQ on purpose."""

from __future__ import annotations

import os

import pytest

#: The URL of a RabbitMQ to compare with; None if the tests run against an embedded broker.
ORACLE = os.environ.get("WARREN_TEST_URL")


def deviates(how: str) -> pytest.MarkDecorator:
    """Marks a test that asserts what the specification requires; RabbitMQ 3.10.8 does `how` instead."""
    return pytest.mark.skipif(ORACLE is not None, reason=f"RabbitMQ 3.10.8 differs: {how}")
