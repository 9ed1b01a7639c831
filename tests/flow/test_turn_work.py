"""No turn does more work because a client has many queues, bindings, channels, connections, or rows of a listing.

In each test a client does something with 1,500 things, and no turn of any process may do much work.
"""

from __future__ import annotations

from collections import deque
from time import monotonic

import pytest

from warren.amqp import methods as m
from warren.amqp.frames import method_frame
from warren.cli.node_client import NodeClient, Target
from warren.routing.wide_route import WideRoute
from warren.settings import Settings
from warren.tests.behaviour.wire import Client, table

from .metered_broker import MOST, PATIENCE, all_at_once, broker, client, metered_broker, turns

# An imported fixture is available in this module.
__all__ = ["broker", "client", "metered_broker", "turns"]

MANY = 1_500


def declare(channel, **flags):
    all_at_once(channel, [m.QueueDeclare(queue=f"q{number}", nowait=True, **flags) for number in range(MANY)])


def delete(channel):
    all_at_once(channel, [m.QueueDelete(queue=f"q{number}", nowait=True) for number in range(MANY)])


def bind(channel):
    channel.call(m.ExchangeDeclare(exchange="many", type="fanout"))
    binds = [m.QueueBind(queue=f"q{number}", exchange="many", nowait=True) for number in range(MANY)]
    all_at_once(channel, binds)


def bindings_of(broker, exchange):
    return sum(binding.source_name == exchange for binding in broker.bindings())


def test_many_queues_are_declared_and_deleted(client, broker, turns):
    channel = client.channel()
    declare(channel)
    assert len(broker.queues()) == MANY
    delete(channel)
    assert not broker.queues()


def test_a_fanout_exchange_with_many_queues_is_used_listed_and_deleted(client, broker, turns, monkeypatch):
    """In a fanout exchange with many queues every queue gets each message once, in order, and the confirm comes when
    all have it.
    """
    looked_up = deque()
    look_up = WideRoute.look_up

    def recorded(route, most):
        looked_up.append(look_up(route, most))
        return looked_up[-1]

    monkeypatch.setattr(WideRoute, "look_up", recorded)
    channel = client.channel()
    declare(channel)
    bind(channel)
    channel.call(m.ConfirmSelect())
    with client.in_one_piece():
        for number in range(5):
            channel.publish(f"{number}", "" if number % 2 else "another key", "many")
    confirmed = 0
    while confirmed < 5:
        confirmed = channel.wait(m.BasicAck).tag
    queues = broker.queues()
    assert len(queues) == MANY and {queue.messages for queue in queues} == {5}
    assert channel.get_all(f"q{MANY - 1}") == [b"0", b"1", b"2", b"3", b"4"]
    # The rows of the queues are looked up in several turns, once for all messages.
    assert sum(looked_up) == MANY and max(looked_up) <= Settings().turn_messages
    assert bindings_of(broker, "many") == MANY
    channel.call(m.ExchangeDelete(exchange="many"))
    assert not bindings_of(broker, "many")
    delete(channel)
    channel.close()


def test_a_message_passes_a_chain_of_many_exchanges(client, turns):
    """Messages stay in order through a long chain of exchanges, each is confirmed, and one that reaches no queue is
    returned, with headers and without.
    """
    channel = client.channel()
    channel.queue("q")
    declares = []
    for number in range(MANY):
        alternate = table({"alternate-exchange": f"e{number + 1}"} if number + 1 < MANY else None)
        declares.append(m.ExchangeDeclare(exchange=f"e{number}", type="direct", nowait=True, arguments=alternate))
    all_at_once(channel, declares)
    channel.bind("q", f"e{MANY - 1}", "key")
    channel.confirm()
    with client.in_one_piece():
        for number in range(4):
            channel.publish(f"{number}", "key", "e0", headers={"number": number} if number % 2 else None)
        channel.publish("unroutable", "other", "e0", mandatory=True)
    assert channel.confirms(1, 5)[1] == []
    assert channel.get_all("q") == [b"0", b"1", b"2", b"3"]
    assert channel.wait(m.BasicReturn).method.reply_code == 312
    all_at_once(channel, [m.ExchangeDelete(exchange=f"e{number}", nowait=True) for number in range(MANY)])
    channel.delete("q")


