"""Exchange types, exchange-to-exchange bindings, alternate exchanges, CC and BCC, the default exchange (AB-68 to
AB-79).
"""

import pytest

from warren.amqp import methods as m
from warren.amqp.fields import Table

from ..wire import table


def reached(channel, exchange, routing_key, queues, headers=None):
    """The queues that one message reaches, each at most once."""
    channel.publish("m", routing_key, exchange, headers=headers)
    found = []
    for queue in queues:
        bodies = channel.get_all(queue)
        assert len(bodies) <= 1
        if bodies:
            found.append(queue)
    return found


def test_default_exchange_routes_by_queue_name(channel, name):
    """AB-68: the default exchange routes to the queue that the routing key names."""
    channel.queue(name)
    assert reached(channel, "", name, [name]) == [name]
    assert reached(channel, "", f"{name}-other", [name]) == []


def test_direct_and_fanout(channel, name):
    """AB-69: neither uses binding arguments, and two bindings to one queue make one copy."""
    a, b = channel.queue(f"{name}-a"), channel.queue(f"{name}-b")
    direct, fanout = channel.exchange(f"{name}-d"), channel.exchange(f"{name}-f", "fanout")
    channel.bind(a, direct, "k", {"x-match": "any", "no": "such"})
    channel.bind(a, direct, "k")
    channel.bind(b, direct, "l")
    channel.bind(a, fanout, "k")
    channel.bind(a, fanout, "l")
    channel.bind(b, fanout, "m")
    assert reached(channel, direct, "k", [a, b]) == [a]
    assert reached(channel, direct, "l", [a, b]) == [b]
    assert reached(channel, direct, "", [a, b]) == []
    assert reached(channel, fanout, "nothing", [a, b]) == [a, b]


TOPICS = {
    "a": ["a", "*", "#", "#.#"],
    "": ["#", "", "#.#"],
    "a.b": ["a.*", "*.b", "*.*", "#", "a.#", "#.b", "a.#.b", "#.#", "#.a.#"],
    "a.b.c": ["a.#", "#", "a.*.c", "a.#.c", "#.c", "#.#", "*.#", "#.b.#"],
    ".": ["*.*", "#", "#.#", "*.#", "."],
    "a.": ["a.*", "#", "*.*", "a.#", "#.#", "*.#"],
    "a*.b": ["#", "*.b", "*.*", "#.b", "#.#", "*.#", "a*.b"],
    "#": ["*", "#", "#.#", "*.#"],
}
PATTERNS = sorted(
    {pattern for patterns in TOPICS.values() for pattern in patterns}
    | {"*.*.*", "b", "a.*", "a*", "#b", "*.", ".#", "a..b"}
)


def matches(pattern, words):
    """Topic matching as AB-70 defines it, without the broker's optimisations."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return matches(pattern[1:], words) or bool(words) and matches(pattern, words[1:])
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


def words(key):
    return key.split(".") if key else []


def test_topic(channel, name):
    """AB-70: `*` is one word and `#` any number; a wildcard is a whole word; leading, trailing and double dots make
    empty words.
    """
    channel.exchange(name, "topic")
    queues = {}
    for number, pattern in enumerate(PATTERNS):
        queues[channel.queue(f"{name}-{number}")] = pattern
        channel.bind(f"{name}-{number}", name, pattern)
    for key, known in TOPICS.items():
        found = {queues[queue] for queue in reached(channel, name, key, queues)}
        assert found.issuperset(known), key
        assert found == {pattern for pattern in PATTERNS if matches(words(pattern), words(key))}, key


def test_topic_bindings_that_differ_in_arguments_only(channel, name):
    """Of two topic bindings that differ only in their arguments, removing one keeps the other (AB-70)."""
    channel.queue(name)
    channel.exchange(name, "topic")
    channel.bind(name, name, "a.*", {"n": 1})
    channel.bind(name, name, "a.*", {"n": 2})
    channel.call(m.QueueUnbind(queue=name, exchange=name, routing_key="a.*", arguments=table({"n": 1})))
    assert reached(channel, name, "a.b", [name]) == [name]
    channel.call(m.QueueUnbind(queue=name, exchange=name, routing_key="a.*", arguments=table({"n": 2})))
    assert reached(channel, name, "a.b", [name]) == []


@pytest.mark.parametrize(
    ("binding", "headers", "matches"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}, True),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
        ({"a": 1, "b": "x"}, {"a": 1, "b": "y"}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"a": 2, "b": "y"}, False),
        ({"x-match": "all"}, {}, True),
        ({}, None, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "all", "a": None}, {"a": "whatever"}, True),
        ({"x-match": "all", "a": None}, {}, False),
        ({"x-match": "all", "x-a": 1}, {}, True),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "all-with-x", "x-a": 1}, {}, False),
        ({"x-match": "all-with-x", "x-a": 1}, {"x-a": 1}, True),
        ({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1}, True),
        ({"x-match": "all", "a": 1}, Table([("a", "l", 1)]), True),
        ({"x-match": "all", "a": 1}, Table([("a", "d", 1.0)]), True),
        ({"x-match": "all", "a": "1"}, {"a": 1}, False),
        ({"x-match": "all", "a": True}, {"a": True}, True),
    ],
)
def test_headers(channel, name, binding, headers, matches):
    """AB-71: a headers exchange compares headers with the binding's arguments and ignores both routing keys."""
    channel.queue(name)
    channel.exchange(name, "headers")
    channel.bind(name, name, "ignored", binding)
    assert reached(channel, name, "k", [name], headers) == ([name] if matches else [])


