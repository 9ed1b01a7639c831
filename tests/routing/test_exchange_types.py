"""Which bindings of an exchange of each type match a message (AB-69 to AB-72, AB-78)."""

from __future__ import annotations

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.routing.exchanges.exchange_types import (
    DirectRouter,
    FanoutRouter,
    HeadersRouter,
    TopicRouter,
    UnavailableRouter,
    check_binding,
)
from warren.routing.rows import Binding

NONE = Table()


def binding(queue: str, key: str = "", arguments: Table = NONE) -> Binding:
    return Binding.of("x", "queue", queue, key, arguments)


def routed(router, *keys: str, headers=None) -> set[str]:
    found = router.route(keys, headers)
    assert len(found) == len(set(found))
    return {name for _, name in found}


class TestBinding:
    def test_the_order_of_arguments_does_not_matter(self):
        one = binding("q", "k", Table((("b", "I", 1), ("a", "I", 2))))
        assert one == binding("q", "k", Table((("a", "I", 2), ("b", "I", 1))))
        assert one != binding("q", "k", Table((("a", "I", 2), ("b", "I", 2))))
        assert len({one, binding("q", "k"), binding("q", "other")}) == 3


class TestDirect:
    def test_only_equal_keys_match(self):
        router = DirectRouter()
        for queue, key in (("q1", "a"), ("q2", "a"), ("q3", "b"), ("q4", "")):
            router.add(binding(queue, key))
        assert routed(router, "a") == {"q1", "q2"}
        assert routed(router, "a", "b") == {"q1", "q2", "q3"}
        assert routed(router, "") == {"q4"}
        assert routed(router, "A") == set()

    def test_a_second_binding_with_other_arguments_keeps_the_destination(self):
        router = DirectRouter()
        with_arguments = binding("q", "a", table_from({"x": 1}))
        router.add(binding("q", "a"))
        router.add(with_arguments)
        router.remove(binding("q", "a"))
        assert routed(router, "a") == {"q"}
        router.remove(with_arguments)
        assert routed(router, "a") == set()


class TestFanout:
    def test_every_binding_matches_any_key(self):
        router = FanoutRouter()
        router.add(binding("q1", "a"))
        router.add(binding("q2", "b"))
        router.add(binding("q2", "c"))
        assert routed(router, "z") == {"q1", "q2"}
        router.remove(binding("q2", "b"))
        assert routed(router, "z") == {"q1", "q2"}
        router.remove(binding("q2", "c"))
        assert routed(router, "z") == {"q1"}


class TestTopic:
    def test_bindings_that_differ_in_arguments_are_counted(self):
        router = TopicRouter()
        router.add(binding("q", "a.*"))
        router.add(binding("q", "a.*", table_from({"x": 1})))
        router.remove(binding("q", "a.*"))
        assert routed(router, "a.b") == {"q"}


HEADERS = [
    # binding arguments, message headers, whether they match
    ({}, {}, True),
    ({}, {"a": 1}, True),
    ({"x-match": "all"}, {}, True),
    ({"x-match": "any"}, {}, False),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"a": 1}, {"a": 1}, True),
    ({"a": 1}, {"a": 2}, False),
    ({"a": 1}, {}, False),
    ({"a": 1}, None, False),
    ({"a": 1, "b": 2}, {"a": 1}, False),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1, "c": 3}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 3}, False),
    # numbers match by value; values of different types do not match
    ({"a": 1}, {"a": 1.0}, True),
    ({"a": 1}, {"a": "1"}, False),
    ({"a": 1}, {"a": True}, False),
    ({"a": True}, {"a": 1}, False),
    ({"a": True}, {"a": True}, True),
    ({"a": "v"}, {"a": b"v"}, True),
    ({"a": [1, "b"]}, {"a": [1, "b"]}, True),
    ({"a": {"b": 1}}, {"a": {"b": 1}}, True),
    # void requires only that the header is present
    ({"a": None}, {"a": "anything"}, True),
    ({"a": None}, {"a": None}, True),
    ({"a": None}, {}, False),
    # names that begin with x- count only in the two -with-x modes
    ({"x-a": 1}, {}, True),
    ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
    ({"x-match": "all-with-x", "x-a": 1}, {}, False),
    ({"x-match": "all-with-x", "x-a": 1}, {"x-a": 1}, True),
    ({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1}, True),
    ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
    ({"x-match": "all-with-x"}, {}, True),
    # values that check_binding refuses, but that older data may contain
    ({"x-match": "some", "a": 1, "b": 2}, {"a": 1}, False),
    ({"x-match": 7, "a": 1}, {"a": 1}, True),
]


class TestHeaders:
    @pytest.mark.parametrize(("arguments", "headers", "matches"), HEADERS)
    def test_arguments_match_headers(self, arguments, headers, matches):
        router = HeadersRouter()
        router.add(binding("q", "ignored", table_from(arguments)))
        found = routed(router, "key", headers=None if headers is None else table_from(headers))
        assert found == ({"q"} if matches else set())

    def test_the_first_of_repeated_headers_counts(self):
        router = HeadersRouter()
        router.add(binding("q", "", table_from({"a": 1})))
        assert routed(router, headers=Table((("a", "I", 1), ("a", "I", 2)))) == {"q"}
        assert routed(router, headers=Table((("a", "I", 2), ("a", "I", 1)))) == set()

    def test_two_matching_bindings_of_one_queue_find_it_once(self):
        router = HeadersRouter()
        one, two = binding("q", "", table_from({"a": 1})), binding("q", "", table_from({"b": 1}))
        router.add(one)
        router.add(two)
        assert routed(router, headers=table_from({"a": 1, "b": 1})) == {"q"}
        router.remove(one)
        assert routed(router, headers=table_from({"a": 1})) == set()
        assert routed(router, headers=table_from({"b": 1})) == {"q"}


class TestCheckBinding:
    @pytest.mark.parametrize("mode", ["all", "any", "all-with-x", "any-with-x"])
    def test_the_four_modes_are_accepted(self, mode):
        check_binding("headers", table_from({"x-match": mode}))
        check_binding("headers", NONE)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("some", 'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'),
            (1, "Invalid x-match field type signedint (value 1); expected longstr"),
            (True, "Invalid x-match field type bool (value true); expected longstr"),
            (b"any", 'Invalid x-match field type binary (value <<"any">>); expected longstr'),
            (None, "Invalid x-match field type void (value undefined); expected longstr"),
            ([1], "Invalid x-match field type array (value [{signedint,1}]); expected longstr"),
        ],
    )
    def test_other_values_are_refused(self, value, text):
        """Other values of x-match are refused with 406, before the binding is added (AB-72)."""
        with pytest.raises(AmqpError) as caught:
            check_binding("headers", table_from({"x-match": value}))
        assert (caught.value.code, caught.value.text) == (406, text)

    def test_other_exchange_types_ignore_x_match(self):
        check_binding("topic", table_from({"x-match": 1}))


def test_an_unavailable_type_refuses_to_route():
    """An exchange whose type is not available refuses to route with 406 (AB-78)."""
    router = UnavailableRouter("/", "x", "x-random")
    router.add(binding("q"))
    with pytest.raises(AmqpError) as caught:
        router.route(("k",), None)
    text = "Cannot route message through exchange 'x' in vhost '/': exchange type x-random not found"
    assert (caught.value.code, caught.value.text) == (406, text)
