"""No turn does more work because an exchange or a queue has many bindings, or a declare or bind has many arguments."""

from __future__ import annotations

import pytest

from warren import Broker
from warren.actors.metadata.process import Metadata
from warren.amqp import methods as m
from warren.amqp.fields import table_from
from warren.parted_table import SPLIT_AT
from warren.tests.behaviour.wire import Client
from warren.tests.system_crash.anatomy import Anatomy

from .large_dicts import large_dicts
from .metered_broker import all_at_once, broker, client, metered_broker, turns

# An imported fixture is available in this module.
__all__ = ["broker", "client", "metered_broker", "turns"]

#: How many bindings there are, each with its own key.
MANY = SPLIT_AT + 300
#: How many arguments one method has. Each is decoded by two calls, and made comparable by one more.
ARGUMENTS = 2_000
#: How often a turn may touch each argument.
TOUCHED = 8


@pytest.mark.parametrize("kind", ["direct", "topic", "headers"])
def test_the_tables_of_bindings_grow_in_parts(kind):
    """The tables of bindings grow in parts, because a dict copies all its entries when it grows, which takes 5 ms with
    a hundred thousand of them.
    """
    with Broker() as broker:
        client = Client(broker.url, timeout=60)
        channel = client.channel()
        channel.queue("q")
        channel.exchange("x", kind)
        binds = [
            m.QueueBind(0, "q", "x", f"key{number}", True, table_from({f"h{number}": number, "all": number}))
            for number in range(MANY)
        ]
        all_at_once(channel, binds)
        anatomy = Anatomy(broker)
        [metadata] = anatomy.processes(Metadata)
        assert not anatomy.call(large_dicts, metadata.state, metadata.routing)
        client.abort()


def many_arguments(**more):
    return table_from({**{f"header {number}": number for number in range(ARGUMENTS)}, **more})


@pytest.mark.parametrize("mode", ["all", "any"])
def test_bindings_with_many_arguments(client, broker, turns, mode):
    """Bindings with many arguments are made, route, are listed and go with their exchange, as those with few do."""
    channel = client.channel()
    channel.queue("q")
    channel.exchange("x", "headers")
    arguments = many_arguments(**{"x-match": mode})
    turns.forget()
    for key in "abc":
        channel.call(m.QueueBind(0, "q", "x", key, False, arguments))
    channel.call(m.QueueBind(0, "q", "x", "a", False, arguments))
    assert turns.most.calls < TOUCHED * ARGUMENTS, turns.most
    assert sum(binding.source_name == "x" for binding in broker.bindings()) == 3
    channel.publish("all", "", "x", headers={f"header {number}": number for number in range(ARGUMENTS)})
    channel.publish("one", "", "x", headers={"header 7": 7})
    assert channel.get_all("q") == ([b"all"] if mode == "all" else [b"all", b"one"])
    turns.forget()
    channel.call(m.QueueUnbind(0, "q", "x", "a", arguments))
    channel.call(m.ExchangeDelete(exchange="x"))
    assert turns.most.calls < TOUCHED * ARGUMENTS, turns.most
    assert not [binding for binding in broker.bindings() if binding.source_name == "x"]
    channel.delete("q")
    channel.close()


def test_methods_with_many_arguments_in_one_piece(client, broker, turns):
    """Methods with many arguments that arrive together are handled in turns of bounded work; the connection decodes two
    of them in a turn (see the bound of `turns`).
    """
    channel = client.channel()
    channel.queue("q")
    channel.exchange("x", "direct")
    arguments = many_arguments()
    all_at_once(channel, [m.QueueBind(0, "q", "x", f"{number}", True, arguments) for number in range(8)])
    channel.call(m.ExchangeDelete(exchange="x"))
    channel.delete("q")
    channel.close()


def test_declares_with_many_arguments(client, broker, turns):
    channel = client.channel()
    arguments = many_arguments()
    turns.forget()
    for _ in range(2):
        for name in "pq":
            channel.call(m.QueueDeclare(queue=name, arguments=arguments))
        channel.call(m.ExchangeDeclare(exchange="x", type="direct", arguments=arguments))
    assert turns.most.calls < TOUCHED * ARGUMENTS, turns.most
    channel.call(m.ExchangeDelete(exchange="x"))
    channel.delete("p")
    channel.delete("q")