def test_messages_with_many_headers_are_decoded_a_few_in_a_turn(client, turns):
    """A headers exchange decodes messages with many headers a few in a turn; they stay in order, and all
    are confirmed.
    """
    channel = client.channel()
    channel.exchange("by headers", "headers")
    channel.queue("q")
    channel.bind("q", "by headers", arguments={"header 7": 7})
    channel.confirm()
    headers = {f"header {number}": number for number in range(MANY // 4)}
    with client.in_one_piece():
        for number in range(50):
            channel.publish(f"{number}", "", "by headers", headers={**headers, "number": number})
    assert channel.confirms(1, 50)[1] == []
    assert channel.get_all("q") == [b"%d" % number for number in range(50)]
    channel.delete("q")


def test_a_queue_with_many_bindings_is_deleted(client, broker, turns):
    """When a queue with many bindings is deleted, its exchange has none of them afterwards, nor has a new queue of that
    name.
    """
    channel = client.channel()
    channel.exchange("keys", "direct")
    channel.queue("q")
    all_at_once(channel, [m.QueueBind(0, "q", "keys", f"key {number}", nowait=True) for number in range(MANY)])
    channel.delete("q")
    channel.queue("q")
    assert not bindings_of(broker, "keys")
    channel.publish("unroutable", "key 7", "keys", mandatory=True)
    assert channel.wait(m.BasicReturn).method.reply_code == 312
    channel.delete("q")


def test_an_exchange_with_many_bindings_to_it_is_deleted(client, broker, turns):
    channel = client.channel()
    channel.exchange("keys", "direct")
    channel.exchange("target", "fanout")
    binds = [m.ExchangeBind(0, "target", "keys", f"key {number}", nowait=True) for number in range(MANY)]
    all_at_once(channel, binds)
    channel.call(m.ExchangeDelete(exchange="target"))
    assert not bindings_of(broker, "keys")


def test_a_connection_ends_with_many_exclusive_queues(client, broker, turns):
    declare(client.channel(), exclusive=True)
    client.close()
    assert not broker.queues()


def test_a_virtual_host_with_many_queues_exchanges_and_bindings_is_deleted(broker, turns):
    """When a virtual host is deleted, a new one of that name has nothing of it."""
    broker.create_vhost("tenant")
    client = Client(broker.url_of("tenant"), timeout=PATIENCE)
    channel = client.channel()
    declare(channel, durable=True)
    bind(channel)
    all_at_once(
        channel, [m.ExchangeDeclare(exchange=f"x{number}", type="direct", nowait=True) for number in range(MANY)]
    )
    client.abort()
    broker.delete_vhost("tenant")
    broker.create_vhost("tenant")
    assert not broker.queues("tenant") and len(broker.exchanges("tenant")) == 7 and not broker.bindings("tenant")
    broker.delete_vhost("tenant")


def test_a_transaction_publishes_to_many_queues(client, broker, turns):
    """The commit of a transaction to many queues is answered when every queue has the messages."""
    channel = client.channel()
    declare(channel)
    bind(channel)
    channel.call(m.TxSelect())
    for _ in range(3):
        channel.publish("x", "", "many")
    channel.call(m.TxCommit())
    assert {queue.messages for queue in broker.queues()} == {3}
    channel.call(m.ExchangeDelete(exchange="many"))
    delete(channel)


def test_many_channels_are_opened_listed_and_closed(client, broker, turns):
    client.write(b"".join([method_frame(number, m.ChannelOpen()) for number in range(1, MANY + 1)]))
    for number in range(1, MANY + 1):
        client.events.setdefault(number, deque())
    for number in range(1, MANY + 1):
        client.wait(number, m.ChannelOpenOk)
    assert len(broker.channels()) == MANY
    client.close()
    assert not broker.channels()


def test_many_connections_come_and_go(client, broker, turns):
    clients = [Client(broker.url, timeout=PATIENCE) for _ in range(200)]
    assert len(broker.connections()) == 201
    for other in clients:
        other.abort()
    deadline = monotonic() + 300
    while len(broker.connections()) > 1:
        assert monotonic() < deadline


def test_a_channel_is_opened_however_many_connections_its_user_has(client, broker, turns):
    """A limit of a user's channels is checked without a look at each of its connections."""
    broker.set_user_limits("guest", {"max-channels": MANY})

    def most_calls():
        turns.forget()
        client.channel().close()
        return turns.most.calls

    few = max(most_calls() for _ in range(5))
    others = [Client(broker.url, timeout=PATIENCE) for _ in range(100)]
    assert min(most_calls() for _ in range(5)) <= few
    for other in others:
        other.abort()
    broker.set_user_limits("guest", {"max-channels": -1})


def test_a_management_process_reads_many_queues_and_users(client, broker, turns):
    """The management process gets a row for each queue and user, then what was counted since (CM-252, CM-335)."""
    for number in range(400):
        broker.add_user(f"u{number}", "p")
    channel = client.channel()
    declare(channel)
    turns.forget()
    with NodeClient(Target(broker.settings.node_name, control_dir=broker.settings.control_dir), PATIENCE) as node:
        node.allow(PATIENCE)
        rows = list(node.rows("statistics"))
        assert sum(row["kind"] == "queue" for row in rows) == MANY
        assert [len(row["of_users"]) for row in rows if row["kind"] == "definitions"] == [401]
        assert sum(row["kind"] == "queue_stats" for row in rows) == MANY
        node.allow(PATIENCE)
        assert not [row for row in node.rows("statistics") if row["kind"] == "queue"]
    assert turns.most.calls < MOST, turns.most
    delete(channel)
    for number in range(400):
        broker.delete_user(f"u{number}")


def test_a_queue_with_many_consumers_is_listed_and_deleted(client, broker, turns):
    """Operators list many consumers, the management process reads them, and the deletion of their queue cancels them,
    in turns of bounded work.
    """
    channel = client.channel()
    channel.queue("q")
    wanted = [f"c{number}" for number in range(4 * MANY)]
    consumers = [m.BasicConsume(queue="q", consumer_tag=tag, nowait=True) for tag in wanted]
    all_at_once(channel, consumers)
    with NodeClient(Target(broker.settings.node_name, control_dir=broker.settings.control_dir), PATIENCE) as node:
        for operation in ("list_consumers", "consumers"):
            node.allow(PATIENCE)
            assert [row["consumer_tag"] for row in node.rows(operation, vhost="/")] == wanted
    channel.delete("q")


@pytest.mark.parametrize("way", ["rejected", "expired", "maxlen", "refused"])
def test_messages_that_all_differ_die_a_few_in_a_turn(client, broker, turns, way):
    """A dead letter has to be made for each message that is not like its neighbour. That takes many times as long as
    for messages that are alike, of which very many may have died before.
    """
    channel = client.channel()
    channel.queue("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    if way == "refused":
        arguments |= {"x-max-length": 1, "x-overflow": "reject-publish-dlx"}
    channel.queue("q", arguments=arguments)
    channel.publish("head", "q")
    expiration = "1" if way == "expired" else None
    with client.in_one_piece():
        for number in range(2 * MANY):
            message_id = f"{number}" if number > MANY else "alike"
            channel.publish(f"{number}", "q", message_id=message_id, expiration=expiration)
    if way == "rejected":
        channel.call(m.BasicConsume(queue="q"))
        for _ in range(2 * MANY + 1):
            last = channel.wait(m.BasicDeliver)
        channel.nack(last.method.delivery_tag, multiple=True, requeue=False)
    elif way == "expired":
        channel.expect_ready("q", 2 * MANY + 1)
        assert channel.get("q").body == b"head"
    elif way == "maxlen":
        channel.expect_ready("q", 2 * MANY + 1)
        broker.set_policy("die", "^q$", {"max-length": 0})
    head = [b"head"] if way in ("rejected", "maxlen") else []
    channel.expect_ready("dead", 2 * MANY + len(head))
    assert channel.get_all("dead") == [*head, *[b"%d" % number for number in range(2 * MANY)]]
    if way == "maxlen":
        broker.clear_policy("die")
    channel.delete("q")
    channel.delete("dead")


@pytest.mark.parametrize("durable", [False, True])
def test_dead_letters_of_refused_messages_go_to_many_queues(client, broker, turns, durable):
    """Messages that die on arrival become dead letters for many queues in turns of bounded work too, in order, and each
    publish is answered.
    """
    channel = client.channel()
    declare(channel, durable=durable)
    bind(channel)
    arguments = {"x-dead-letter-exchange": "many", "x-max-length": 1, "x-overflow": "reject-publish-dlx"}
    channel.queue("source", durable=durable, arguments=arguments)
    channel.confirm()
    with client.in_one_piece():
        for number in range(5):
            channel.publish(f"{number}", "source", message_id=f"{number}", delivery_mode=2 if durable else 1)
    assert channel.confirms(1, 5) == ([1], [2, 3, 4, 5])
    for name in ("q0", f"q{MANY // 2}", f"q{MANY - 1}"):
        channel.expect_ready(name, 4)  # the queues get it in any order, some in each turn
        assert channel.get_all(name) == [b"1", b"2", b"3", b"4"]
    channel.call(m.ExchangeDelete(exchange="many"))
    channel.delete("source")
    delete(channel)


@pytest.mark.parametrize("durable", [False, True])
def test_dead_letters_go_to_many_queues(client, broker, turns, durable):
    """Each queue gets each dead letter once, in order, and what dies later comes behind it, to one queue too. Between
    durable queues the journal hands them over.
    """
    channel = client.channel()
    declare(channel, durable=durable)
    bind(channel)
    channel.queue("source", durable=durable, arguments={"x-dead-letter-exchange": "many"})
    for number in range(4):
        channel.publish(f"{number}", "source", message_id=f"{number}", delivery_mode=2 if durable else 1)
    for _ in range(4):
        last = channel.get("source")
    channel.nack(last.method.delivery_tag, multiple=True, requeue=False)
    for name in ("q0", f"q{MANY // 2}", f"q{MANY - 1}"):
        channel.expect_ready(name, 4)  # the queues get it in any order, some in each turn
        assert channel.get_all(name) == [b"0", b"1", b"2", b"3"]
    channel.call(m.ExchangeDelete(exchange="many"))
    channel.delete("source")
    delete(channel)
