"""The home of a queue dies, or cannot be reached (CL-59)."""

from __future__ import annotations

import pytest

from warren.amqp import methods as m
from warren.routing.phrases import queue_unavailable
from warren.tests.behaviour.wire import Refused

DOWN = queue_unavailable("/", "q", "down", "warren@b").text


@pytest.fixture
def near(nodes):
    return nodes.channel("a")


def refusal(channel, method):
    """The code and text with which a method is refused; it is sent on a channel of its own."""
    own = channel.client.channel()
    own.send(method)
    with pytest.raises(Refused) as refused:
        own.wait(m.ChannelCloseOk)
    return refused.value.close.reply_code, refused.value.close.reply_text


METHODS = (
    m.QueueDeclare(queue="q", durable=True),
    m.QueueDeclare(queue="q", passive=True),
    m.QueuePurge(queue="q"),
    m.BasicGet(queue="q"),
    m.BasicConsume(queue="q"),
)


@pytest.mark.parametrize("how", ["cut", "kill"])
def test_what_channels_of_other_nodes_are_told_first(nodes, near, how):
    """When the link to a queue's home is lost, consumers are cancelled and unconfirmed publishes refused at once,
    before the node knows whether the home is down.
    """
    near.queue("q", durable=True)
    near.confirm()
    near.consume("q", "tag")
    nodes.nodes["b"].machine.pause()
    near.publish("lost?", "q")
    nodes.world.run(0.01)
    assert not near.pending
    nodes.cut("a", "b") if how == "cut" else nodes.kill("b")
    assert near.wait(m.BasicCancel).method.consumer_tag == "tag"
    assert near.confirms(1, 1) == ([], [1])
    for method in METHODS[1:]:
        assert refusal(near, method) == (404, f"NOT_FOUND - {DOWN}")
    near.publish("refused", "q")
    assert near.confirms(2, 2) == ([], [2])


def test_a_durable_queue_of_a_node_that_is_down(nodes, near):
    """While the home of a durable queue is down, methods are refused with its name. A publish is nacked, and returned
    first if it is mandatory and reaches no other queue.
    """
    near.queue("q", durable=True)
    near.bind("q", "amq.fanout")
    nodes.kill("b")
    nodes.down("b")
    for method in METHODS:
        assert refusal(near, method) == (404, f"NOT_FOUND - {DOWN}")
    near.confirm()
    near.publish("1", "q")
    assert near.confirms(1, 1) == ([], [1])
    near.publish("2", "q", mandatory=True)
    event = near.wait(m.BasicReturn)
    assert (event.method.reply_code, event.body) == (312, b"2")
    assert near.confirms(2, 2) == ([], [2])
    nodes.home("a")
    near.queue("other")
    near.bind("other", "amq.fanout")
    near.publish("3", exchange="amq.fanout", mandatory=True)
    assert near.confirms(3, 3) == ([], [3])
    assert near.get_all("other") == [b"3"] and not near.pending


def test_a_transaction_with_a_queue_that_is_down_fails(nodes, near):
    near.queue("q", durable=True)
    near.call(m.TxSelect())
    near.publish("1", "q")
    nodes.kill("b")
    nodes.down("b")
    near.send(m.TxCommit())
    with pytest.raises(Refused, match="partial tx completion"):
        near.wait(m.TxCommitOk)


def test_a_transient_queue_goes_with_its_home(nodes, near):
    """When the home of a transient queue is lost, the queue goes with its bindings, and its name can be used again
    (CL-33).
    """
    near.queue("q")
    near.bind("q", "amq.fanout")
    near.consume("q", "tag")
    nodes.kill("b")
    assert near.wait(m.BasicCancel).method.consumer_tag == "tag"
    nodes.down("b")
    assert refusal(near, METHODS[1]) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")
    near.publish("m", exchange="amq.fanout", mandatory=True)
    assert near.wait(m.BasicReturn).method.reply_code == 312
    nodes.home("a")
    near.queue("q", {"x-max-length": 5})
    assert near.ready("q") == 0


def test_a_queue_whose_home_is_down_can_be_deleted(nodes, near):
    """A queue whose home is down can be deleted, but not with if-empty, because no node can check that."""
    near.queue("q", durable=True)
    nodes.kill("b")
    nodes.down("b")
    code, text = refusal(near, m.QueueDelete(queue="q", if_empty=True))
    assert code == 406 and "may have messages: its home node 'warren@b' is down" in text
    assert near.delete("q") == 0
    nodes.home("a")
    assert near.queue("q") == "q"


