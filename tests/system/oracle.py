"""Which broker the tests talk to, and where warren departs from RabbitMQ on purpose."""

from __future__ import annotations

import os

import pytest

#: The URL of a RabbitMQ to compare with; None: an embedded broker of ours is tested.
ORACLE = os.environ.get("WARREN_TEST_URL")


def deviates(how: str) -> pytest.MarkDecorator:
    """This test asserts what the specification wants; RabbitMQ 3.10.8 does something else, namely `how`."""
    return pytest.mark.skipif(ORACLE is not None, reason=f"RabbitMQ 3.10.8 differs: {how}")
