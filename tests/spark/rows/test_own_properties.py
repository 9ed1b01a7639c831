"""Properties that differ from message to message: the decoding by column gives what decoding them one by one gives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.amqp.fields import table_from
from warren.amqp.frames import build_content
from warren.amqp.properties import Properties, encode_properties
from warren.spark.archive.archive_reader import MADE_SCHEMA, MESSAGE_SCHEMA
from warren.spark.options import BatchOptions
from warren.spark.rows import columns
from warren.spark.rows.messages import RunDescription, from_contents
from warren.spark.rows.own_properties import OwnProperties

TEXTS = [name for name in columns._TEXTS]
_values = {
    **{name: st.text(max_size=12) for name in TEXTS},
    **{"priority": st.integers(0, 255), "delivery_mode": st.integers(0, 255), "timestamp": st.integers(0, 2**64 - 1)},
    "headers": st.sampled_from([{"a": 1}, {"b": "x", "CC": ["k"]}, {"x-death": [{"queue": "q", "count": 3}]}, {}]).map(
        table_from
    ),
}
properties = st.fixed_dictionaries({}, optional=_values).map(lambda given: encode_properties(Properties(**given)))

damaged = st.tuples(properties, st.integers(0, 60), st.binary(max_size=3)).map(
    lambda found: found[0][: found[1]] + found[2]
)


def batch(many, options):
    contents = [build_content(1, props, b"x", 4096) for props in many]
    messages = from_contents(0, len(many), range(len(many)), contents, [RunDescription(len(many), "", ("k",), False)])
    return messages, options.batch("q", "", messages)


@pytest.fixture(scope="module")
def plans(row_plan):
    wanted = "message_id,headers,timestamp,priority,persistent,x_death,routing_keys," + ",".join(TEXTS)
    return [
        row_plan(BatchOptions.parse({"queue": "q", "columns": wanted, "headersFormat": format}))
        for format in ("map", "json", "none")
    ]


@settings(max_examples=75, deadline=None)
@given(st.lists(properties, min_size=1, max_size=8), st.sampled_from([0, 1, 2]))
def test_whole_properties(plans, many, place):
    """The decoding by column agrees with the simple parser for any properties (SP-42)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "FEW_PROPERTIES", 1 << 30)
        messages, plain = batch(many, plans[place])
        patched.setattr(columns, "FEW_PROPERTIES", -1)
        assert OwnProperties.of(messages) is not None
        assert batch(many, plans[place])[1].to_pylist() == plain.to_pylist()


@settings(max_examples=75, deadline=None)
@given(st.lists(properties | damaged, min_size=1, max_size=6), st.sampled_from([-1, 64]))
def test_a_task_of_an_archive_makes_the_same_rows(many, few):
    """A column that has each distinct value once has the same values in its rows as a plain column."""
    options = BatchOptions.parse({"queue": "q", "columns": "all"})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "FEW_PROPERTIES", few)
        plain = batch(many, columns.RowPlan(MESSAGE_SCHEMA, options))[1]
        assert batch(many, columns.RowPlan(MADE_SCHEMA, options))[1].to_pylist() == plain.to_pylist()


@settings(max_examples=75, deadline=None)
@given(st.lists(properties | damaged, min_size=1, max_size=6))
def test_properties_that_cannot_be_decoded(plans, many):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "FEW_PROPERTIES", 1 << 30)
        plain = batch(many, plans[0])[1]
        patched.setattr(columns, "FEW_PROPERTIES", -1)
        assert batch(many, plans[0])[1].to_pylist() == plain.to_pylist()


def test_many_ids_are_not_decoded_one_by_one(plans, monkeypatch):
    monkeypatch.setattr(columns, "decoded", None)
    many = [encode_properties(Properties(message_id=f"m-{number}", delivery_mode=2)) for number in range(1000)]
    plan = plans[0]
    found = batch(many, plan)[1]
    assert found.column("message_id").to_pylist() == [f"m-{number}" for number in range(1000)]
