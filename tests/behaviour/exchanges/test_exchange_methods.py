"""exchange.declare, delete, bind and unbind: checks in order, codes and texts (amqp-broker section 7, AB-59, AB-64 to
AB-68, AB-72, AB-73, AB-77).
"""

import pytest

from warren.amqp import methods as m
from warren.amqp.fields import Table

from ..wire import Refused, table

DEFAULT = "operation not permitted on the default exchange"


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.match", "headers"),
        ("amq.headers", "headers"),
    ],
)
def test_predefined_exchanges(channel, name, type):
    """A predefined exchange can be declared as it is, although its name is reserved (AB-64, AB-65)."""
    channel.exchange(name, type, durable=True)
    channel.exchange(name, passive=True)


def test_trace_exchange_is_internal(client):
    """AB-64, AB-67: `amq.rabbitmq.trace` exists as an internal exchange, so publishing to it is refused with 403."""
    client.channel().exchange("amq.rabbitmq.trace", "topic", durable=True, internal=True)
    text = "cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"
    client.channel().refuses(403, text, m.BasicPublish(exchange="amq.rabbitmq.trace"), b"")


def test_declare_checks_in_order(client, name):
    """exchange.declare is checked in this order: type, default exchange, reserved prefix, type of alternate-exchange
    (amqp-broker section 7).
    """
    client.channel().refuses(403, DEFAULT, m.ExchangeDeclare(exchange="", type="direct"))
    arguments = table({"alternate-exchange": 5})
    client.channel().refuses(
        403,
        "exchange name 'amq.new' contains reserved prefix 'amq.*'",
        m.ExchangeDeclare(exchange="amq.new", type="direct", arguments=arguments),
    )
    client.channel().refuses(
        406,
        f"invalid type 'signedint' for arg 'alternate-exchange' in exchange '{name}' in vhost '/'",
        m.ExchangeDeclare(exchange=name, type="direct", arguments=arguments),
    )
    client.channel().refuses(503, "unknown exchange type 'odd'", m.ExchangeDeclare(exchange="", type="odd"))


