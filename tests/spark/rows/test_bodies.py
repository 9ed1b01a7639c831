"""Bodies become structs made from JSON, all of a batch by one parse where that is safe (SP-43)."""

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.spark.errors import SparkSourceError
from warren.spark.options import BatchOptions
from warren.spark.rows import bodies as bodies_module
from warren.spark.rows.bodies import body_column, check_body_type

TYPE = pa.struct([("a", pa.int64())])
#: Put together, these make objects, parts of objects that another body could end, and what lies between values.
PIECES = (
    *(b'{"a":1}', b'{"a":2}', b"{}", b'{"b":{}}', b'{"b":"}"}', b"null", b"[]", b"7", b"x"),
    *(b'{"a":', b'{"b":', b'{"b":[', b'{"b":"', b'"', b"]", b"{", b"}", b",", b'"b":3'),
    *(b'{"b":"\xff"}', b"\xff", b"\xc3\xa9"),
    *(b" ", b"\n", b"\r", b"\t", b"\v", b"\0", b"\xef\xbb\xbf"),
)
BODIES = st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join), min_size=1, max_size=5)


def columns(bodies, bad_bodies="null"):
    options = BatchOptions.parse(
        {"queue": "q", "bodyFormat": "json", "bodySchema": "a bigint", "badBodies": bad_bodies}
    )
    return body_column("q", range(len(bodies)), pa.array(bodies, pa.binary()), TYPE, options)


def found(bodies):
    """The rows of the bodies, and whether each has an error."""
    values, errors = columns(bodies)
    return values.to_pylist(), [error is not None for error in errors.to_pylist()]


def by_itself(body):
    """What `found` has for this body, by Python's parser."""
    try:
        value = json.loads(body.decode("utf-8-sig"))
    except ValueError:
        return None, True
    if not isinstance(value, dict) or not isinstance(value.get("a"), int | None):
        return None, True
    return {"a": value.get("a")}, False


@given(BODIES)
@example([b'{"a":1}{"a":2}', b""])
@example([b'{"a":1}{"a":2}', b" "])
@example([b'{"a":1}\n{"a":2}', b"", b'{"a":3}'])
@example([b'{"a":1', b'}{"a":2}'])
@example([b'{"b":"}', b'"}{}'])
@example([b'{"b":{"a":1}', b'}{"a":2}'])
@example([b"{}null", b""])
@example([b"{}{}\0}", b"{}"])
@example([b'{"b":"\xff","a":1}', b'{"a":2}'])
def test_a_body_has_the_same_row_in_every_batch(bodies):
    assert list(zip(*found(bodies))) == [by_itself(body) for body in bodies]


@pytest.mark.parametrize("body", [b"null", b" null", b"\xef\xbb\xbfnull", b"null{}", b"[1]", b"7", b""])
def test_a_body_that_is_no_object_is_an_error(body):
    """Such a body is null and has an error. It is kept from Arrow's parser, which crashes the process on a `null`."""
    assert [column.to_pylist() for column in columns([body, b'{"a":1}'])] == [
        [None, {"a": 1}],
        ["no JSON object", None],
    ]
    with pytest.raises(SparkSourceError, match="number 0: the body is not JSON of 'a bigint'.*no JSON object"):
        columns([body], "fail")


def test_good_objects_are_parsed_at_once(monkeypatch):
    """If all bodies are objects, the parser is called once for the whole batch, also if some have several lines."""
    parsed, parse = [], bodies_module._parsed
    monkeypatch.setattr(bodies_module, "_parsed", lambda lines, type: parsed.append(lines) or parse(lines, type))
    assert found([b'{"a": 1}', b'{\r\n "a": 2\n}'] * 10) == ([{"a": 1}, {"a": 2}] * 10, [False] * 20)
    assert len(parsed) == 1


@pytest.mark.parametrize("body", [b'{"a":"\xff"}', b'{"\xff":"","a":"x"}', b'{"a":"\xed\xa0\x80"}'])
def test_a_body_that_is_not_utf_8_is_no_json(body):
    """Spark must not get strings that are not UTF-8, which Arrow's parser makes of such a body."""
    options = BatchOptions.parse({"queue": "q", "bodyFormat": "json", "bodySchema": "a string"})
    bodies = pa.array([body, b'{"a":"y"}'], pa.binary())
    values, errors = body_column("q", range(2), bodies, pa.struct([("a", pa.string())]), options)
    assert values.to_pylist() == [None, {"a": "y"}]
    assert "not UTF-8" in errors[0].as_py() and errors[1].as_py() is None


def test_a_type_that_json_cannot_become_is_refused():
    """A type that Arrow cannot make of JSON is an error before anything is read: bodies would be null, or end tasks."""
    good = [
        pa.int8(),
        pa.float32(),
        pa.decimal128(9, 2),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.timestamp("us", "UTC"),
    ]
    struct = pa.struct([(str(place), type) for place, type in enumerate(good)])
    check_body_type(pa.struct([("all", pa.list_(struct))]))
    for bad in (pa.date32(), pa.map_(pa.string(), pa.int64()), pa.duration("us"), pa.list_(pa.date32())):
        for type in (pa.struct([("d", bad)]), pa.struct([("d", pa.list_(pa.struct([("e", bad)])))])):
            with pytest.raises(
                SparkSourceError, match="option 'bodySchema'.*field 'd'.*Declare it as string"
            ) as caught:
                check_body_type(type)
            assert caught.value.code == "E4"
