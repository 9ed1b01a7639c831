"""No turn does more work because many auto-delete exchanges go with one that leads to them (AB-77)."""

from __future__ import annotations

import pytest

from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client

from .metered_broker import PATIENCE, all_at_once, broker, client, metered_broker, turns

# An imported fixture is available in this module.
__all__ = ["broker", "client", "metered_broker", "turns"]

MANY = 1_500


def chain(channel, last):
    """Declare `MANY` auto-delete exchanges, each bound to the next, and the last of them to a queue."""
    names = [f"x{number}" for number in range(MANY)]
    all_at_once(
        channel, [m.ExchangeDeclare(exchange=name, type="fanout", auto_delete=True, nowait=True) for name in names]
    )
    binds = [m.ExchangeBind(0, onto, source, "", nowait=True) for source, onto in zip(names, names[1:])]
    all_at_once(channel, [*binds, m.QueueBind(queue=last, exchange=names[-1], nowait=True)])


def exchanges_of(broker):
    return [row.name for row in broker.exchanges() if row.name.startswith("x")]


@pytest.mark.parametrize("durable", [False, True])
def test_a_queue_is_deleted_to_which_a_chain_leads(client, broker, turns, durable):
    channel = client.channel()
    channel.call(m.QueueDeclare(queue="q", durable=durable))
    chain(channel, "q")
    assert len(exchanges_of(broker)) == MANY
    channel.delete("q")
    assert not exchanges_of(broker) and not broker.bindings()


def test_the_last_binding_of_a_chain_is_removed(client, broker, turns):
    channel = client.channel()
    channel.queue("q")
    chain(channel, "q")
    channel.call(m.QueueUnbind(queue="q", exchange=f"x{MANY - 1}"))
    assert not exchanges_of(broker)
    channel.delete("q")


def test_an_exchange_is_deleted_to_which_a_chain_leads(client, broker, turns):
    channel = client.channel()
    channel.queue("q")
    chain(channel, "q")
    channel.call(m.ExchangeDelete(exchange=f"x{MANY - 1}"))
    assert not exchanges_of(broker)
    channel.delete("q")


def test_a_virtual_host_with_a_chain_is_deleted(broker, turns):
    broker.create_vhost("tenant")
    other = Client(broker.url_of("tenant"), timeout=PATIENCE)
    channel = other.channel()
    channel.queue("q")
    chain(channel, "q")
    other.abort()
    broker.delete_vhost("tenant")
    assert "tenant" not in broker.vhosts()
