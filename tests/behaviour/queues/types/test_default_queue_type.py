"""The default queue type of a virtual host: the type of a queue that is declared without one (AB-91).

The first test has the steps of RabbitMQ's case `vhost_with_default_queue_type_declares_quorum_queue`.
"""

from __future__ import annotations

import pytest

from warren import BrokerError
from warren.amqp import methods as m

from ...wire import Refused

VHOST = "typed"


@pytest.fixture
def own(own_broker):
    """A broker of its own."""
    return own_broker()


@pytest.fixture
def typed(own, connect):
    """`typed(default)` gives the virtual host this default queue type, and returns a channel in it."""
    own.create_vhost(VHOST)

    def make(default):
        own._node.operate("add_vhost", name=VHOST, default_queue_type=default)
        return connect(to=own.url.replace("%2F", VHOST)).channel()

    return make


def argument(own, name):
    return own.queue(name, vhost=VHOST).arguments.get("x-queue-type")


@pytest.mark.parametrize("default", ["quorum", "stream"])
def test_a_queue_without_a_type_gets_the_default(typed, own, default):
    """A durable queue gets the type, and may be declared again with the type and without it. An exclusive, a transient
    and an auto-delete queue cannot have it, and are classic.
    """
    channel = typed(default)
    for arguments in ({}, {}, {"x-queue-type": default}):
        channel.queue("q", arguments, durable=True)
    assert argument(own, "q") == default
    for passive in ({}, {"x-queue-type": default}):
        channel.queue("q", passive, passive=True)
    channel.queue("exclusive", exclusive=True, durable=True)
    channel.queue("transient")
    channel.queue("auto-delete", durable=True, auto_delete=True)
    assert [argument(own, name) for name in ("exclusive", "transient", "auto-delete")] == [None, None, None]


def test_queues_that_are_declared_together_get_the_default(typed, own):
    """A client that does not wait for its answers gets no other queues."""
    channel = typed("quorum")
    with channel.client.in_one_piece():
        for number in range(5):
            channel.send(m.QueueDeclare(queue=f"q{number}", durable=True, nowait=True))
    channel.queue("last", durable=True)
    assert {argument(own, f"q{number}") for number in range(5)} == {"quorum"}


def test_a_given_type_counts(typed, own):
    """The default changes nothing about a declaration with a type, and another type of an existing queue is refused."""
    channel = typed("quorum")
    channel.queue("c", {"x-queue-type": "classic"}, durable=True)
    assert argument(own, "c") == "classic"
    with pytest.raises(
        Refused, match="406 .*inequivalent arg 'x-queue-type'.*received 'quorum' but current is 'classic'"
    ):
        channel.queue("c", durable=True)


def test_the_default_decides_which_arguments_are_allowed(typed):
    """The arguments are checked with the default type among them, and so is an empty name (AB-82, AB-90)."""
    with pytest.raises(Refused, match="406 .*invalid arg 'x-max-priority' .*of queue type rabbit_quorum_queue"):
        typed("quorum").queue("p", {"x-max-priority": 3}, durable=True)
    with pytest.raises(Refused, match="406 .*Cannot declare a server-named queue for type rabbit_stream_queue"):
        typed("stream").queue("", durable=True)


def test_classic_as_the_default_is_among_the_arguments(typed, own):
    """A classic queue may have any flags, so the default applies to all of them."""
    channel = typed("classic")
    channel.queue("exclusive", exclusive=True)
    assert argument(own, "exclusive") == "classic"


def test_a_queue_that_is_older_than_the_default_is_declared_as_before(typed, own, connect):
    """A client goes on to declare a queue without a type that it had declared so before the virtual host had a default.
    The queue keeps its type. Once it was deleted, the client gets a queue of the default type.
    """
    channel = connect(to=own.url.replace("%2F", VHOST)).channel()
    channel.queue("old", durable=True)
    channel = typed("quorum")
    channel.queue("old", durable=True)
    assert argument(own, "old") is None
    with pytest.raises(BrokerError, match="inequivalent arg 'x-queue-type'"):
        own.declare_queue("old", vhost=VHOST, durable=True, arguments={"x-queue-type": "quorum"})
    own.delete_queue("old", vhost=VHOST)
    channel.queue("old", durable=True)
    assert argument(own, "old") == "quorum"


@pytest.mark.parametrize("given", ["group", "Quorum", "lazy"])
def test_no_other_type_is_a_default(own, given):
    with pytest.raises(BrokerError, match="the default queue type is one of classic, quorum, stream, not"):
        own._node.operate("add_vhost", name=VHOST, default_queue_type=given)
    assert VHOST not in own.vhosts()


@pytest.mark.parametrize("none", ["", "undefined"])
def test_a_default_can_be_taken_back(typed, own, none):
    typed("quorum")
    typed(none).queue("q", durable=True)
    assert argument(own, "q") is None


def test_a_program_that_embeds_the_broker_gets_the_default_as_well(typed, own):
    typed("quorum")
    own.declare_queue("q", vhost=VHOST, durable=True)
    assert argument(own, "q") == "quorum"