def test_passive_declare(client, name):
    """A passive declare ignores type and flags (amqp-broker section 7)."""
    channel = client.channel()
    channel.exchange(name, "topic")
    channel.exchange(name, "no such type", passive=True, durable=True)
    channel.refuses(
        404,
        f"no exchange '{name}-x' in vhost '/'",
        m.ExchangeDeclare(exchange=f"{name}-x", type="direct", passive=True),
    )
    client.channel().refuses(403, DEFAULT, m.ExchangeDeclare(exchange="", passive=True))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"type": "fanout"}, "'type' for {}: received 'fanout' but current is 'direct'"),
        ({"durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' for {}: received 'true' but current is 'false'"),
        (
            {"arguments": Table([("alternate-exchange", "S", b"a")])},
            "'alternate-exchange' for {}: received the value 'a' of type 'longstr' but current is none",
        ),
        (
            {"internal": True, "auto_delete": True, "type": "topic"},
            "'type' for {}: received 'topic' but current is 'direct'",
        ),
        ({"internal": True, "auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
    ],
)
def test_inequivalent_declarations(channel, name, change, text):
    """Differences to the existing exchange are refused with 406, and compared in this order (AB-66, AB-88)."""
    channel.exchange(name)
    channel.refuses(
        406,
        "inequivalent arg " + text.format(f"exchange '{name}' in vhost '/'"),
        m.ExchangeDeclare(exchange=name, **{"type": "direct", **change}),
    )


def test_other_arguments_are_not_compared(channel, name):
    """AB-66: a second declaration may have other arguments, except those that the broker uses."""
    channel.exchange(name, arguments={"x-a": 1})
    channel.exchange(name, arguments={"x-b": 2})


def test_nowait_omits_the_reply(channel, name):
    """AB-60: exchange methods with nowait take effect and are not answered; errors still close the channel."""
    channel.send(m.ExchangeDeclare(exchange=f"{name}-a", type="fanout", nowait=True))
    channel.send(m.ExchangeDeclare(exchange=f"{name}-b", type="fanout", nowait=True))
    channel.send(m.ExchangeBind(destination=f"{name}-a", source=f"{name}-b", nowait=True))
    channel.send(m.ExchangeUnbind(destination=f"{name}-a", source=f"{name}-b", nowait=True))
    channel.send(m.ExchangeDelete(exchange=f"{name}-a", nowait=True))
    channel.exchange(f"{name}-b", passive=True)
    assert not channel.pending
    channel.refuses(
        404, f"no exchange '{name}-a' in vhost '/'", m.ExchangeDeclare(exchange=f"{name}-a", passive=True, nowait=True)
    )


def test_delete_checks_in_order(client, name):
    """exchange.delete is checked in this order, and the deletion of an absent exchange succeeds (amqp-broker section
    7).
    """
    client.channel().refuses(403, DEFAULT, m.ExchangeDelete(exchange=""))
    client.channel().refuses(
        403,
        "deletion of system exchange 'amq.fanout' in vhost '/' not allowed",
        m.ExchangeDelete(exchange="amq.fanout"),
    )
    client.channel().call(m.ExchangeDelete(exchange=name, if_unused=True))


def test_delete_if_unused(client, name):
    """amqp-broker section 7: an exchange that is the source of a binding is used; a mere destination is not."""
    channel = client.channel()
    channel.exchange(f"{name}-a", "fanout")
    channel.exchange(f"{name}-b", "fanout")
    channel.bind_exchange(f"{name}-b", f"{name}-a")
    channel.refuses(
        406, f"exchange '{name}-a' in vhost '/' in use", m.ExchangeDelete(exchange=f"{name}-a", if_unused=True)
    )
    channel = client.channel()
    channel.call(m.ExchangeDelete(exchange=f"{name}-b", if_unused=True))
    channel.call(m.ExchangeDelete(exchange=f"{name}-a", if_unused=True))


@pytest.mark.parametrize("method", [m.ExchangeBind, m.ExchangeUnbind])
def test_bindings_of_the_default_exchange(client, name, method):
    """The default exchange can be neither source nor destination of a binding (amqp-broker section 7, AB-68)."""
    client.channel().exchange(name)
    client.channel().refuses(403, DEFAULT, method(destination=name, source=""))
    client.channel().refuses(403, DEFAULT, method(destination="", source=name))


def test_bind_reports_the_absent_source_first(client, name):
    """amqp-broker section 7: if both ends of a binding are absent, the source is reported."""
    channel = client.channel()
    channel.exchange(name)
    channel.refuses(
        404, f"no exchange '{name}-s' in vhost '/'", m.ExchangeBind(destination=f"{name}-d", source=f"{name}-s")
    )
    client.channel().refuses(
        404, f"no exchange '{name}-d' in vhost '/'", m.ExchangeBind(destination=f"{name}-d", source=name)
    )


def test_unbind_without_a_binding_succeeds(channel, name):
    """exchange.unbind without a binding succeeds; the reply is exchange.unbind-ok 40,51 (amqp-broker section 7)."""
    channel.exchange(name)
    channel.call(m.ExchangeUnbind(destination=f"{name}-d", source=f"{name}-s"))
    channel.call(m.ExchangeUnbind(destination=f"{name}-d", source=name))
    channel.call(m.ExchangeUnbind(destination=name, source=name, routing_key="k"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("some", 'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'),
        ("", "Invalid x-match field value <<>>; expected all, any, all-with-x, or any-with-x"),
        (b"all", 'Invalid x-match field type binary (value <<"all">>); expected longstr'),
        (7, "Invalid x-match field type signedint (value 7); expected longstr"),
    ],
)
def test_x_match_is_checked(client, name, value, text):
    """A wrong x-match is refused, also if the destination is an exchange; the text shows a string as an Erlang binary
    (AB-72).
    """
    channel = client.channel()
    channel.queue(name)
    channel.exchange(name)
    arguments = table({"x-match": value})
    for method in (
        m.QueueBind(queue=name, exchange="amq.headers", arguments=arguments),
        m.ExchangeBind(destination=name, source="amq.match", arguments=arguments),
    ):
        with pytest.raises(Refused) as refused:
            client.channel().call(method)
        close = refused.value.close
        assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


def test_binding_twice_is_one_binding(channel, name):
    """Two binds with the same arguments, in any order, are one binding, and one unbind removes it (AB-73)."""
    channel.queue(name)
    channel.exchange(name, "fanout")
    channel.bind(name, name, "k", {"a": 1, "b": 2})
    channel.bind(name, name, "k", {"b": 2, "a": 1})
    channel.call(m.QueueUnbind(queue=name, exchange=name, routing_key="k", arguments=table({"a": 1, "b": 2})))
    channel.publish("lost", "k", name)
    assert channel.get(name) is None


def test_auto_delete_exchange_goes_with_its_last_binding(client, name):
    """An auto-delete exchange ends with its last binding, not before it had one; to be a destination does not keep it
    (AB-77).
    """
    channel = client.channel()
    channel.queue(name)
    channel.exchange(name, "fanout", auto_delete=True)
    channel.exchange(name, passive=True)
    channel.bind(name, name, "a")
    channel.bind(name, name, "b")
    channel.call(m.QueueUnbind(queue=name, exchange=name, routing_key="a"))
    channel.exchange(name, passive=True)
    channel.call(m.QueueUnbind(queue=name, exchange=name, routing_key="b"))
    channel.refuses(404, f"no exchange '{name}' in vhost '/'", m.ExchangeDeclare(exchange=name, passive=True))


def test_auto_delete_cascades(client, name):
    """AB-77: deleting the queue unbinds b, whose end unbinds a."""
    channel = client.channel()
    channel.queue(name)
    channel.exchange(f"{name}-a", "fanout", auto_delete=True)
    channel.exchange(f"{name}-b", "fanout", auto_delete=True)
    channel.bind_exchange(f"{name}-b", f"{name}-a")
    channel.bind(name, f"{name}-b")
    channel.delete(name)
    channel.refuses(404, f"no exchange '{name}-b' in vhost '/'", m.ExchangeDeclare(exchange=f"{name}-b", passive=True))
    client.channel().refuses(
        404, f"no exchange '{name}-a' in vhost '/'", m.ExchangeDeclare(exchange=f"{name}-a", passive=True)
    )