def test_a_queue_can_be_used_again_when_the_connection_is_back(nodes, near):
    """After a cut the queue is usable again. Its consumers on other nodes were cancelled, and the messages that they
    held come again.
    """
    near.queue("q")
    near.publish("m", "q")
    near.consume("q", "tag")
    near.delivery()
    nodes.cut("a", "b")
    near.wait(m.BasicCancel)
    nodes.world.mend()
    nodes.meet()
    again = near.client.channel()
    again.consume("q")
    event = again.delivery()
    assert event.body == b"m" and event.method.redelivered


def test_an_exclusive_queue_ends_with_the_node_of_its_connection(nodes, near):
    other = nodes.channel("b")
    other.queue("mine", exclusive=True)
    assert refusal(near, m.QueueDeclare(queue="mine", passive=True))[0] == 405
    nodes.kill("b")
    nodes.down("b")
    nodes.home("a")
    assert near.queue("mine") == "mine"


def test_a_declare_whose_home_dies_is_answered(nodes, near):
    """If the node that starts a new queue dies, the declare is answered with an error (CL-34)."""
    nodes.nodes["b"].machine.pause()
    near.send(m.QueueDeclare(queue="q", durable=True))
    nodes.world.run(0.05)
    nodes.kill("b")
    nodes.world.run(0.5)
    nodes.down("b")
    with pytest.raises(Refused) as refused:
        near.wait(m.QueueDeclareOk)
    assert refused.value.close.reply_code == 404


def test_a_durable_queue_is_used_again_when_its_home_is_back(make):
    """When the home of a durable queue runs again, clients of other nodes can use it, although its address has another
    incarnation.
    """
    nodes = make(with_store=True)
    nodes.home("b")
    near = nodes.channel("a")
    near.queue("q", durable=True)
    near.confirm()
    near.publish("kept", "q", delivery_mode=2)
    assert near.confirms(1, 1) == ([1], [])
    nodes.kill("b")
    nodes.down("b")
    assert refusal(near, METHODS[2]) == (404, f"NOT_FOUND - {DOWN}")
    nodes.restart("b")
    assert near.get("q").body == b"kept"
    near.publish("new", "q")
    assert near.confirms(2, 2) == ([2], [])
    assert near.get("q").body == b"new"


def test_what_is_published_while_the_home_stops_is_refused_or_kept(make):
    """Publishes to a queue whose home stops are nacked, or are in the queue when the home runs again. They are not
    counted as confirmed just because the queue's process ended in order, as for a deleted queue.
    """
    nodes = make(with_store=True)
    nodes.home("b")
    near = nodes.channel("a")
    near.queue("q", durable=True)
    consumer = near.client.channel()
    consumer.consume("q", "tag")
    near.confirm()
    home, number = nodes.nodes["b"], 0
    home.begin_stop()
    while not home.has_stopped:
        number += 1
        near.publish(str(number), "q", delivery_mode=2)
        nodes.world.run(0.0005)
    acked, nacked = near.confirms(1, number)
    assert nacked
    assert consumer.wait(m.BasicCancel).method.consumer_tag == "tag"
    home.kill()
    nodes.down("b")
    nodes.restart("b")
    kept = {int(body) for body in near.get_all("q")}
    assert kept >= set(acked)


@pytest.mark.parametrize("flags", [{"if_empty": True}, {"if_unused": True}])
def test_a_queue_that_cannot_be_asked_is_not_deleted_on_a_condition(nodes, near, flags):
    """When only the link to the home of a queue is cut, nobody can check whether the queue is empty or unused. So a
    delete on that condition is refused, and takes neither messages nor consumers away.
    """
    near.queue("q", durable=True)
    near.publish("kept", "q")
    there = nodes.channel("b")
    there.consume("q", "tag", no_ack=False)
    assert there.delivery().body == b"kept"
    nodes.cut("a", "b")
    assert refusal(near, m.QueueDelete(queue="q", **flags)) == (404, f"NOT_FOUND - {DOWN}")
    there.close()
    nodes.world.mend()
    nodes.meet()
    assert near.get("q").body == b"kept"


@pytest.mark.parametrize(("how", "code"), [("cut", 404), ("down", 406)])
def test_a_shard_that_cannot_be_asked_does_not_count_as_empty(nodes, near, how, code):
    """A sharded queue with a shard on a node that is down, or that cannot be reached, is not deleted with if-empty."""
    homes = iter(("warren@a", "warren@b", "warren@b"))
    nodes.metadata("a").homes.choose = lambda *question: next(homes)
    near.queue("q", {"x-shards": 2}, durable=True)
    near.publish("kept", "q")
    if how == "cut":
        nodes.cut("a", "b")
    else:
        nodes.kill("b")
        nodes.down("b")
    assert refusal(near, m.QueueDelete(queue="q", if_empty=True))[0] == code
    assert nodes.metadata("a").state.queue("/", "q") is not None
