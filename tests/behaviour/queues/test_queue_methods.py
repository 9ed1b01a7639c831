"""queue.declare, bind, unbind, purge, delete: checks in order, codes and texts (amqp-broker section 7, AB-59, AB-62,
AB-82 to AB-90).
"""

import re

import pytest

from warren.amqp import methods as m
from warren.amqp.fields import Table

from ..wire import table

LOCKED = (
    "cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)


def test_declare_answers_with_name_ready_messages_and_consumers(channel, name):
    """queue.declare-ok has the name, the ready messages without unacknowledged ones, and the consumers (AB-83)."""
    assert channel.declare(name) == m.QueueDeclareOk(name, 0, 0)
    for body in ("a", "b", "c"):
        channel.publish(body, name)
    channel.get(name)
    channel.expect_ready(name, 2)
    assert channel.declare(name) == m.QueueDeclareOk(name, 2, 0)
    channel.purge(name)
    channel.consume(name, "t1")
    channel.consume(name, "t2")
    assert channel.declare(name) == m.QueueDeclareOk(name, 0, 2)


def test_empty_name_is_generated(channel):
    """A generated name is `amq.gen-` and 22 characters of URL-safe base64, different each time (AB-82)."""
    names = {channel.queue(exclusive=True) for _ in range(3)}
    assert len(names) == 3
    for generated in names:
        assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", generated)


def test_reserved_names_cannot_be_declared(client):
    """A reserved name cannot be declared, even if the queue exists. A passive declare may look for it (AB-65)."""
    generated = client.channel().queue(exclusive=True)
    for reserved in ("amq.mine", generated):
        client.channel().refuses(
            403,
            f"queue name '{reserved}' contains reserved prefix 'amq.*'",
            m.QueueDeclare(queue=reserved, exclusive=True),
        )
    assert client.channel().queue(generated, passive=True) == generated


def test_line_ends_are_taken_out_of_names(channel, name):
    """AB-59: declare, bind, unbind and delete remove CR and LF; purge, get and consume do not."""
    assert channel.queue(f"{name}\r\n-a\n") == f"{name}-a"
    channel.exchange(f"{name}\n-x\r", "fanout")
    channel.bind(f"{name}-\ra", f"{name}-x\n")
    channel.publish("1", "", f"{name}-x")
    channel.expect_ready(f"{name}-a", 1)
    channel.call(m.QueueUnbind(queue=f"{name}-a\n", exchange=f"{name}\r-x"))
    channel.publish("2", "", f"{name}-x")
    assert channel.delete(f"{name}\n-a") == 1
    channel.call(m.ExchangeDelete(exchange=f"{name}\n-x"))
    channel.refuses(404, f"no exchange '{name}-x' in vhost '/'", m.ExchangeDeclare(exchange=f"{name}-x", passive=True))


@pytest.mark.parametrize("method", [m.QueuePurge, m.BasicGet, m.BasicConsume])
def test_line_ends_stay_in_names_elsewhere(channel, name, method):
    """AB-59: purge, get and consume find no queue under such a name."""
    channel.queue(name)
    channel.refuses(404, f"no queue '{name}\n' in vhost '/'", method(queue=f"{name}\n"))


@pytest.mark.parametrize(
    "method",
    [
        m.QueueBind(exchange="amq.direct"),
        m.QueueUnbind(exchange="amq.direct"),
        m.QueuePurge(),
        m.QueueDelete(),
        m.BasicGet(),
        m.BasicConsume(),
    ],
)
def test_empty_name_without_declared_queue(channel, method):
    """An empty name is refused with 404 if the channel has declared no queue (AB-62)."""
    channel.refuses(404, "no previously declared queue", method)


def test_empty_name_means_the_last_declared_queue(channel, name):
    """An empty name means the queue that the channel declared last, also after that queue was deleted. In bind an empty
    key then becomes the queue's name too, but only if the queue's name was empty (AB-62).
    """
    channel.queue(f"{name}-other")
    channel.queue(name)
    channel.exchange(name, "direct")
    channel.bind("", name, "")
    channel.publish("to the name", name, name)
    channel.publish("to the empty key", "", name)
    assert channel.get("", no_ack=True).body == b"to the name"
    assert channel.get("") is None
    channel.bind("", name, "key")
    channel.bind(f"{name}", name, "")
    channel.publish("to key", "key", name)
    channel.publish("to the empty key", "", name)
    assert channel.purge("") == 2
    channel.call(m.QueueUnbind(queue="", exchange=name, routing_key=""))
    channel.publish("gone", name, name)
    channel.publish("stays", "key", name)
    tag = channel.consume("")
    assert channel.delivery().body == b"stays"
    channel.cancel(tag)
    channel.delete("")
    channel.refuses(404, f"no queue '{name}' in vhost '/'", m.BasicGet(queue=""))


def test_passive_declare_sets_the_last_declared_queue(channel, name):
    """A passive declare sets the last declared queue as an active one does, and does not compare flags and arguments
    (amqp-broker section 7).
    """
    channel.queue(f"{name}-a")
    channel.queue(f"{name}-b")
    channel.publish("1", f"{name}-a")
    channel.expect_ready(f"{name}-a", 1)
    channel.queue(f"{name}-b")
    assert channel.declare(
        f"{name}-a", {"x-max-length": 7}, passive=True, durable=True, auto_delete=True
    ) == m.QueueDeclareOk(f"{name}-a", 1, 0)
    assert channel.get("").body == b"1"


def test_passive_declare_of_an_absent_queue(client, name):
    """A passive declare of an absent queue is refused with 404, and an empty name is not replaced (amqp-broker section
    7).
    """
    client.channel().refuses(404, f"no queue '{name}' in vhost '/'", m.QueueDeclare(queue=name, passive=True))
    channel = client.channel()
    channel.queue(name)
    channel.refuses(404, "no queue '' in vhost '/'", m.QueueDeclare(queue="", passive=True))


def test_nowait_omits_the_reply(channel, name):
    """declare, purge, bind and delete with nowait are not answered; queue.unbind has no nowait (AB-60)."""
    channel.send(m.QueueDeclare(queue=name, nowait=True))
    channel.send(m.QueueBind(queue=name, exchange="amq.fanout", nowait=True))
    channel.send(m.QueuePurge(queue=name, nowait=True))
    assert channel.ready(name) == 0
    channel.send(m.QueueDelete(queue=name, nowait=True))
    channel.call(m.QueueUnbind(queue=name, exchange="amq.fanout"))
    assert not channel.pending
    channel.refuses(404, f"no queue '{name}' in vhost '/'", m.QueueDeclare(queue=name, passive=True, nowait=True))


# --- equivalence ------------------------------------------------------------------------------------------------------


def _re_declare(client, name, first, second):
    client.channel().queue(name, **first)
    return m.QueueDeclare(queue=name, **{**second, "arguments": table(second.get("arguments"))})


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({}, {"durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
        ({"durable": True}, {}, "'durable' for {}: received 'false' but current is 'true'"),
        ({}, {"auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
        ({}, {"auto_delete": True, "durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
        (
            {},
            {"arguments": {"x-max-length": 5}},
            "'x-max-length' for {}: received the value '5' of type 'signedint' but current is none",
        ),
        (
            {"arguments": {"x-max-length": 5}},
            {},
            "'x-max-length' for {}: received none but current is the value '5' of type 'signedint'",
        ),
        (
            {"arguments": {"x-max-length": 5}},
            {"arguments": {"x-max-length": 6}},
            "'x-max-length' for {}: received '6' but current is '5'",
        ),
        (
            {"arguments": {"x-dead-letter-exchange": "a"}},
            {"arguments": {"x-dead-letter-exchange": "b"}},
            "'x-dead-letter-exchange' for {}: received 'b' but current is 'a'",
        ),
        (
            {"arguments": {"x-single-active-consumer": True}},
            {"arguments": {"x-single-active-consumer": False}},
            "'x-single-active-consumer' for {}: received 'false' but current is 'true'",
        ),
        (
            {"arguments": {"x-expires": 50_000}},
            {"arguments": {"x-expires": "60000"}},
            "'x-expires' for {}: received '60000' but current is '50000'",
        ),
        (
            {"arguments": {"x-max-priority": 5}},
            {"arguments": {"x-max-priority": 5, "x-message-ttl": 60_000}},
            "'x-message-ttl' for {}: received the value '60000' of type 'signedint' but current is none",
        ),
    ],
)
def test_inequivalent_declarations(client, name, first, second, text):
    """AB-87, AB-88: C406 names the first argument or flag that differs."""
    declare = _re_declare(client, name, first, second)
    client.channel().refuses(406, "inequivalent arg " + text.format(f"queue '{name}' in vhost '/'"), declare)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((), (("x-queue-type", "S", b"classic"),)),
        ((("x-queue-type", "S", b"classic"),), ()),
        ((("x-max-length", "I", 5),), (("x-max-length", "l", 5),)),
        ((("x-max-length", "b", 5),), (("x-max-length", "s", 5),)),
        ((("x-other", "I", 5),), (("x-unknown", "S", b"y"),)),
    ],
)
def test_equivalent_declarations(channel, name, first, second):
    """AB-87: integers compare by value, unknown arguments are not compared, and no type means `classic`."""
    channel.queue(name, Table(first))
    assert channel.queue(name, Table(second)) == name


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-expires": "1"}, "'x-expires' for {}: \"expected integer, got longstr\""),
        ({"x-expires": 0}, "'x-expires' for {}: {{value_zero,0}}"),
        ({"x-expires": -1}, "'x-expires' for {}: {{value_negative,-1}}"),
        ({"x-expires": 315_360_000_001}, "'x-expires' for {}: {{value_too_large,315360000001}}"),
        ({"x-message-ttl": "1"}, "'x-message-ttl' for {}: \"expected integer, got longstr\""),
        ({"x-message-ttl": -1}, "'x-message-ttl' for {}: {{value_negative,-1}}"),
        ({"x-message-ttl": 315_360_000_001}, "'x-message-ttl' for {}: {{value_too_large,315360000001}}"),
        ({"x-dead-letter-routing-key": "k"}, "'x-dead-letter-routing-key' for {}: routing_key_but_no_dlx_defined"),
        (
            {"x-dead-letter-routing-key": 5, "x-dead-letter-exchange": "x"},
            "'x-dead-letter-routing-key' for {}: {{unacceptable_type,signedint}}",
        ),
        ({"x-max-length": -1}, "'x-max-length' for {}: {{value_negative,-1}}"),
        ({"x-max-length": "1"}, "'x-max-length' for {}: \"expected integer, got longstr\""),
        ({"x-max-length-bytes": -1}, "'x-max-length-bytes' for {}: {{value_negative,-1}}"),
        ({"x-overflow": "spill"}, "'x-overflow' for {}: invalid_overflow"),
        ({"x-overflow": 1}, "'x-overflow' for {}: {{unacceptable_type,signedint}}"),
        ({"x-max-priority": 256}, "'x-max-priority' for {}: {{max_value_exceeded,256}}"),
        ({"x-max-priority": -1}, "'x-max-priority' for {}: {{value_negative,-1}}"),
        ({"x-queue-mode": "idle"}, "'x-queue-mode' for {}: \"unsupported queue mode 'idle'\""),
        ({"x-queue-version": 3}, "'x-queue-version' for {}: \"unsupported queue version '3'\""),
        ({"x-single-active-consumer": "yes"}, "'x-single-active-consumer' for {}: {{unacceptable_type,longstr}}"),
        ({"x-queue-type": "odd"}, "'x-queue-type' for {}: \"unsupported queue type 'odd'\""),
        ({"x-queue-type": 1}, "'x-queue-type' for {}: {{unacceptable_type,signedint}}"),
        ({"x-max-age": "1D"}, "'x-max-age' for {} of queue type rabbit_classic_queue"),
        ({"x-delivery-limit": 3}, "'x-delivery-limit' for {} of queue type rabbit_classic_queue"),
        ({"x-max-in-memory-length": 3}, "'x-max-in-memory-length' for {} of queue type rabbit_classic_queue"),
        (
            {"x-queue-leader-locator": "client-local"},
            "'x-queue-leader-locator' for {} of queue type rabbit_classic_queue",
        ),
        # Of two faults the one in the argument that is checked first is reported.
        ({"x-max-priority": -1, "x-expires": 0}, "'x-expires' for {}: {{value_zero,0}}"),
    ],
)
def test_refused_arguments(channel, name, arguments, text):
    """AB-89, AB-90: C406 names the argument and the reason."""
    phrase = f"queue '{name}' in vhost '/'"
    channel.refuses(406, "invalid arg " + text.format(phrase), m.QueueDeclare(queue=name, arguments=table(arguments)))


