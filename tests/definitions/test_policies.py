"""Policies: what RabbitMQ 3.10.8 accepts and refuses, which one applies, and how two are merged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.definitions import patterns
from warren.definitions.definitions import Definitions
from warren.definitions.errors import DefinitionError
from warren.definitions.policies import FOREIGN, QUEUES_OF_TYPE, VhostPolicies, merged
from warren.definitions.policy_keys import checked_policy
from warren.definitions.records import Policy

#: Definitions, and the texts with which RabbitMQ 3.10.8 refuses them (`rabbitmqctl set_policy`).
REFUSED = [
    ('{"message-ttl":-1}', "-1 is not a valid message TTL"),
    ('{"message-ttl":"a"}', '<<"a">> is not a valid message TTL'),
    ('{"expires":0}', "0 is not a valid queue expiry"),
    ('{"max-length":-1}', "-1 is not a valid maximum length"),
    ('{"max-length":1.5}', "1.5 is not a valid maximum length"),
    ('{"max-length-bytes":-2}', "-2 is not a valid maximum length in bytes"),
    ('{"overflow":"x"}', '<<"x">> is not a valid overflow value'),
    ('{"queue-mode":"x"}', '<<"x">> is not a valid queue-mode value'),
    ('{"queue-version":3}', "3 is not a valid queue-version value"),
    ('{"queue-master-locator":"x"}', '<<"x">> invalid queue-master-locator value'),
    ('{"queue-leader-locator":"x"}', '<<"x">> is not a valid queue leader locator value'),
    ('{"dead-letter-exchange":1}', "1 is not a valid dead letter exchange name"),
    ('{"dead-letter-routing-key":1}', "1 is not a valid dead letter routing key"),
    ('{"dead-letter-strategy":"x"}', '<<"x">> is not a valid dead letter strategy'),
    ('{"alternate-exchange":1}', "1 is not a valid alternate exchange name"),
    ('{"delivery-limit":-1}', "-1 is not a valid delivery limit"),
    ('{"max-in-memory-length":-1}', "-1 is not a valid maximum memory in bytes"),
    ('{"max-age":"1X"}', '<<"1X">> is not a valid max age'),
    ('{"stream-max-segment-size-bytes":-1}', "-1 is not a valid segment size"),
    ('{"ha-mode":"x"}', '<<"x">> is not a valid ha-mode value'),
    ('{"ha-mode":"exactly"}', 'ha-mode="exactly" takes an integer, none given'),
    ('{"ha-mode":"exactly","ha-params":"a"}', 'ha-mode="exactly" takes an integer, <<"a">> given'),
    ('{"ha-params":2}', "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"),
    ('{"ha-mode":"all","ha-params":2}', 'ha-mode="all" does not take parameters'),
    ('{"ha-mode":"nodes","ha-params":2}', 'ha-mode="nodes" takes a list, 2 given'),
    ('{"ha-mode":"nodes","ha-params":[]}', 'ha-mode="nodes" list must be non-empty'),
    ('{"ha-mode":"nodes","ha-params":["a",1,2]}', 'ha-mode="nodes" takes a list of strings, [1,2] was not a string'),
    ('{"ha-mode":"all","ha-sync-mode":"x"}', 'ha-sync-mode must be "manual" or "automatic", got <<"x">>'),
    ('{"ha-mode":"all","ha-sync-batch-size":0}', "ha-sync-batch-size takes an integer greater than 0, 0 given"),
    (
        '{"ha-mode":"all","ha-promote-on-failure":"x"}',
        'ha-promote-on-failure must be "always" or "when-synced", got <<"x">>',
    ),
    ('{"bogus":1,"message-ttl":1}', '[{<<"bogus">>,1}] are not recognised policy settings'),
    ("{}", "no policy provided"),
]


#: The same for keys that RabbitMQ does not have.
OWN_REFUSED = [
    ('{"deduplicate":0}', "0 is not a valid deduplication window; should be from 1 to 10000000 messages"),
    ('{"deduplicate":10000001}', "10000001 is not a valid deduplication window; should be from 1 to 10000000 messages"),
    ('{"deduplicate":true}', "true is not a valid deduplication window; should be from 1 to 10000000 messages"),
    ('{"ha-mode":"all","ha-min-in-sync":0}', "ha-min-in-sync takes an integer greater than 0, 0 given"),
    ('{"ha-mode":"all","ha-min-in-sync":true}', "ha-min-in-sync takes an integer greater than 0, true given"),
    (
        '{"ha-mode":"exactly","ha-params":2,"ha-min-in-sync":3}',
        "ha-min-in-sync is 3, and a queue with this policy has at most 2 replicas",
    ),
    (
        '{"ha-mode":"nodes","ha-params":["a","b","a"],"ha-min-in-sync":3}',
        "ha-min-in-sync is 3, and a queue with this policy has at most 2 replicas",
    ),
    ('{"ha-mode":"all","ha-ack-timeout":999}', "ha-ack-timeout takes milliseconds from 1000 to 300000, 999 given"),
    (
        '{"ha-ack-timeout":5000}',
        "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown",
    ),
]


def checked(definition, apply_to="all", is_operator=False, pattern="^a"):
    return checked_policy("/", "p", pattern, definition, apply_to, 0, is_operator)


@pytest.mark.parametrize(
    "definition",
    [
        '{"ha-mode":"all","ha-min-in-sync":9,"ha-ack-timeout":1000}',
        '{"ha-mode":"exactly","ha-params":2,"ha-min-in-sync":2}',
        '{"ha-mode":"nodes","ha-params":["a"],"ha-sync-mode":"automatic","ha-promote-on-failure":"when-synced"}',
    ],
)
def test_policies_that_mirror_are_kept(definition):
    assert json.loads(checked(definition).definition) == json.loads(definition)


@pytest.mark.parametrize(("definition", "text"), OWN_REFUSED)
def test_values_of_own_keys_are_checked(definition, text):
    with pytest.raises(DefinitionError) as refusal:
        checked(definition)
    assert refusal.value.text == f"Validation failed\n\n{text}\n"


@pytest.mark.parametrize(("definition", "text"), REFUSED)
def test_what_rabbitmq_refuses_is_refused_with_its_text(definition, text):
    """Definitions that RabbitMQ refuses are refused with its text (CM-126, CM-127)."""
    with pytest.raises(DefinitionError) as refusal:
        checked(definition)
    assert refusal.value.text == f"Validation failed\n\n{text}\n"
    assert refusal.value.kind == "unavailable"


@pytest.mark.parametrize("definition", ['{"max-length":true}', "[]", "3", "{", '{"max-length":NaN}', "[" * 100_000])
def test_what_is_no_object_of_good_values_is_refused(definition):
    with pytest.raises(DefinitionError):
        checked(definition)


def test_other_refusals():
    """A wrong apply-to, a wrong pattern, and a key not meant for operator policies are refused (CM-126, CM-127)."""
    with pytest.raises(DefinitionError) as refusal:
        checked('{"max-length":1}', apply_to="nothing")
    assert refusal.value.text.endswith(
        "\n\napply-to 'nothing' unrecognised; should be 'queues', 'exchanges' or 'all'\n"
    )
    with pytest.raises(DefinitionError, match=r"should be 'queues', 'exchanges' or 'all'. Did you mean 'streams'\?"):
        checked('{"max-length":1}', apply_to="stream")
    with pytest.raises(DefinitionError, match="pattern should be regular expression but is invalid"):
        checked('{"max-length":1}', pattern="(")
    with pytest.raises(
        DefinitionError, match=r'\[{<<"overflow">>,<<"drop-head">>}\] are not recognised policy settings'
    ):
        checked('{"overflow":"drop-head"}', is_operator=True)


def policy(name, definition, priority=0, pattern="", apply_to="all", is_operator=False):
    return Policy("/", name, pattern, definition, apply_to, priority, is_operator)


def test_the_highest_priority_applies_and_of_equal_ones_the_first_name():
    """Of the policies that match, the one with the highest priority applies, and of equal priorities the first by name
    (CM-128, CM-429).
    """
    policies = VhostPolicies(
        [
            policy("low", '{"max-length":1}', 1),
            policy("zeta", '{"max-length":2}', 5),
            policy("beta", '{"max-length":3}', 5),
            policy("other", '{"max-length":4}', 9, pattern="^x"),
        ]
    )
    assert policies.effective("classic", "q").policy == "beta"
    assert policies.effective("classic", "x").policy == "other"
    assert policies.effective("exchanges", "q").policy == "beta"


def test_a_definition_with_a_key_that_the_type_does_not_know_applies_to_no_such_queue():
    policies = VhostPolicies(
        [policy("quorum", '{"delivery-limit":3,"max-length":1}', 1), policy("any", '{"max-length":2}')]
    )
    assert policies.effective("classic", "q").policy == "any"
    assert policies.effective("quorum", "q").policy == "quorum"


def test_an_operator_policy_applies_to_queues_beside_a_policy():
    """An operator policy applies to a queue together with an ordinary policy (CM-127, CM-128)."""
    policies = VhostPolicies(
        [
            policy("own", '{"max-length":10,"message-ttl":5,"overflow":"drop-head"}', apply_to="queues"),
            policy("cap", '{"max-length":3,"message-ttl":9,"expires":7}', is_operator=True),
        ]
    )
    found = policies.effective("classic", "q")
    assert (found.policy, found.operator_policy) == ("own", "cap")
    assert dict(found.definition) == {"max-length": 3, "message-ttl": 5, "overflow": "drop-head", "expires": 7}
    assert policies.effective("exchanges", "q").operator_policy is None


@pytest.mark.parametrize("is_operator", [False, True])
def test_a_policy_may_apply_to_the_queues_of_one_type(is_operator):
    """`apply-to` takes the values that RabbitMQ has since 3.12, which definition files of later versions have."""
    policies = VhostPolicies(
        checked_policy("/", each, "", '{"max-length-bytes":1}', each, 0, is_operator) for each in QUEUES_OF_TYPE
    )
    found = {kind: policies.effective(kind, "q") for kind in FOREIGN}
    names = {kind: each.operator_policy if is_operator else each.policy for kind, each in found.items()}
    assert names == {
        "exchanges": None,
        "classic": "classic_queues",
        "quorum": "quorum_queues",
        "stream": "streams",
    }


VALUES = st.integers(0, 5) | st.booleans()
DEFINITIONS = st.dictionaries(st.sampled_from("abc"), VALUES)


@given(DEFINITIONS, DEFINITIONS)
def test_the_merge_has_all_keys_the_smaller_numbers_and_the_operators_booleans(own, operator):
    """Merged policies have all keys of both, the smaller number of each, and the operator's booleans (CM-127)."""
    found = merged(own, operator)
    assert found.keys() == own.keys() | operator.keys()
    for key, value in found.items():
        given_values = [each[key] for each in (own, operator) if key in each]
        assert value in given_values
        if all(type(each) is int for each in given_values):
            assert value == min(given_values)
        elif key in operator:
            assert value is operator[key]


