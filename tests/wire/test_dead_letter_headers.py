"""The headers and keys of dead-lettered messages, and dead-letter cycles (AB-147 to AB-153, AB-155)."""

from __future__ import annotations

import pytest

from warren.amqp.dead_letter_headers import EXPIRED, MAXLEN, REJECTED, dead_letter, is_cycle, prepend_to_array_header
from warren.amqp.fields import Table, table_from, table_to_dict
from warren.amqp.properties import Properties, decode_properties, encode_properties

TIME = 1_700_000_000


def die(headers=None, reason=REJECTED, queue="q", exchange="x", keys=("k",), key=None, time=TIME, **properties):
    table = headers if headers is None or isinstance(headers, Table) else table_from(headers)
    return dead_letter(Properties(headers=table, **properties), reason, queue, exchange, keys, time, key)


def deaths(dead) -> list[dict]:
    return table_to_dict(dead.properties.headers)["x-death"]


class TestFirstDeath:
    def test_the_entry_has_these_fields(self):
        """An entry of x-death has the names, letters and values that AB-149 lists."""
        dead = die(expiration="100", keys=("k", "cc"), headers={"CC": ["cc"]})
        assert dead.properties.headers.get("x-death") == (
            "A",
            (
                (
                    "F",
                    (
                        ("count", "l", 1),
                        ("reason", "S", b"rejected"),
                        ("queue", "S", b"q"),
                        ("time", "T", TIME),
                        ("exchange", "S", b"x"),
                        ("routing-keys", "A", (("S", b"k"), ("S", b"cc"))),
                        ("original-expiration", "S", b"100"),
                    ),
                ),
            ),
        )

    def test_the_headers_can_be_encoded_and_decoded(self):
        properties = die(expiration="100", headers={"a": 1}).properties
        assert decode_properties(encode_properties(properties)) == properties

    @pytest.mark.parametrize("reason", [REJECTED, EXPIRED, MAXLEN])
    def test_the_first_death_headers_are_set(self, reason):
        """The first death of a message sets the x-first-death headers (AB-151)."""
        headers = table_to_dict(die(reason=reason).properties.headers)
        assert headers["x-first-death-reason"] == reason
        assert headers["x-first-death-queue"] == "q"
        assert headers["x-first-death-exchange"] == "x"

    def test_expiration_is_removed_and_all_other_properties_stay(self):
        """A dead letter has no expiration, and all other properties of its message (AB-148)."""
        dead = die(expiration="100", content_type="text/plain", priority=3, delivery_mode=2, headers={"mine": [1]})
        assert dead.properties.expiration is None
        assert (dead.properties.content_type, dead.properties.priority, dead.properties.delivery_mode) == (
            "text/plain",
            3,
            2,
        )
        assert dead.properties.headers.get("mine") == ("A", (("I", 1),))

    def test_a_death_by_queue_ttl_has_no_original_expiration(self):
        """A message that dies by the TTL of its queue has no original expiration in its entry
        (dead_letter_headers_reason_expired).
        """
        assert "original-expiration" not in deaths(die(reason=EXPIRED))[0]

    def test_the_input_is_not_changed(self):
        properties = Properties(headers=table_from({"a": 1}), expiration="5")
        dead_letter(properties, EXPIRED, "q", "x", ("k",), TIME, None)
        assert properties == Properties(headers=table_from({"a": 1}), expiration="5")

    def test_names_that_are_not_utf8_keep_their_bytes(self):
        name = b"\xffq".decode("utf-8", "surrogateescape")
        assert deaths(die(queue=name))[0]["queue"] == name


