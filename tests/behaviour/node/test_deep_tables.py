"""Clients may nest tables as deeply as the broker allows; whoever observes the broker sees everything else as ever."""

from __future__ import annotations

import json

import pytest

from warren.amqp.fields import MAX_DEPTH, Table
from warren.cli.formatters import LISTING_FORMATTERS
from warren.cli.node_client import NodeClient, Target


def nested(levels, letter):
    value = ("I", 7)
    for _ in range(levels):
        value = (letter, Table((("n", *value),)) if letter == "F" else (value,))
    return Table((("deep", *value),))


deep = pytest.mark.parametrize("arguments", [nested(MAX_DEPTH, letter) for letter in "FA"], ids=["tables", "arrays"])


def use(channel, arguments):
    """Declare a queue and an exchange, bind and consume, all with these arguments."""
    channel.queue("q", arguments)
    channel.exchange("e", "fanout", arguments)
    channel.bind("q", "e", "key", arguments)
    channel.consume("q", "tag", arguments)


@deep
def test_traced_copies_leave_out_headers_that_would_be_too_deep(own_broker, connect, arguments):
    """With tracing, headers that are nested as deeply as possible are published and delivered; the copies have all but
    these headers (AB-81).
    """
    broker = own_broker()
    broker.trace(True)
    channel, watcher = connect(to=broker.url).channel(), connect(to=broker.url).channel()
    copies = watcher.queue(exclusive=True)
    watcher.bind(copies, "amq.rabbitmq.trace", "#")
    channel.queue("q")
    channel.publish("m", "q", headers=arguments, message_id="7")
    (event,) = channel.take("q", 1)
    assert event.headers == arguments
    for copy in watcher.take(copies, 2):
        assert copy.body == b"m"
        assert copy.headers.get("properties") == ("F", Table((("message_id", "S", b"7"),)))


@deep
def test_events_leave_out_arguments_that_would_be_too_deep(own_broker, connect, arguments):
    """Arguments that are nested as deeply as possible do not end the process that reports them, and with it the
    node; the events have empty ones.
    """
    broker = own_broker(event_exchange_vhost="/")
    channel, watcher = connect(to=broker.url).channel(), connect(to=broker.url).channel()
    events = watcher.queue(exclusive=True)
    watcher.consume(events, no_ack=True)
    for event in ("queue.created", "consumer.created"):
        watcher.bind(events, "amq.rabbitmq.event", event)
    use(channel, arguments)
    reported = watcher.deliveries(2)
    assert [event.method.routing_key for event in reported] == ["queue.created", "consumer.created"]
    assert all(event.headers.get("arguments") == ("F", Table()) for event in reported)
    broker.wait_idle()
    assert channel.ready("q") == 0


@deep
def test_listings_cut_off_deep_arguments(own_broker, connect, tmp_path, arguments):
    """A listing shows a bounded number of levels, so each formatter and JSON can write it."""
    control = str(tmp_path / "control")
    use(connect(to=own_broker(control_dir=control).url).channel(), arguments)
    with NodeClient(Target("warren@localhost", control_dir=control)) as client:
        for operation in ("list_queues", "list_exchanges", "list_bindings", "list_consumers"):
            rows = list(client.call(operation, vhost="/", columns=["arguments"]))
            assert "..." in json.dumps(rows)
            for formatter in LISTING_FORMATTERS.values():
                assert any("..." in line for line in formatter(["arguments"], rows, True))


def levels(value):
    """How many dicts and lists are nested in each other."""
    count = 0
    while isinstance(value, (dict, list)):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
        count += 1
    assert value == 7
    return count


@deep
def test_the_http_api_gets_all_levels(own_broker, connect, tmp_path, arguments):
    """The operations of the HTTP API answer with arguments that are nested as deeply as possible. They failed, and so
    every page and export did, because of one queue.
    """
    control = str(tmp_path / "control")
    use(connect(to=own_broker(control_dir=control).url).channel(), arguments)
    with NodeClient(Target("warren@localhost", control_dir=control)) as client:
        found = {}
        for operation, options in (("statistics", {}), ("bindings", {"vhost": "/"}), ("consumers", {"vhost": "/"})):
            found[operation] = list(client.call(operation, **options))
        text = json.dumps(found)
    assert text.count('"deep"') >= 3
    assert levels(next(row["arguments"] for row in found["consumers"])) == MAX_DEPTH + 1
    keys = {row["properties_key"] for row in found["bindings"] if row["arguments"]}
    assert len(keys) == 1 and next(iter(keys)).startswith("key~")