def test_nothing_is_kept_for_virtual_hosts_without_policies():
    """Nothing is kept for virtual hosts without policies, because each is asked for when a queue is declared in it, and
    they come and go.
    """
    definitions = Definitions()
    policy = Policy("here", "all", ".*", "{}")
    definitions.put(policy)
    assert definitions.policies_of("here") is definitions.policies_of("here") is not None
    assert definitions.policies_of("gone") is None
    definitions.remove(policy)
    assert definitions.policies_of("here") is None
    assert not definitions._of_vhost and not definitions._with_policies and not definitions._outdated


POLICIES = st.builds(
    policy,
    st.sampled_from("abcdef"),
    st.sampled_from(['{"max-length":1}', '{"expires":2}', '{"delivery-limit":3}', '{"alternate-exchange":"x"}']),
    st.integers(0, 2),
    st.sampled_from(["^a", "b$", "", "[cd]", "x|y"]),
    st.sampled_from(["all", "queues", *QUEUES_OF_TYPE, "exchanges"]),
    st.booleans(),
)
KINDS_AND_NAMES = [(kind, name) for kind in FOREIGN for name in ("a", "ab", "b", "cab", "d", "xyz", "zz")]


@given(st.lists(st.tuples(st.lists(POLICIES, max_size=3), st.sets(st.sampled_from(KINDS_AND_NAMES)))))
def test_what_applies_after_changes_is_what_would_apply_without_any_memory_of_the_time_before(steps):
    """What applied to a name is kept over changes of policies that do not match it. It is always what the policies,
    put together anew, would give.
    """
    definitions = Definitions()
    for number in range(6):
        definitions.put(policy(f"more {number}", "{}", -number, "zz"))
    for changed, asked_for in steps:
        for each in changed:
            if definitions.policies.get(each.key) == each:
                definitions.remove(each)
            else:
                definitions.put(each)
        policies = definitions.policies_of("/")
        anew = VhostPolicies(definitions.policies.values())
        for kind, name in asked_for:
            assert policies.effective(kind, name) == anew.effective(kind, name)


