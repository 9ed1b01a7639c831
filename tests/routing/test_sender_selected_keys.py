"""Routing keys in the headers CC and BCC (AB-75)."""

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.routing.sender_selected_keys import sender_selected_keys


def test_the_keys_are_those_of_cc_then_those_of_bcc():
    """The keys are those of CC and then those of BCC; elements that are not long strings are ignored (AB-75)."""
    assert sender_selected_keys(None) == ()
    assert sender_selected_keys(table_from({"a": 1})) == ()
    assert sender_selected_keys(table_from({"BCC": ["b"], "CC": ["c1", 7, "c2", b"x"]})) == ("c1", "c2", "b")


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"CC": "a"}, '{unacceptable_type_in_header,"CC",longstr}'),
        ({"BCC": 1}, '{unacceptable_type_in_header,"BCC",signedint}'),
        ({"CC": None, "BCC": 1}, '{unacceptable_type_in_header,"CC",void}'),
    ],
)
def test_a_header_that_is_not_an_array_is_refused(headers, text):
    """A CC or BCC header that is no array fails the publish with 406 (AB-75)."""
    with pytest.raises(AmqpError) as caught:
        sender_selected_keys(table_from(headers))
    assert (caught.value.code, caught.value.text) == (406, f"invalid message: {text}")