def test_walk_from_exchange_to_exchange(channel, name):
    """AB-74: cycles end, each queue gets one copy, and the message keeps its exchange and routing key."""
    a, b, c = (
        channel.exchange(f"{name}-{letter}", kind)
        for letter, kind in (("a", "topic"), ("b", "fanout"), ("c", "direct"))
    )
    channel.queue(name)
    channel.bind_exchange(b, a, "x.#")
    channel.bind_exchange(c, b)
    channel.bind_exchange(a, c, "x.y")
    for exchange, key in ((a, "#"), (b, ""), (c, "x.y")):
        channel.bind(name, exchange, key)
    channel.publish("m", "x.y", a)
    event = channel.get(name, no_ack=True)
    assert (event.method.exchange, event.method.routing_key, event.method.message_count) == (a, "x.y", 0)
    assert reached(channel, c, "nothing", [name]) == []


def test_internal_exchange_is_reached_by_bindings(channel, name):
    """AB-67: an internal exchange receives messages from the exchange that it is bound to."""
    outer, inner = channel.exchange(f"{name}-o", "fanout"), channel.exchange(f"{name}-i", "fanout", internal=True)
    channel.queue(name)
    channel.bind(name, inner)
    channel.bind_exchange(inner, outer)
    assert reached(channel, outer, "", [name]) == [name]


def test_exchange_to_exchange_binding_goes_with_either_end(channel, name):
    """AB-74, AB-77: deleting the destination exchange removes the binding; a new exchange of that name has none."""
    a, b = channel.exchange(f"{name}-a", "fanout"), channel.exchange(f"{name}-b", "fanout")
    channel.queue(name)
    channel.bind(name, b)
    channel.bind_exchange(b, a)
    assert reached(channel, a, "", [name]) == [name]
    channel.call(m.ExchangeDelete(exchange=b))
    channel.exchange(b, "fanout")
    channel.bind(name, b)
    assert reached(channel, a, "", [name]) == []


# --- alternate exchanges ---


def test_alternate_exchange(channel, name):
    """The alternate exchange is used if the exchange itself finds no destination, and need not exist (AB-76)."""
    main, alternate, lost = f"{name}-m", f"{name}-a", channel.queue(f"{name}-lost")
    channel.exchange(main, "direct", {"alternate-exchange": alternate})
    channel.queue(name)
    channel.bind(name, main, "k")
    assert reached(channel, main, "other", [name, lost]) == []
    channel.exchange(alternate, "fanout")
    channel.bind(lost, alternate)
    assert reached(channel, main, "other", [name, lost]) == [lost]
    assert reached(channel, main, "k", [name, lost]) == [name]


def test_alternate_exchanges_chain_and_cycle(channel, name):
    """Each exchange that a message reaches has its own alternate exchange; chains and cycles of them end (AB-76)."""
    channel.exchange(f"{name}-1", "direct", {"alternate-exchange": f"{name}-2"})
    channel.exchange(f"{name}-2", "direct", {"alternate-exchange": f"{name}-3"})
    channel.exchange(f"{name}-3", "direct", {"alternate-exchange": f"{name}-1"})
    channel.queue(name)
    assert reached(channel, f"{name}-1", "k", [name]) == []
    channel.bind(name, f"{name}-3", "k")
    assert reached(channel, f"{name}-1", "k", [name]) == [name]


def test_alternate_of_an_exchange_that_is_reached_by_a_binding(channel, name):
    """AB-76: the alternate exchange also applies to messages that come through a binding."""
    channel.exchange(f"{name}-1", "fanout")
    channel.exchange(f"{name}-2", "direct", {"alternate-exchange": f"{name}-3"})
    channel.exchange(f"{name}-3", "fanout")
    channel.bind_exchange(f"{name}-2", f"{name}-1")
    channel.queue(name)
    channel.bind(name, f"{name}-3")
    assert reached(channel, f"{name}-1", "k", [name]) == [name]