def test_a_name_that_no_changed_policy_matches_is_not_searched_for_again(monkeypatch):
    """With 200 policies and 5,000 queues each change of a policy took 0.6 s of the processor."""
    definitions = Definitions()
    for number in range(200):
        definitions.put(policy(f"p{number}", f'{{"max-length":{number}}}', number, f"^q{number}$"))
    names = [f"q{number}" for number in range(300)]
    policies = definitions.policies_of("/")
    before = [policies.effective("classic", name) for name in names]
    searches = []
    matches = patterns.matches
    monkeypatch.setattr(patterns, "matches", lambda *given: searches.append(given) or matches(*given))
    definitions.put(policy("p7", '{"max-length":7000}', 7, "^q7$"))
    definitions.put(policy("new", '{"max-length":8000}', 1000, "^q8$"))
    policies = definitions.policies_of("/")
    after = [policies.effective("classic", name) for name in names]
    assert [at for at, found in enumerate(after) if found != before[at]] == [7, 8]
    assert len(searches) < 3 * len(names) + 2 * 202


@pytest.mark.parametrize(
    ("own", "operator", "rate", "period"),
    [
        ({"pace-rate": 5}, {"pace-rate": 10}, 5, 1000),
        ({"pace-rate": 50}, {"pace-rate": 10}, 10, 1000),
        ({"pace-rate": 50, "pace-period-ms": 60_000}, {"pace-rate": 10}, 50, 60_000),
        ({"pace-rate": 5, "pace-period-ms": 1}, {"pace-rate": 10}, 10, 1000),
        ({"pace-period-ms": 1}, {"pace-rate": 10}, 10, 1000),
        ({}, {"pace-rate": 10, "pace-period-ms": 500}, 10, 500),
    ],
)
def test_the_slower_rate_counts_with_its_period(own, operator, rate, period):
    """Of two rates the slower one counts, with its period, so that an ordinary policy cannot exceed the operator's rate
    by another period (QP-101).
    """
    found = merged(own, operator)
    assert (found["pace-rate"], found["pace-period-ms"]) == (rate, period)


