"""Silences the log, because processes crash on purpose here, and each crash is logged."""

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