def test_a_destination_exchange_that_leads_nowhere_is_still_a_destination(channel, name):
    """A destination exchange counts as a destination even if it leads to no queue, so the alternate exchange is not
    used (AB-76).
    """
    channel.exchange(f"{name}-1", "fanout", {"alternate-exchange": f"{name}-3"})
    channel.exchange(f"{name}-2", "fanout")
    channel.exchange(f"{name}-3", "fanout")
    channel.bind_exchange(f"{name}-2", f"{name}-1")
    channel.queue(name)
    channel.bind(name, f"{name}-3")
    assert reached(channel, f"{name}-1", "k", [name]) == []


def test_mandatory_is_judged_on_the_final_queues(channel, name):
    """AB-76, AB-108: a mandatory message is returned only if the alternate exchange finds no queue either."""
    channel.exchange(f"{name}-1", "direct", {"alternate-exchange": f"{name}-2"})
    channel.exchange(f"{name}-2", "fanout")
    channel.queue(name)
    channel.publish("back", "k", f"{name}-1", mandatory=True)
    assert channel.wait().body == b"back"
    channel.bind(name, f"{name}-2")
    channel.publish("kept", "k", f"{name}-1", mandatory=True)
    assert channel.get(name).body == b"kept"
    assert not channel.pending


# --- CC and BCC ---


@pytest.mark.parametrize("kind", ["default", "direct", "topic"])
def test_cc_and_bcc_add_routing_keys(channel, name, kind):
    """CC and BCC add routing keys, each queue gets one copy, BCC is removed and CC stays; values that are not strings
    are skipped (AB-75).
    """
    exchange = "" if kind == "default" else channel.exchange(name, kind)
    queues = [channel.queue(f"{name}-{number}") for number in range(4)]
    for queue in queues:
        if exchange:
            channel.bind(queue, exchange, queue)
    channel.publish(
        "m", queues[0], exchange, headers={"CC": [queues[1], 7, queues[0]], "BCC": [queues[2], queues[1]], "kept": True}
    )
    for queue in queues[:3]:
        event = channel.get(queue, no_ack=True)
        assert event.headers == table({"CC": [queues[1], 7, queues[0]], "kept": True})
        assert (event.method.routing_key, event.method.message_count) == (queues[0], 0)
    assert channel.get(queues[3]) is None


def test_bcc_alone_leaves_empty_headers(channel, name):
    """AB-75: the BCC header routes the message and is removed from it."""
    channel.queue(name)
    channel.publish("m", "nowhere", headers={"BCC": [name]})
    event = channel.get(name)
    assert event.method.routing_key == "nowhere"
    assert event.headers is None or event.headers == Table()


# --- mandatory ---


def test_mandatory_message_that_reaches_no_queue_comes_back(channel, name):
    """A mandatory message that reaches no queue is returned whole, with the exchange and key it was published with.
    Without mandatory it is dropped (AB-108).
    """
    channel.publish("vanishes", f"{name}-absent", headers={"n": 1})
    channel.publish(b"x" * 300_000, f"{name}-absent", mandatory=True, headers={"n": 2}, message_id="id", expiration="5")
    event = channel.wait()
    assert event.method == m.BasicReturn(312, "NO_ROUTE", "", f"{name}-absent")
    assert event.body == b"x" * 300_000
    assert (event.headers, event.properties.message_id, event.properties.expiration) == (table({"n": 2}), "id", "5")


def test_queue_that_refuses_causes_no_return(channel, name):
    """A message that a queue refuses was routed, so it is not returned (AB-108)."""
    channel.queue(name, {"x-max-length": 0, "x-overflow": "reject-publish"})
    channel.confirm()
    channel.publish("refused", name, mandatory=True)
    assert channel.confirms(1, 1) == ([], [1])
    assert not channel.pending


# --- extra queues (AB-79) ---


def test_extra_queue_gets_dead_letters_and_messages_once(channel, inside, name):
    """The extra queue of a target gets dead letters and one copy of a message (AB-79: the cases extra_bcc_option,
    extra_bcc_option_multiple_1 and _2 in one route).
    """
    channel.exchange(name, "fanout")
    for suffix in ("a", "b", "extra"):
        channel.queue(f"{name}-{suffix}")
    for suffix in ("a", "b"):
        channel.bind(f"{name}-{suffix}", name)
        inside.give_extra_queue(f"{name}-{suffix}", f"{name}-extra")
    queues = [f"{name}-a", f"{name}-b", f"{name}-extra"]
    assert reached(channel, name, "", queues) == queues
    assert reached(channel, "", f"{name}-a", queues) == [f"{name}-a", f"{name}-extra"]
