"""Each scenario in tests/testdata/rings is a conversation between members of a ring, named after the story it pins."""

import os
from pathlib import Path

import pytest

from .conversation import played

FOLDER = Path(__file__).resolve().parents[1] / "testdata" / "rings"
#: With this variable set the scenarios are written anew; read the difference before it is committed.
IS_REWRITING = "WARREN_REWRITE_SCENARIOS" in os.environ


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_is_written(path):
    text = path.read_text()
    result = played(text)
    if IS_REWRITING:
        path.write_text(result)
    assert result == text


def test_there_are_scenarios():
    assert len(list(FOLDER.glob("*.txt"))) >= 11
