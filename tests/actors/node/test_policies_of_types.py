"""A policy for the queues of one type, in a cluster whose nodes may have an older version (CL-26)."""

import pytest

from warren.actors.node.operations.definitions.policies import check_feature
from warren.definitions.definitions import Definitions
from warren.definitions.errors import DefinitionError
from warren.definitions.features import POLICIES_OF_TYPES
from warren.definitions.records import EnabledFeature, Node, Policy


def test_it_waits_until_every_node_can_apply_it():
    """An older node would apply the policy to all queues, and drop messages of the others."""
    definitions = Definitions()
    of_streams = Policy("/", "short", "", '{"max-length-bytes":9}', "streams")
    check_feature(definitions, of_streams)
    definitions.put(Node("a", "a" * 32))
    check_feature(definitions, Policy("/", "short", "", '{"max-length-bytes":9}', "queues"))
    with pytest.raises(DefinitionError, match="'policies_of_types': older nodes would apply policy 'short' to all"):
        check_feature(definitions, of_streams)
    definitions.put(EnabledFeature(POLICIES_OF_TYPES))
    check_feature(definitions, of_streams)