class TestKeys:
    def test_without_a_dead_letter_key_all_keys_are_used(self):
        """Without a dead-letter routing key, a dead letter has all routing keys of its message (AB-147;
        dead_letter_routing_key_header_CC and _BCC).
        """
        dead = die(headers={"CC": ["cc"]}, keys=("k", "cc", "bcc"))
        assert dead.routing_keys == ("k", "cc", "bcc")
        assert dead.properties.headers.get("CC") is not None
        assert deaths(dead)[0]["routing-keys"] == ["k", "cc"]  # the BCC key stays secret

    def test_a_dead_letter_key_replaces_all_keys_and_removes_cc(self):
        """A dead-letter routing key replaces all keys and removes CC, and the entry still names the CC keys
        (dead_letter_headers_CC_with_routing_key).
        """
        dead = die(headers={"CC": ["cc"]}, keys=("k", "cc"), key="new")
        assert dead.routing_keys == ("new",)
        assert dead.properties.headers.get("CC") is None
        assert deaths(dead)[0]["routing-keys"] == ["k", "cc"]

    def test_the_empty_dead_letter_key_is_a_key(self):
        assert die(key="").routing_keys == ("",)


class TestLaterDeaths:
    def test_a_second_death_of_the_same_kind_increments_the_count(self):
        """A second death in the same queue for the same reason increments the count of the one entry, whose other
        fields stay those of the first death (AB-150).
        """
        first = die(expiration="100")
        second = dead_letter(first.properties, REJECTED, "q", "other", ("z",), TIME + 9, None)
        [entry] = deaths(second)
        assert entry == {**deaths(first)[0], "count": 2}

    def test_another_queue_or_reason_is_put_in_front(self):
        dead = die()
        dead = dead_letter(dead.properties, EXPIRED, "q", "x", ("k",), TIME, None)
        dead = dead_letter(dead.properties, REJECTED, "q2", "x", ("k",), TIME, None)
        assert [(e["queue"], e["reason"], e["count"]) for e in deaths(dead)] == [
            ("q2", "rejected", 1),
            ("q", "expired", 1),
            ("q", "rejected", 1),
        ]
        dead = dead_letter(dead.properties, REJECTED, "q", "x", ("k",), TIME, None)
        assert [(e["queue"], e["reason"], e["count"]) for e in deaths(dead)] == [
            ("q", "rejected", 2),
            ("q2", "rejected", 1),
            ("q", "expired", 1),
        ]
        assert table_to_dict(dead.properties.headers)["x-first-death-queue"] == "q"

    def test_first_death_headers_never_change(self):
        dead = die(reason=EXPIRED)
        dead = dead_letter(dead.properties, MAXLEN, "q2", "x2", ("k",), TIME, None)
        headers = table_to_dict(dead.properties.headers)
        assert (headers["x-first-death-reason"], headers["x-first-death-queue"]) == ("expired", "q")


FOREIGN = [
    # the x-death with which the message comes, and its x-death after a rejection in q
    ([{"queue": "q", "reason": "rejected"}], [("q", "rejected", 1)]),
    ([{"queue": "o", "reason": "maxlen"}], [("q", "rejected", 1), ("o", "maxlen", None)]),
    (
        [
            {"queue": "q", "reason": "rejected"},
            {"queue": "q", "reason": "rejected"},
            {"queue": "o", "reason": "expired"},
        ],
        [("q", "rejected", 3), ("o", "expired", 1)],
    ),
    (
        [{"queue": "o", "reason": "maxlen"}, {"queue": "o", "reason": "maxlen", "count": 9}],
        [("q", "rejected", 1), ("o", "maxlen", 2)],
    ),
    (
        [{"queue": "o", "reason": "maxlen", "count": 9}, {"queue": "o", "reason": "maxlen", "count": 4}],
        [("q", "rejected", 1), ("o", "maxlen", 9)],
    ),
    ([{"queue": "q", "reason": "rejected", "count": "x"}], [("q", "rejected", 1)]),
    ([], [("q", "rejected", 1)]),
]


