"""Which addresses of other nodes the catalogue lists for a client (SP-21)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from warren.actors.channel.consuming.endpoints import Endpoints
from warren.actors.contracts.node import ClientAddress
from warren.runtime.errors import ProcessDown, ProcessTimeout, UnknownMessage

#: What each node answers, or why it does not answer.
ANSWERS = {
    "b": [ClientAddress("10.0.0.2", 5671, True), ClientAddress("10.0.0.2", 5672, False)],
    "c": [ClientAddress("127.0.0.1", 5672, False), ClientAddress("localhost", 5673, False)],
    "d": [ClientAddress("::1", 5672, False), ClientAddress("2001:db8::1", 5672, False)],
    "down": ProcessDown(),
    "silent": ProcessTimeout(),
    "old": UnknownMessage("unknown"),
    "closed": [],
}


def endpoints(reached, with_tls=False):
    """What the catalogue lists for a client that has connected to this address of node a, by node."""

    async def answer(node):
        if isinstance(ANSWERS[node], Exception):
            raise ANSWERS[node]
        return ANSWERS[node]

    process = SimpleNamespace(ask=lambda address, message, timeout: answer(address))
    context = SimpleNamespace(node_name="a", peers=SimpleNamespace(node=lambda node: node))
    found = Endpoints(process, context, SimpleNamespace(reached=reached, with_tls=with_tls), ["a", *ANSWERS])
    asyncio.run(found.answered())
    return {node: listed for node in ("a", *ANSWERS) if (listed := found.of([node]))}


@pytest.mark.parametrize("reached", [("10.0.0.1", 5672), ("2001:db8::9", 5672)])
def test_a_client_of_another_machine_gets_no_loopback_addresses(reached):
    """Nodes that are away, of an older version, or closed to clients have no address."""
    own = "10.0.0.1:5672" if reached[0] == "10.0.0.1" else "[2001:db8::9]:5672"
    assert endpoints(reached) == {"a": [own], "b": ["10.0.0.2:5672"], "d": ["[2001:db8::1]:5672"]}


def test_a_client_on_the_machine_gets_loopback_addresses():
    found = endpoints(("127.0.0.1", 5672))
    assert found["c"] == ["127.0.0.1:5672", "localhost:5673"]
    assert found["d"] == ["[::1]:5672", "[2001:db8::1]:5672"]


def test_a_client_with_tls_gets_listeners_with_tls():
    assert endpoints(("10.0.0.1", 5671), with_tls=True) == {"a": ["10.0.0.1:5671"], "b": ["10.0.0.2:5671"]}


def test_the_program_that_embeds_the_broker_gets_no_addresses():
    context = SimpleNamespace(node_name="a", peers=None)
    assert Endpoints(None, context, SimpleNamespace(reached=None, with_tls=False), ["a"]).of(["a"]) == []