def test_refused_dead_letter_exchange(channel, name):
    """AB-89: it is checked before other arguments, and a wrong type has a text of its own."""
    arguments = table({"x-expires": 0, "x-dead-letter-exchange": 5})
    channel.refuses(
        406,
        f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue '{name}' in vhost '/'",
        m.QueueDeclare(queue=name, arguments=arguments),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0},
        {"x-max-length": 0},
        {"x-max-priority": 0},
        {"x-max-priority": 255},
        {"x-queue-mode": "lazy"},
        {"x-queue-version": 2},
        {"x-dead-letter-exchange": ""},
        {"x-queue-master-locator": "min-masters"},
        {"x-custom": [1, {"a": None}]},
        {"x-expires": 315_360_000_000},
    ],
)
def test_accepted_arguments(channel, name, arguments):
    """AB-89, AB-90: unknown arguments are kept and have no effect."""
    assert channel.queue(name, arguments) == name
    channel.delete(name)


# --- exclusive owners -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclare(exclusive=True),
        m.QueueDeclare(),
        m.QueueDeclare(passive=True),
        m.QueueBind(exchange="amq.fanout"),
        m.QueueUnbind(exchange="amq.direct", routing_key="k"),
        m.QueuePurge(),
        m.QueueDelete(),
        m.BasicGet(),
        m.BasicConsume(),
    ],
)
def test_exclusive_queue_is_locked_to_others(channel, connect, name, method):
    """Methods of another connection that name an exclusive queue are refused with 405 (AB-84)."""
    channel.queue(name, exclusive=True)
    channel.bind(name, "amq.direct", "k")
    method.queue = name
    connect().channel().refuses(405, LOCKED.format(name), method)