def test_the_cost_comes_with_the_rate():
    """The cost goes with the rate that counts: 10 messages a second and 20 KiB a second are not mixed (QP-101)."""
    by_size, by_count = {"pace-rate": 20, "pace-cost": "kib"}, {"pace-rate": 10}
    assert merged(by_size, by_count)["pace-cost"] == "message"
    assert merged(by_count, by_size)["pace-cost"] == "message"
    assert merged({"pace-rate": 30}, by_size)["pace-cost"] == "kib"
    assert "pace-cost" not in merged({"pace-rate": 30}, by_count)


def test_the_scope_is_that_of_the_operator():
    """The operator's scope counts, because otherwise an ordinary policy could give each consumer the rate that the
    operator allows the queue (QP-101).
    """
    each = {"pace-rate": 5, "pace-scope": "consumer"}
    assert merged(each, {"pace-rate": 10})["pace-scope"] == "queue"
    assert merged(each, {"pace-rate": 10, "pace-scope": "group"})["pace-scope"] == "group"
    assert merged(each, {"pace-burst": 1})["pace-scope"] == "consumer"


def test_a_pace_group_has_a_name_and_no_other_scope():
    assert checked('{"pace-rate":5,"pace-group":"api"}', is_operator=True)
    assert checked('{"pace-rate":5,"pace-group":"api","pace-scope":"group"}', is_operator=True)
    for definition, text in (
        ('{"pace-rate":5,"pace-group":""}', "is not a valid pace group"),
        (
            '{"pace-rate":5,"pace-group":"api","pace-scope":"consumer"}',
            "pace-group and the pace-scope consumer cannot be used together",
        ),
    ):
        with pytest.raises(DefinitionError, match=text):
            checked(definition, is_operator=False)


def test_operator_policies_may_pace():
    assert checked('{"pace-rate":5,"pace-overflow":"nack","pace-get":true}', is_operator=True)
    with pytest.raises(DefinitionError, match="1 is not a valid pace-get value"):
        checked('{"pace-get":1}', is_operator=True)
