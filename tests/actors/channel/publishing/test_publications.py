"""What a channel remembers of the messages that it has published."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warren.actors.channel.publishing.publications import PUBLICATIONS_KEPT, Publications
from warren.amqp.frames import build_content, content_properties
from warren.amqp.methods import BasicPublish
from warren.amqp.parser.skimmer import fate
from warren.amqp.properties import Properties, encode_properties
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable


class Anything:
    """A user who may do everything."""

    def check(self, *wanted):
        pass


@pytest.fixture
def routing():
    table = RoutingTable()
    table.add_vhost("/")
    table.put_queue(QueueRow("/", "q", "address", "q"))
    return table


@pytest.fixture
def publications(routing):
    config = SimpleNamespace(vhost="/", access=Anything(), user="guest")
    return Publications(SimpleNamespace(routing=routing), config, None, SimpleNamespace(spread=lambda *given: None))


def decide(publications, routing, routing_key="q", **properties):
    """Decide for a message with these properties, after a change of the routing table."""
    if publications.version != routing.version:
        publications.forget()
    content = build_content(1, encode_properties(Properties(**properties)), b"x", 0)
    payload = BasicPublish(exchange="", routing_key=routing_key).encode()
    return publications.decide(payload, fate(content_properties(content))[0], content, False)


def test_messages_keep_their_origin_when_the_routing_table_changes(publications, routing):
    """Messages keep their origin when the routing table changes. With new origins, a consumer would keep one for each
    change of the table with the heads of its deliveries, and free all of them in one turn.
    """
    first = decide(publications, routing)
    routing.put_queue(QueueRow("/", "other", "address", "other"))
    again = decide(publications, routing)
    assert again is not first and again.origin is first.origin
    assert decide(publications, routing, delivery_mode=2).origin is not first.origin
    assert decide(publications, routing, routing_key="other").origin is not first.origin


def test_the_origins_of_keys_that_never_come_again_do_not_pile_up(publications, routing):
    first = decide(publications, routing)
    for number in range(PUBLICATIONS_KEPT):
        decide(publications, routing, routing_key=f"key {number}")
    assert decide(publications, routing).origin is not first.origin
    assert decide(publications, routing).origin == first.origin
