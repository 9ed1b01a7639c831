"""Each scenario in tests/testdata/rings is a conversation between members of a ring, named after the story it tells."""

import pytest

from warren.tests.conversations import check, files

from .conversation import played


@pytest.mark.parametrize("path", files("rings", least=11), ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_is_written(path):
    check(path, played)
