"""Publishes in one write that differ in routing key, exchange, properties or size are each treated as if they came
alone.

The broker reads such publishes as few runs. These are the places where a run must end, or where its messages must be
told apart. `test_split_runs` compares whole conversations.
"""

import pytest

from warren.actors.channel.publishing.publications import PUBLICATIONS_KEPT
from warren.amqp import methods as m


def bodies(channel, queue):
    return [body.decode() for body in channel.get_all(queue)]


@pytest.mark.parametrize("before", range(3, 7))
def test_more_keys_than_the_channel_remembers(client, channel, name, before):
    """A channel forgets its routes while it publishes a run; the messages before and after go to their own queues."""
    exchange = channel.exchange(name, "topic")
    a, b = channel.queue(f"{name}-a"), channel.queue(f"{name}-b")
    channel.bind(a, exchange, "a.*")
    channel.bind(b, exchange, "b.*")
    known = [f"a.{number}" for number in range(PUBLICATIONS_KEPT - 4)]
    with client.in_one_piece():
        for key in known:
            channel.publish(key, key, exchange)
    channel.expect_ready(a, len(known))
    new = [f"a.{number}" for number in range(600, 600 + before)]
    other = [f"b.{number}" for number in range(6)]
    with client.in_one_piece():
        for key in new + other:
            channel.publish(key, key, exchange)
    assert bodies(channel, a) == known + new
    assert bodies(channel, b) == other


def test_headers_decide_behind_a_binding_and_an_alternate_exchange(client, channel, name):
    """AB-71, AB-76: the publisher's exchange ignores headers, and the one behind it does not."""
    queues = {side: channel.queue(f"{name}-{side}") for side in ("left", "right")}
    by_headers = channel.exchange(f"{name}-headers", "headers")
    for side, queue in queues.items():
        channel.bind(queue, by_headers, "", {"x-match": "all", "side": side})
    bound = channel.exchange(f"{name}-bound", "fanout")
    channel.bind_exchange(by_headers, bound)
    alternate = channel.exchange(f"{name}-alternate", "direct", {"alternate-exchange": by_headers})
    for exchange in (by_headers, bound, alternate):
        with client.in_one_piece():
            for number in range(80):
                side = ("left", "right", "lost!")[number % 3].ljust(5)
                channel.publish(
                    str(number), f"key-{number % 2}", exchange, mandatory=True, headers={"side": side.strip()}
                )
            channel.publish("no headers", "key-0", exchange, mandatory=True)
        returned = [channel.wait(m.BasicReturn).body.decode() for _ in range(27)]
        assert returned == [*map(str, range(2, 80, 3)), "no headers"]
        assert bodies(channel, queues["left"]) == list(map(str, range(0, 80, 3)))
        assert bodies(channel, queues["right"]) == list(map(str, range(1, 80, 3)))


def test_sender_selected_keys_among_messages_without(client, channel, name):
    """Messages of one shape, of which only some have the headers CC or BCC, and some have these letters inside a value,
    go each to their own queues (AB-75).
    """
    main, copy, blind = (channel.queue(f"{name}-{which}") for which in ("main", "copy", "blind"))
    with client.in_one_piece():
        for number in range(120):
            header = {0: "CC", 1: "XX", 2: "BCC", 3: "BXX"}[number % 4]
            channel.publish(str(number), main, headers={header: [copy if header == "CC" else blind], "n": "\x02CC"})
    events = [channel.get(main, no_ack=True) for _ in range(120)]
    assert [event.body.decode() for event in events] == list(map(str, range(120)))
    names = [sorted(entry for entry, _, _ in event.headers) for event in events]
    assert names == [[["CC", "n"], ["XX", "n"], ["n"], ["BXX", "n"]][number % 4] for number in range(120)]
    assert bodies(channel, copy) == list(map(str, range(0, 120, 4)))
    assert bodies(channel, blind) == list(map(str, range(2, 120, 4)))


def test_a_false_user_id_among_others(client, channel, name):
    """AB-106: the messages in front of the one with another user's name are published, the later ones are not."""
    channel.queue(name)
    with client.in_one_piece():
        for number in range(60):
            user = "guest" if number != 50 else "gueSt"
            channel.publish(str(number), name, user_id=user, message_id=f"{number:08}")
    channel.refuses(406, "user_id property set to 'gueSt' but authenticated user was 'guest'")
    other = client.channel()
    assert bodies(other, name) == list(map(str, range(50)))


