"""The actions that a user tries under given permissions, at warren and at a real RabbitMQ alike.

`tests/testdata/permissions.json` has RabbitMQ 3.10.8's answers: for each entry of its list the permissions of the user
`u_kim` in the virtual host `u_vh`, the user's topic permissions, and for each action the reply text that refused it, or
None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

VHOST, USER, PASSWORD = "u_vh", "u_kim", "secret"


def prepare(admin: Any) -> None:
    """Create what the actions use, and remove what earlier ones have left."""
    for name in ("x.new", "x.alternating"):
        admin.exchange_delete(name)
    for name in ("q.new", "q.dead"):
        admin.queue_delete(name)
    admin.exchange_declare("x.direct", "direct")
    admin.exchange_declare("x.topic", "topic")
    admin.exchange_declare("x.other", "fanout")
    for name in ("q.a", "q.b"):
        admin.queue_declare(name)


def publish(channel: Any, exchange: str, key: str, **properties: Any) -> None:
    channel.confirm_delivery()
    channel.basic_publish(exchange, key, b"x", pika.BasicProperties(**properties))


ACTIONS: dict[str, Callable[[Any], Any]] = {
    "declare an exchange": lambda c: c.exchange_declare("x.new", "direct"),
    "declare an exchange that exists": lambda c: c.exchange_declare("x.direct", "direct"),
    "declare an exchange passively": lambda c: c.exchange_declare("x.direct", passive=True),
    "declare an exchange with an alternate one": lambda c: c.exchange_declare(
        "x.alternating", "direct", arguments={"alternate-exchange": "x.other"}
    ),
    "declare an exchange of an odd type": lambda c: c.exchange_declare("amq.odd", "direct"),
    "delete an exchange": lambda c: c.exchange_delete("x.other"),
    "delete an exchange that is not there": lambda c: c.exchange_delete("x.nowhere"),
    "bind an exchange": lambda c: c.exchange_bind("x.other", "x.direct", "k"),
    "bind an exchange to a topic": lambda c: c.exchange_bind("x.other", "x.topic", "u_kim.a"),
    "unbind an exchange": lambda c: c.exchange_unbind("x.other", "x.direct", "k"),
    "bind from the default exchange": lambda c: c.queue_bind("q.a", "", "k"),
    "declare a queue": lambda c: c.queue_declare("q.new"),
    "declare a queue that exists": lambda c: c.queue_declare("q.a"),
    "declare a queue passively": lambda c: c.queue_declare("q.a", passive=True),
    "declare a queue with a dead-letter exchange": lambda c: c.queue_declare(
        "q.dead", arguments={"x-dead-letter-exchange": "x.other"}
    ),
    "declare a queue with a reserved name": lambda c: c.queue_declare("amq.mine"),
    "delete a queue": lambda c: c.queue_delete("q.b"),
    "delete a queue that is not there": lambda c: c.queue_delete("q.nowhere"),
    "purge a queue": lambda c: c.queue_purge("q.a"),
    "purge a queue that is not there": lambda c: c.queue_purge("q.nowhere"),
    "bind a queue": lambda c: c.queue_bind("q.a", "x.direct", "k"),
    "bind a queue to a topic": lambda c: c.queue_bind("q.a", "x.topic", "u_kim.a"),
    "bind a queue to another topic": lambda c: c.queue_bind("q.a", "x.topic", "else"),
    "unbind a queue from a topic": lambda c: c.queue_unbind("q.a", "x.topic", "else"),
    "bind a queue to no exchange": lambda c: c.queue_bind("q.a", "x.nowhere", "k"),
    "publish": lambda c: publish(c, "x.direct", "k"),
    "publish to the default exchange": lambda c: publish(c, "", "q.a"),
    "publish to no exchange": lambda c: publish(c, "x.nowhere", "k"),
    "publish to a topic": lambda c: publish(c, "x.topic", "u_kim.a"),
    "publish to another topic": lambda c: publish(c, "x.topic", "else"),
    "publish as somebody else": lambda c: publish(c, "x.direct", "k", user_id="guest"),
    "get": lambda c: c.basic_get("q.a", auto_ack=True),
    "get from a queue that is not there": lambda c: c.basic_get("q.nowhere", auto_ack=True),
    "consume": lambda c: c.basic_consume("q.b", lambda *_: None),
}


def outcome(connection: Any, action: str) -> str | None:
    channel = connection.channel()
    try:
        ACTIONS[action](channel)
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as closed:
        return f"{closed.reply_code} {closed.reply_text}"
    channel.close()
    return None


def outcomes(port: int) -> dict[str, str | None]:
    """For each action the broker's refusal, or None if it allows the action. The caller sets the user's permissions
    before.
    """

    def connect(user: str, password: str) -> Any:
        credentials = pika.PlainCredentials(user, password)
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, VHOST, credentials))

    admin, user = connect("guest", "guest"), connect(USER, PASSWORD)
    try:
        found = {}
        for action in ACTIONS:
            prepare(admin.channel())
            found[action] = outcome(user, action)
        return found
    finally:
        user.close()
        admin.close()