def test_exclusive_flag_must_match(client, name):
    """The exclusive flag must match, also in a declare on the owner's own connection (AB-84)."""
    client.channel().queue(name, exclusive=True)
    assert client.channel().queue(name, exclusive=True) == name
    client.channel().refuses(405, LOCKED.format(name), m.QueueDeclare(queue=name))
    client.channel().queue(f"{name}-shared")
    client.channel().refuses(
        405, LOCKED.format(f"{name}-shared"), m.QueueDeclare(queue=f"{name}-shared", exclusive=True)
    )


def test_durable_is_ignored_where_exclusive_is_set(channel, name):
    """An exclusive queue can be declared again, as durable or not (AB-83)."""
    channel.queue(name, exclusive=True, durable=True)
    assert channel.queue(name, exclusive=True) == name


def test_publishing_into_an_exclusive_queue_is_open_to_all(channel, connect, name):
    """Everybody may publish into an exclusive queue: the lock is about methods that name the queue (AB-84)."""
    channel.queue(name, exclusive=True)
    channel.consume(name, no_ack=True)
    connect().channel().publish("hello", name)
    assert channel.delivery().body == b"hello"


def test_exclusive_queue_is_gone_before_close_ok(client, connect, name):
    """When a connection closes in order, the names of its exclusive queues are free before close-ok (AB-84)."""
    client.channel().queue(name, exclusive=True)
    client.close()
    connect().channel().refuses(404, f"no queue '{name}' in vhost '/'", m.QueueDeclare(queue=name, passive=True))


