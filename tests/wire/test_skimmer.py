"""The property skimmer finds what decides a message's fate, and finds the same as decoding does."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warren.amqp.errors import AmqpError
from warren.amqp.fields import MAX_DEPTH, Table, encode_table, table_from
from warren.amqp.parser import skimmer
from warren.amqp.parser.skimmer import DIRECT_REPLY_TO, fate, has_headers, is_special, slow_fate
from warren.amqp.properties import FLAG_HEADERS, NO_PROPERTIES, Properties, decode_properties, encode_properties

from .strategies import properties, short_strings, tables

thorough = settings(deadline=None, max_examples=300)

CELERY = Properties(
    content_type="application/json",
    content_encoding="utf-8",
    headers=table_from({"lang": "py", "task": "shop.add", "id": "f" * 36, "retries": 0, "eta": None, "group": None}),
    delivery_mode=2,
    priority=0,
    correlation_id="c" * 36,
    reply_to="r" * 36,
)
#: Headers in which the names that decide occur as names, as values, within values, and nested.
odd_headers = st.sampled_from(
    [
        Table((("CC", "A", (("S", b"a"),)),)),
        Table((("BCC", "S", b"no array"),)),
        Table((("cc", "S", b"\x02CC"),)),
        Table((("x", "F", Table((("CC", "A", ()),))),)),
        Table((("x", "A", (("S", b"\x03BCC"), ("F", Table()))),)),
        Table((("", "V", None), ("", "V", None))),
        Table(),
    ]
)


@thorough
@given(properties)
@example(Properties())
@example(CELERY)
@example(Properties(reply_to=DIRECT_REPLY_TO.decode()))
@example(Properties(reply_to=DIRECT_REPLY_TO.decode() + "x"))
@example(Properties(expiration="", user_id=""))
@example(Properties(expiration="00"))
@example(Properties(expiration="10"))
def test_skimming_and_decoding_agree(values):
    props = encode_properties(values)
    assert fate(props) == slow_fate(props)


@thorough
@given(properties, odd_headers)
def test_they_agree_about_names_that_decide(values, headers):
    values.headers = headers
    props = encode_properties(values)
    assert fate(props) == slow_fate(props)


@thorough
@given(properties, st.data())
def test_they_agree_about_what_is_cut_off_or_spoiled(values, data):
    """Whatever cannot be decoded gets a key of its own from the skimmer, so that the channel decodes it and
    refuses it.
    """
    props = bytearray(encode_properties(values))
    at = data.draw(st.integers(0, len(props) - 1))
    if data.draw(st.booleans()):
        del props[at:]
    else:
        props[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        props += data.draw(st.binary(max_size=9))
    spoiled = bytes(props)
    assert fate(spoiled) == slow_fate(spoiled)
    try:
        decode_properties(spoiled)
    except AmqpError:
        assert is_special(fate(spoiled)[0])


@thorough
@given(properties, short_strings, short_strings, tables, st.integers(0, (1 << 64) - 1))
def test_what_is_only_carried_does_not_change_the_key(values, first, second, headers, timestamp):
    values.headers = Table() if values.headers is not None else None
    values.reply_to = None
    before = fate(encode_properties(values))
    values.message_id, values.correlation_id, values.timestamp = first, second, timestamp
    values.type, values.app_id, values.cluster_id = second, first, second
    if values.headers is not None and b"CC" not in encode_table(headers):
        values.headers = headers
    assert fate(encode_properties(values)) == before


@pytest.mark.parametrize(
    "other",
    [
        {"delivery_mode": 1},
        {"delivery_mode": None},
        {"priority": 1},
        {"expiration": "0"},
        {"user_id": "guest"},
        {"headers": None},
        {"headers": table_from({"CC": ["a"]})},
        {"reply_to": DIRECT_REPLY_TO.decode()},
    ],
)
def test_what_decides_changes_the_key(other):
    changed = Properties(**{**{name: getattr(CELERY, name) for name in Properties.__slots__}, **other})
    assert fate(encode_properties(changed))[0] != fate(encode_properties(CELERY))[0]


@pytest.mark.parametrize("letter", [b"F", b"A"])
@pytest.mark.parametrize("levels", [1, MAX_DEPTH, MAX_DEPTH + 1, 9_000])
def test_they_agree_about_nesting(letter, levels):
    """A table nested more deeply than the limit gets a special key, and the channel refuses the message."""
    value = b"V"
    for _ in range(levels):
        entries = b"\x01n" + value if letter == b"F" else value
        value = letter + len(entries).to_bytes(4, "big") + entries
    headers = b"\x01n" + value
    props = FLAG_HEADERS.to_bytes(2, "big") + len(headers).to_bytes(4, "big") + headers
    assert fate(props) == slow_fate(props)
    assert is_special(fate(props)[0]) is (levels > MAX_DEPTH)


def test_headers_are_reported_for_headers_exchanges():
    assert has_headers(fate(encode_properties(CELERY))[0])
    assert not has_headers(fate(NO_PROPERTIES)[0])


@pytest.mark.parametrize("text", ["60000", "1", "-1", "never", ""])
def test_an_expiration_is_returned_beside_the_key(text):
    """An expiration other than 0 is returned beside the key and does not change it, not even an invalid one, which the
    channel refuses.
    """
    key, expiration = fate(encode_properties(Properties(expiration=text, delivery_mode=2)))
    assert expiration == text.encode()
    assert key.replace(b"z", b"") == fate(encode_properties(Properties(delivery_mode=2)))[0]


@pytest.mark.parametrize("text", ["0", "000", "+0", "-0"])
def test_an_expiration_of_zero_decides(text):
    """An expiration of 0 changes the key, because such a message may be dropped at once where others are
    kept (AB-96).
    """
    assert fate(encode_properties(Properties(expiration=text))) == (b"z", text.encode())


def test_the_number_of_generated_functions_is_bounded(monkeypatch):
    """A client may send all values of the property flags. Beyond a bound the properties are decoded instead of having a
    function generated for each value, with the same result.
    """
    generated = {}
    monkeypatch.setattr(skimmer, "_SKIMMERS", generated)
    monkeypatch.setattr(skimmer, "SKIMMERS_MAX", 2)
    for flags in range(8):
        props = encode_properties(Properties(message_id="7" if flags & 1 else None, priority=flags & 2 or None))
        props = bytes([props[0], props[1] | flags >> 2]) + props[2:]
        assert fate(props) == slow_fate(props)
    assert len(generated) == 2
