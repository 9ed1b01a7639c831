"""The key by which a queue recognises a message that is published twice (SP-30)."""

import hypothesis.strategies as st
from hypothesis import given

from warren.amqp.deduplication_key import HEADER, deduplication_key, deduplication_keys, slow_deduplication_key
from warren.amqp.fields import Table, table_from
from warren.amqp.frames import build_content
from warren.amqp.properties import Properties, encode_properties

TEXTS = st.none() | st.text(max_size=20)
HEADERS = st.none() | st.dictionaries(
    st.sampled_from([HEADER, "trace", "CC"]), st.text(max_size=5) | st.integers(0, 9) | st.booleans(), max_size=3
).map(table_from)
PROPERTIES = st.builds(
    Properties,
    content_type=TEXTS,
    content_encoding=TEXTS,
    headers=HEADERS,
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.sampled_from([None, 0, 9]),
    correlation_id=TEXTS,
    reply_to=TEXTS,
    expiration=TEXTS,
    message_id=TEXTS,
    timestamp=st.sampled_from([None, 5]),
    app_id=TEXTS,
    cluster_id=TEXTS,
)
#: Nothing with text comes before the message-id of these.
PLAIN = st.builds(
    Properties,
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.sampled_from([None, 0, 9]),
    message_id=TEXTS,
    timestamp=st.sampled_from([None, 5]),
    user_id=TEXTS,
)


@given(PROPERTIES)
def test_the_fast_way_finds_what_decoding_finds(properties):
    props = encode_properties(properties)
    assert deduplication_key(props) == slow_deduplication_key(props)


@given(st.lists(st.tuples(PROPERTIES | PLAIN, st.binary(max_size=300)), max_size=5))
def test_the_keys_of_contents_are_those_of_their_properties(messages):
    encoded = [(encode_properties(properties), body) for properties, body in messages]
    contents = [build_content(1, props, body, 4096) for props, body in encoded]
    assert deduplication_keys(contents) == [slow_deduplication_key(props) for props, _ in encoded]


def key(**properties):
    return deduplication_key(encode_properties(Properties(**properties)))


def test_the_header_comes_before_the_message_id():
    headers = table_from({HEADER: "1"})
    assert key(message_id="2", headers=headers) == key(headers=headers) != key(message_id="1")


def test_a_message_with_neither_has_no_key():
    assert key() is None
    assert key(headers=table_from({"trace": "x"}), timestamp=1) is None


def test_a_header_of_another_type_counts_as_absent():
    headers = Table([(HEADER, "I", 7)])
    assert key(headers=headers) is None
    assert key(headers=headers, message_id="7") == key(message_id="7")