def test_exclusive_queue_goes_when_its_client_dies(client, connect, name):
    """When a client dies, its exclusive queues go with their bindings, so that a mandatory message is
    returned (AB-84).
    """
    client.channel().queue(name, exclusive=True)
    client.abort()
    other = connect().channel()
    other.confirm()
    number = 0
    while not any(isinstance(event.method, m.BasicReturn) for event in other.pending):
        number += 1
        other.publish("anybody?", name, mandatory=True)
        other.confirms(number, number)


# --- bind and unbind --------------------------------------------------------------------------------------------------


def test_bind_checks_in_order(client, name):
    """queue.bind is checked in this order: default exchange, exchange, queue, binding (amqp-broker section 7)."""
    client.channel().refuses(
        403, "operation not permitted on the default exchange", m.QueueBind(queue=name, exchange="")
    )
    client.channel().refuses(404, f"no exchange '{name}-x' in vhost '/'", m.QueueBind(queue=name, exchange=f"{name}-x"))
    client.channel().refuses(404, f"no queue '{name}' in vhost '/'", m.QueueBind(queue=name, exchange="amq.direct"))


def test_unbind_of_an_absent_binding_succeeds(client, name):
    """queue.unbind succeeds without the binding, and also without the queue or the exchange. Unbinding from the default
    exchange is refused (amqp-broker section 7).
    """
    channel = client.channel()
    channel.call(m.QueueUnbind(queue=name, exchange=f"{name}-x"))
    channel.call(m.QueueUnbind(queue=name, exchange="amq.direct"))
    channel.queue(name)
    channel.call(m.QueueUnbind(queue=name, exchange="amq.direct", routing_key="k"))
    channel.call(m.QueueUnbind(queue=name, exchange=f"{name}-x"))
    channel.refuses(403, "operation not permitted on the default exchange", m.QueueUnbind(queue=name, exchange=""))


