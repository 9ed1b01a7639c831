"""Each scenario in tests/testdata/consensus is a conversation between nodes, named after the story that it pins."""

import pytest

from warren.tests.conversations import check, files

from .conversation import played


@pytest.mark.parametrize("path", files("consensus", least=15), ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_is_written(path):
    check(path, played)
