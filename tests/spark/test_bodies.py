"""Bodies become structs made from JSON, all of a batch by one parse where that is safe (SP-43)."""

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.spark.errors import SparkSourceError
from warren.spark.options import BatchOptions
from warren.spark.rows import bodies as bodies_module
from warren.spark.rows.bodies import body_column

TYPE = pa.struct([("a", pa.int64())])
#: Put together, these make objects, parts of objects that another body could end, and what lies between values.
PIECES = (
    *(b'{"a":1}', b'{"a":2}', b"{}", b'{"b":{}}', b'{"b":"}"}', b"null", b"[]", b"7", b"x"),
    *(b'{"a":', b'{"b":', b'{"b":[', b'{"b":"', b'"', b"]", b"{", b"}", b",", b'"b":3'),
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