# --- purge and delete -------------------------------------------------------------------------------------------------


def test_purge_of_an_absent_queue(channel, name):
    """A purge of an absent queue is refused with 404 (amqp-broker section 7)."""
    channel.refuses(404, f"no queue '{name}' in vhost '/'", m.QueuePurge(queue=name))


def test_purge_drops_ready_messages_only(channel, name):
    """A purge drops ready messages only. Unacknowledged ones stay and may be requeued, and no message is dead-lettered
    (amqp-broker section 7).
    """
    channel.queue(f"{name}-dead")
    channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"})
    for body in ("a", "b", "c"):
        channel.publish(body, name)
    held = channel.get(name)
    assert channel.purge(name) == 2
    channel.reject(held.tag, requeue=True)
    assert channel.get_all(name) == [b"a"]
    assert channel.ready(f"{name}-dead") == 0


def test_delete_of_an_absent_queue_succeeds_with_0(channel, name):
    """amqp-broker section 7: delete is idempotent."""
    assert channel.delete(name) == 0


@pytest.mark.parametrize("passive", [True, False])
def test_an_exclusive_queue_of_a_connection_that_was_reset(connect, inside, name, passive):
    """AB-84: a declare waits for the end of an owner that has lost its client. RabbitMQ sometimes answers with 405."""
    channel = connect().channel()
    for _ in range(10):
        lost = connect()
        for _ in range(3):
            owner = lost.channel()
        owner.queue(name, exclusive=True)
        declare = m.QueueDeclare(queue=name, passive=passive, exclusive=not passive)
        inside.reset(lost, then=lambda channel=channel, declare=declare: channel.send(declare))
        if passive:
            channel.refuses(404, f"no queue '{name}' in vhost '/'")
            channel = channel.client.channel()
        else:
            channel.wait(m.QueueDeclareOk)
            channel.delete(name)


def test_a_consumer_that_deletes_its_queue_gets_delete_ok_first(client, channel, name):
    """A consumer that deletes its queue gets delete-ok before basic.cancel, and consumers on other channels get theirs
    (AB-126).
    """
    other = client.channel()
    channel.queue(name)
    for tag in "ab":
        channel.consume(name, tag)
    other.consume(name, "c")
    channel.send(m.QueueDelete(queue=name))
    assert channel.wait().method == m.QueueDeleteOk(0)
    assert {channel.wait().method.consumer_tag for _ in range(2)} == {"a", "b"}
    assert other.wait().method == m.BasicCancel("c", True)


def test_delete_counts_ready_messages(channel, name):
    """delete-ok counts the ready messages and not the unacknowledged ones, which may still be acknowledged (amqp-broker
    section 7, AB-86).
    """
    channel.queue(name)
    for body in ("a", "b", "c"):
        channel.publish(body, name)
    held = channel.get(name)
    assert channel.delete(name) == 2
    channel.ack(held.tag)
    channel.refuses(404, f"no queue '{name}' in vhost '/'", m.QueueDeclare(queue=name, passive=True))


def test_conditional_delete(client, name):
    """amqp-broker section 7: if-empty is checked before if-unused. Unacknowledged messages do not count as messages."""
    phrase = f"queue '{name}' in vhost '/'"
    holder = client.channel()
    holder.queue(name)
    holder.publish("1", name)
    holder.get(name)
    holder.publish("2", name)
    holder.consume(name, "t")
    client.channel().refuses(406, f"{phrase} in use", m.QueueDelete(queue=name, if_unused=True))
    holder.delivery()
    client.channel().refuses(406, f"{phrase} in use", m.QueueDelete(queue=name, if_unused=True, if_empty=True))
    holder.cancel("t")
    holder.publish("3", name)
    holder.ready(name)
    client.channel().refuses(406, f"{phrase} not empty", m.QueueDelete(queue=name, if_unused=True, if_empty=True))
    client.channel().refuses(406, f"{phrase} not empty", m.QueueDelete(queue=name, if_empty=True))
    assert holder.delete(name, if_unused=True) == 1
