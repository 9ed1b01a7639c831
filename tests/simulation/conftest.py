"""What processes log is not looked at here: crashes are what it is about."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def quiet():
    logger = logging.getLogger("warren")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
