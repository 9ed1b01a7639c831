"""The channels that the embedding program uses: they end after each refusal, and take a message of any size."""

from __future__ import annotations

import time

import pytest

from warren import Broker, BrokerError
from warren.actors.channel import Channel
from warren.tests.behaviour.wire import Client

from .anatomy import Anatomy

SIZE = 32 << 20


def test_a_refusal_for_which_a_connection_would_end_leaves_no_channel():
    """A refusal with a code that ends a connection (AB-49) ends the program's channel, and the next request gets
    another one.
    """
    with Broker() as broker:
        anatomy = Anatomy(broker)
        for _ in range(5):
            with pytest.raises(BrokerError, match="503 COMMAND_INVALID - unknown exchange type 'none'"):
                broker.declare_exchange("e", "none")
        assert broker.declare_queue("q") == "q"
        anatomy.eventually(lambda: len(anatomy.processes(Channel)) == 1)


def test_a_large_message_is_taken_out_in_time_proportional_to_its_size():
    """The frames of a message are joined once, so that a client's large message in small frames does not hold up the
    whole broker when the program gets it.
    """
    with Broker() as broker:
        client = Client(broker.url, frame_max=4096)
        channel = client.channel()
        channel.queue("q")
        channel.fill("q", "x" * SIZE)
        started = time.process_time()
        message = broker.get("q")
        # It takes 0.1 s on a slow machine; adding each frame to those before took 10 s.
        assert time.process_time() - started < 3
        assert message is not None and len(message.body) == SIZE
        client.close()