class TestForeignHeaders:
    @pytest.mark.parametrize(("found", "after"), FOREIGN)
    def test_an_array_that_a_client_wrote(self, found, after):
        """In an x-death array that a client wrote, the entries of one queue and reason become one, and the death that
        is added is counted in its own (AB-150).
        """
        entries = deaths(die(headers={"x-death": found}))
        assert [(e["queue"], e["reason"], e.get("count")) for e in entries] == after

    def test_elements_that_are_not_tables_are_kept(self):
        dead = die(headers={"x-death": [7, {"queue": "q", "reason": "rejected", "count": 1}, "text"]})
        assert deaths(dead)[1:] == [7, "text"]
        assert deaths(dead)[0]["count"] == 2

    @pytest.mark.parametrize("value", ["text", 7, None, {"a": 1}])
    def test_a_value_that_is_not_an_array_is_replaced(self, value):
        """An x-death that is not an array is replaced, and no x-first-death headers are set (AB-152)."""
        headers = table_to_dict(die(headers={"x-death": value}).properties.headers)
        assert list(headers) == ["x-death"]
        assert [entry["queue"] for entry in headers["x-death"]] == ["q"]


def history(*entries) -> Table:
    return table_from(
        {"x-death": [{"queue": e[0], "reason": e[1]} if isinstance(e, tuple) else e for e in entries], "other": 1}
    )


CYCLES = [
    # the headers, and whether dead-lettering to q is a cycle
    (None, False),
    (Table(), False),
    (table_from({"x-death": "text"}), False),
    (history(), False),
    (history(("q", "expired")), True),
    (history(("q", "maxlen")), True),
    (history(("a", "expired"), ("q", "expired")), True),
    (history(("a", "expired"), ("b", "maxlen"), ("q", "expired"), ("c", "rejected")), True),
    (history(("a", "expired")), False),
    (history(("q", "rejected")), False),
    (history(("a", "rejected"), ("q", "expired")), False),
    (history(("a", "expired"), 7, ("q", "expired")), False),
    (history(("q", "expired"), 7), True),
]


@pytest.mark.parametrize(("headers", "cycle"), CYCLES)
def test_cycles(headers, cycle):
    """AB-153: a cycle is a death in the same queue before, with no rejection since."""
    assert is_cycle(headers, "q") is cycle


def test_expiry_into_the_same_queue_is_a_cycle():
    """dead_letter_routing_key_cycle_ttl: the check includes the death just recorded."""
    assert is_cycle(die(reason=EXPIRED).properties.headers, "q")
    assert not is_cycle(die(reason=REJECTED).properties.headers, "q")


class TestArrayHeaders:
    """RabbitMQ's unit test cases for array headers (AB-155)."""

    entry = table_from({"a": 1})

    def prepend(self, headers, name="name"):
        return table_to_dict(prepend_to_array_header(headers, name, self.entry))

    def test_an_array_grows_at_the_front(self):
        headers = prepend_to_array_header(Table(), "name", table_from({"b": 2}))
        assert self.prepend(headers) == {"name": [{"a": 1}, {"b": 2}]}

    def test_write_table_with_invalid_existing_type(self):
        headers = self.prepend(table_from({"name": "bad"}))
        assert headers == {"name": [{"a": 1}], "x-invalid-headers": {"name": ["bad"]}}

    def test_disparate_invalid_header_entries_accumulate_separately(self):
        headers = prepend_to_array_header(table_from({"one": 1, "two": "2"}), "one", self.entry)
        assert self.prepend(headers, "two")["x-invalid-headers"] == {"one": [1], "two": ["2"]}

    def test_invalid_same_header_entry_accumulation(self):
        headers = prepend_to_array_header(table_from({"name": "old"}), "name", self.entry)
        headers = headers.replaced("name", "S", b"new")
        assert self.prepend(headers)["x-invalid-headers"] == {"name": ["new", "old"]}

    def test_corrupt_or_invalid_headers_are_overwritten(self):
        headers = self.prepend(table_from({"name": 1, "x-invalid-headers": "broken"}))
        assert headers["x-invalid-headers"] == {"x-invalid-headers": ["broken"], "name": [1]}
