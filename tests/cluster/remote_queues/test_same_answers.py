"""A client receives the same answers from a broker, whether the queues are on its node or on another one (CL-59).

Each conversation is held twice, and what the client receives is compared.
"""

from __future__ import annotations

import pytest

from warren.amqp import methods as m

LARGE = b"large " * 200_000


def heard(events):
    return [
        (type(event.method).__name__, event.body, event.properties and event.properties.priority) for event in events
    ]


def priorities(channel):
    channel.queue("q", {"x-max-priority": 5})
    for number, priority in enumerate((1, 5, 3, 5, 0)):
        channel.publish(b"%d" % number, "q", priority=priority)
    channel.expect_ready("q", 5)
    channel.qos(2)
    channel.consume("q", "slow")
    first = channel.deliveries(2)
    channel.ack(first[1].tag, multiple=True)
    return heard(first), heard(channel.deliveries(2))


def one_slow_consumer_among_fast_ones(channel):
    channel.queue("q")
    slow = channel.client.channel()
    slow.qos(1)
    slow.consume("q", "slow")
    channel.consume("q", "fast", no_ack=True)
    for number in range(6):
        channel.publish(b"%d" % number, "q")
    held = slow.delivery()
    fast = channel.bodies(5)
    slow.reject(held.tag, requeue=True)
    return held.body, fast


def reject_publish_and_drop_head(channel):
    channel.queue("q", {"x-max-length": 2, "x-overflow": "reject-publish"})
    channel.queue("r", {"x-max-length": 2})
    channel.confirm()
    for number in range(4):
        channel.publish(b"%d" % number, "q")
        channel.confirms(number + 1, number + 1)
    for number in range(4):
        channel.publish(b"%d" % number, "r")
    channel.confirms(5, 8)
    return channel.get_all("q"), channel.get_all("r")


def confirms_and_returns(channel):
    channel.queue("q")
    channel.confirm()
    channel.publish(b"routed", "q", mandatory=True)
    channel.publish(b"lost", "nowhere", mandatory=True)
    returned = channel.wait(m.BasicReturn)
    # A message that reaches no queue is confirmed at once, and so before one that goes to another node.
    acked, nacked = channel.confirms(1, 2)
    return returned.method.reply_code, returned.body, sorted(acked), nacked, channel.get_all("q")


def expired_messages_go_to_the_dead_letter_queue(channel):
    channel.queue("dead")
    channel.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 50})
    for number in range(3):
        channel.publish(b"%d" % number, "q")
    channel.expect_ready("dead", 3)
    letters = [channel.get("dead", no_ack=True) for _ in range(3)]
    deaths = [letter.headers.get("x-death")[1][0][1] for letter in letters]
    return [(letter.body, death.get("queue"), death.get("reason")) for letter, death in zip(letters, deaths)]


def a_cycle_of_dead_letters_ends(channel):
    channel.queue("one", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "two", "x-message-ttl": 20})
    channel.queue("two", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "one"})
    channel.publish(b"m", "one")
    channel.expect_ready("two", 1)
    channel.reject(channel.get("two").tag, requeue=False)
    channel.expect_ready("two", 1)
    return [(death[1].get("queue"), death[1].get("count")) for death in channel.get("two").headers.get("x-death")[1]]


def exchanges_behind_exchanges(channel):
    channel.exchange("other", "fanout")
    channel.exchange("first", "headers", {"alternate-exchange": "other"})
    channel.exchange("second", "topic")
    channel.bind_exchange("second", "first", arguments={"x-match": "any", "kind": "a"})
    for queue, exchange, key in (("q", "second", "a.#"), ("r", "other", "")):
        channel.queue(queue)
        channel.bind(queue, exchange, key)
    channel.publish(b"1", "a.b", "first", headers={"kind": "a"})
    channel.publish(b"2", "c", "first", headers={"kind": "a"})
    channel.publish(b"3", "a", "first", headers={"kind": "b"})
    return channel.get_all("q"), channel.get_all("r")


def a_transaction_and_its_end(channel):
    channel.queue("q")
    channel.queue("r")
    channel.call(m.TxSelect())
    for body in (b"1", b"2"):
        channel.publish(body, "q")
        channel.publish(body, "r")
        channel.call(m.TxCommit() if body == b"1" else m.TxRollback())
    taken = channel.get("q")
    channel.ack(taken.tag)
    channel.call(m.TxRollback())
    channel.close()
    again = channel.client.channel()
    return taken.body, again.get_all("q"), again.get_all("r")


def the_next_consumer_is_active_when_the_first_one_leaves(channel):
    channel.queue("q", {"x-single-active-consumer": True})
    channel.qos(1)
    channel.consume("q", "first")
    second = channel.client.channel()
    second.consume("q", "second")
    for number in range(3):
        channel.publish(b"%d" % number, "q")
    first = channel.delivery()
    channel.call(m.BasicCancel(consumer_tag="first"))
    rest = second.bodies(2)
    channel.reject(first.tag, requeue=True)
    return first.body, rest, second.delivery().method.redelivered


def a_queue_is_deleted_under_its_consumer(channel):
    channel.queue("q")
    channel.consume("q", "tag")
    for number in range(3):
        channel.publish(b"%d" % number, "q")
    got = channel.bodies(3)
    other = channel.client.channel()
    counts = other.purge("q"), other.delete("q")
    cancelled = channel.wait(m.BasicCancel).method.consumer_tag
    other.refuses(404, "no queue 'q' in vhost '/'", m.BasicConsume(queue="q"))
    return got, counts, cancelled


def gets_one_after_the_other(channel):
    channel.queue("q")
    for number in range(5):
        channel.publish(b"%d" % number, "q")
    channel.expect_ready("q", 5)
    taken = [channel.get("q") for _ in range(5)]
    channel.reject(taken[3].tag, requeue=True)
    channel.ack(taken[1].tag, multiple=True)
    again = channel.get("q")
    channel.call(m.BasicRecover(True))
    return [event.body for event in taken], again.body, again.method.redelivered, channel.get_all("q")


def large_messages(channel):
    channel.queue("q")
    channel.confirm()
    for number in range(3):
        channel.publish(LARGE + b"%d" % number, "q")
    confirmed = channel.confirms(1, 3)
    channel.consume("q", "tag")
    return confirmed, [body[-1:] for body in channel.bodies(3)], channel.ready("q")


def many_consumers_share_a_queue(channel):
    channel.queue("q")
    for number in range(300):
        channel.consume("q", f"c{number}", no_ack=True)
    for number in range(900):
        channel.publish(b"%d" % number, "q")
    events = channel.deliveries(900)
    return sorted((int(event.body), event.method.consumer_tag) for event in events)


CONVERSATIONS = (
    priorities,
    one_slow_consumer_among_fast_ones,
    reject_publish_and_drop_head,
    confirms_and_returns,
    expired_messages_go_to_the_dead_letter_queue,
    a_cycle_of_dead_letters_ends,
    exchanges_behind_exchanges,
    a_transaction_and_its_end,
    the_next_consumer_is_active_when_the_first_one_leaves,
    a_queue_is_deleted_under_its_consumer,
    gets_one_after_the_other,
    large_messages,
    many_consumers_share_a_queue,
)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.__name__)
def test_the_same_answers_from_near_and_far(make, conversation):
    answers = {}
    for home in "ab":
        nodes = make()
        nodes.home(home)
        answers[home] = conversation(nodes.channel("a"))
    assert answers["b"] == answers["a"]
