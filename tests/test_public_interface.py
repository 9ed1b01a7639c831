"""The public interface: the names in `warren` and `warren.extensions`, and the keywords that an editor completes."""

import dataclasses
from os import PathLike
from typing import get_type_hints

import pytest

import warren
import warren.extensions
from warren.amqp.channel_state import CLIENT_METHODS
from warren.amqp.methods import ChannelOpen
from warren.amqp.properties import Properties
from warren.messaging import MessageProperties
from warren.settings import NodeKeywords, SettingKeywords, Settings


@pytest.mark.parametrize("module", [warren, warren.extensions], ids=lambda module: module.__name__)
def test_every_public_name_can_be_imported(module):
    assert sorted(module.__all__) == module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


def test_other_names_of_warren_are_unknown():
    with pytest.raises(AttributeError, match="module 'warren' has no attribute 'Brocker'"):
        _ = warren.Brocker


def test_every_method_that_can_be_intercepted_is_public():
    interceptable = {method.__name__ for method in CLIENT_METHODS if method is not ChannelOpen}
    assert interceptable <= set(warren.extensions.__all__)


def test_the_keywords_of_settings_are_its_fields():
    """Type checkers and editors read the keywords from `SettingKeywords`, which must list the same fields as
    `Settings`.
    """
    expected = get_type_hints(Settings)
    for item in dataclasses.fields(Settings):
        if item.metadata.get("path"):  # any path is accepted, and stored as a str
            expected[item.name] = expected[item.name] | PathLike[str]
    assert get_type_hints(SettingKeywords) == expected
    assert set(get_type_hints(NodeKeywords)) == set(expected) - {"host", "port"}


def test_the_keywords_of_publish_are_the_properties_of_amqp():
    assert set(get_type_hints(MessageProperties)) == {item.name for item in dataclasses.fields(Properties)} - {
        "headers"
    }