def test_a_missing_exchange_among_others(client, channel, name):
    """In a run in confirm mode, the message whose exchange does not exist closes the channel, and the ones before it
    are confirmed (AB-105).
    """
    channel.queue(name)
    exchange = channel.exchange(name, "fanout")
    channel.bind(name, exchange)
    channel.confirm()
    with client.in_one_piece():
        for number in range(40):
            channel.publish(str(number), f"key-{number}", exchange if number != 30 else f"{name}-none")
    channel.refuses(404, f"no exchange '{name}-none' in vhost '/'")
    assert bodies(client.channel(), name) == list(map(str, range(30)))


def test_dead_letters_of_differing_messages(client, channel, name):
    """AB-148: each dead letter has the properties and the routing key of its own message."""
    dead = channel.queue(f"{name}-dead")
    exchange = channel.exchange(name, "topic")
    channel.bind(dead, exchange, "#")
    queue = channel.queue(f"{name}-queue", {"x-dead-letter-exchange": exchange})
    source = channel.exchange(f"{name}-source", "fanout")
    channel.bind(queue, source)
    with client.in_one_piece():
        for number in range(100):
            channel.publish(
                "x" * (number % 3), f"key.{number}", source, message_id=f"{number:04}", headers={"n": number % 7}
            )
    channel.consume(queue, "c")
    events = channel.deliveries(100)
    with client.in_one_piece():
        for event in [*events[:30], *events[:29:-1]]:
            channel.reject(event.tag, requeue=False)
    channel.expect_ready(dead, 100)
    order = [*range(30), *range(99, 29, -1)]
    for number, event in zip(order, channel.take(dead, 100)):
        assert event.properties.message_id == f"{number:04}"
        assert event.method.routing_key == f"key.{number}"
        assert event.headers.get("n")[1] == number % 7
        (_, death) = event.headers.get("x-death")[1][0]
        assert death.get("routing-keys")[1] == (("S", f"key.{number}".encode()),)


def test_direct_replies_to_differing_requests(client, channel, name):
    """Requests and replies that differ in their correlation ids reach the right channels (AB-140 to AB-142)."""
    requests = channel.queue(name)
    replies = channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    with client.in_one_piece():
        for number in range(50):
            reply_to = "amq.rabbitmq.reply-to" if number % 5 else "amq.rabbitmq.reply-tO"
            channel.publish("?", requests, reply_to=reply_to, correlation_id=f"{number:08}")
    server = client.channel()
    asked = server.take(requests, 50)
    assert [event.properties.correlation_id for event in asked] == [f"{number:08}" for number in range(50)]
    assert all(
        (event.properties.reply_to == "amq.rabbitmq.reply-tO") == (number % 5 == 0)
        for number, event in enumerate(asked)
    )
    answered = [event for number, event in enumerate(asked) if number % 5]
    with client.in_one_piece():
        for event in answered:
            server.publish("!", event.properties.reply_to, correlation_id=event.properties.correlation_id)
    got = channel.deliveries(40)
    assert {event.method.consumer_tag for event in got} == {replies}
    assert [event.properties.correlation_id for event in got] == [event.properties.correlation_id for event in answered]


def test_priorities_and_expirations_among_differing_messages(client, channel, name):
    """Messages that differ in ids as well as in priority and expiration each keep their own."""
    queue = channel.queue(name, {"x-max-priority": 3})
    with client.in_one_piece():
        for number in range(160):
            channel.publish(
                str(number),
                queue,
                message_id=f"{number:04}",
                priority=number // 2 % 4,
                expiration="0" if number % 8 == 1 else "600000",
            )
    order = sorted((number for number in range(160) if number % 8 != 1), key=lambda number: -(number // 2 % 4))
    events = channel.take(queue, 140)
    assert [int(event.body) for event in events] == order
    assert [(event.properties.message_id, event.properties.priority) for event in events] == [
        (f"{number:04}", number // 2 % 4) for number in order
    ]
