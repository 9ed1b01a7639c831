"""Clients of node a use queues on node b (CL-10, CL-34, CL-59).

`tests/behaviour` tests the behaviour of queues; these tests are about what the distance between two nodes adds.
"""

from __future__ import annotations

import pytest

from warren.actors.connection.output import FIRST_WRITE, SocketOutput
from warren.actors.metadata.state.commands import PutRecords
from warren.amqp import methods as m
from warren.definitions.records import Policy
from warren.tests.behaviour.wire import REPLIES, Refused


@pytest.fixture
def near(nodes):
    """A channel on the node without the queues."""
    return nodes.channel("a")


@pytest.fixture
def far(nodes):
    """A channel on the node with the queues."""
    return nodes.channel("b")


def test_publish_and_get(near, far):
    """A declare on either node is in force on the other, and messages published on one node can be fetched on both."""
    near.confirm()
    near.queue("q")
    for number in range(3):
        near.publish(b"%d" % number, "q")
    assert near.confirms(1, 3) == ([1, 2, 3], [])
    assert far.ready("q") == near.ready("q") == 3
    assert far.get("q", no_ack=True).body == b"0"
    assert near.get_all("q") == [b"1", b"2"]


def test_the_home_starts_the_queue(nodes, near):
    near.queue("q")
    assert [len(nodes.nodes[name].processes("Queue")) for name in "ab"] == [0, 1]


def test_acknowledgements_and_requeues(near, far):
    """Acknowledgements from another node settle messages, and messages that a channel there loses come again, flagged
    as redelivered.
    """
    near.queue("q")
    near.qos(3)
    near.consume("q")
    for number in range(4):
        far.publish(b"%d" % number, "q")
    first, second, third = near.deliveries(3)
    near.ack(first.tag)
    near.reject(second.tag)
    assert [(event.body, event.method.redelivered) for event in near.deliveries(2)] in (
        [(b"3", False), (b"1", True)],
        [(b"1", True), (b"3", False)],
    )
    near.close()
    assert sorted(far.get_all("q")) == [b"1", b"2", b"3"]
    assert third.body == b"2"


@pytest.mark.parametrize(("size", "count", "most"), [(500, 3_000, 1_600), (10_000, 1_000, 400)])
def test_what_is_not_written_to_a_socket_stays_at_the_home(nodes, near, far, size, count, most):
    """A queue delivers at most 200 messages that the consumer's connection on another node has not written to its
    socket, and 800 if they are small (FC-32).
    """
    near.queue("q")
    far.confirm()
    for _ in range(count):
        far.publish(b"x" * size, "q")
    far.confirms(1, count)
    near.client.socket.stream.stall()
    near.send(m.BasicConsume(queue="q", no_ack=True))
    nodes.world.run(5.0)
    assert 0 < count - far.ready("q") < most
    near.client.socket.stream.stall(False)
    near.wait(*REPLIES[m.BasicConsume])
    assert len(near.bodies(count)) == count


def test_a_queue_without_credit_slows_publishers_of_other_nodes(nodes, near):
    """When a queue on another node gives a channel no credit, the channel's connection stops reading from its client
    (FC-20, FC-4).
    """
    near.queue("q")
    nodes.nodes["b"].machine.pause()
    for _ in range(2_000):
        near.publish(b"m", "q")
    nodes.world.run(0.2)
    (channel,) = [row for row in nodes.nodes["a"].listing("channels") if row["number"]]
    assert channel["blocked_by"] == ["q"] and channel["state"] == "flow"
    nodes.nodes["b"].machine.resume()
    near.expect_ready("q", 2_000)


@pytest.mark.parametrize("size", [lambda number: 5, lambda number: 5 + number % 7])
@pytest.mark.parametrize("no_ack", [True, False])
def test_a_large_run_reaches_several_consumers_in_parts(nodes, near, far, size, no_ack):
    """A run that crosses in one piece, and is too much for one consumer, is shared out as any other (CL-13)."""
    near.queue("q")
    other = nodes.channel("a")
    for channel in (near, far, other):
        channel.qos(0 if no_ack else 70)
        channel.consume("q", no_ack=no_ack)
    publisher = nodes.channel("a")
    sent = [b"%04d" % number + b"x" * (size(number) - 4) for number in range(200)]
    with publisher.client.in_one_piece():
        for body in sent:
            publisher.publish(body, "q")
    nodes.world.run(1.0)
    events = [channel.deliveries(count) for channel, count in ((near, 67), (far, 67), (other, 66))]
    assert sorted(event.body for each in events for event in each) == sent
    assert all([event.body for event in each] == sorted(event.body for event in each) for each in events)


@pytest.mark.parametrize(("name", "are_first_written_first"), [("a", True), ("b", False)])
def test_the_first_of_many_deliveries_from_another_node_are_written_first(
    nodes, monkeypatch, name, are_first_written_first
):
    """A client begins to read a large batch of another node while the rest is still copied (CL-59)."""
    firsts = []
    first_bytes = SocketOutput._first_bytes

    def noted(output):
        firsts.append(first_bytes(output))
        return firsts[-1]

    monkeypatch.setattr(SocketOutput, "_first_bytes", noted)
    publisher, consumer = nodes.channel("b"), nodes.channel(name)
    publisher.queue("q")
    publisher.confirm()
    bodies = [b"%04d" % number + b"x" * 1_000 for number in range(200)]
    for body in bodies:
        publisher.publish(body, "q")
    publisher.confirms(1, len(bodies))
    consumer.consume("q", no_ack=True)
    assert consumer.bodies(len(bodies)) == bodies
    assert bool(firsts) is are_first_written_first
    assert all(sum(map(len, first)) == FIRST_WRITE for first in firsts)


def test_an_exclusive_queue_is_locked_on_every_node(nodes, near, far):
    nodes.home("a")
    near.queue("mine", exclusive=True)
    far.refuses(
        405,
        "cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be originally "
        "declared on another connection or the exclusive property value does not match that of the original "
        "declaration.",
        m.QueueDeclare(queue="mine", passive=True),
    )
    near.client.close()
    other = nodes.channel("b")
    other.refuses(404, "no queue 'mine' in vhost '/'", m.QueueDeclare(queue="mine", passive=True))


def test_the_single_active_consumer_may_be_on_any_node(near, far):
    near.queue("q", {"x-single-active-consumer": True})
    near.consume("q", "near")
    far.consume("q", "far")
    far.publish("1", "q")
    assert near.delivery().body == b"1"
    near.close()
    assert far.delivery().body == b"1"


def test_consumer_priorities_count_on_all_nodes(near, far):
    near.queue("q")
    far.consume("q", "low", {"x-priority": 1})
    near.consume("q", "high", {"x-priority": 2})
    for body in "12":
        far.publish(body, "q")
    assert near.bodies(2) == [b"1", b"2"]


def test_the_channel_wide_prefetch_spans_nodes(nodes, near, far):
    near.queue("there")
    nodes.home("a")
    near.queue("here")
    near.qos(2, global_=True)
    for queue in ("here", "there"):
        near.consume(queue, queue)
        for body in "12":
            far.publish(body, queue)
    held = near.deliveries(2)
    nodes.world.run(1.0)
    assert not near.pending
    near.ack(held[-1].tag, multiple=True)
    assert len(near.deliveries(2)) == 2


def test_what_is_recovered_comes_before_what_follows_it(near, far):
    """basic.recover returns the messages to the queue before the queue delivers others in their place (AB-137)."""
    near.queue("q")
    near.qos(3, global_=True)
    near.consume("q")
    for number in range(9):
        far.publish(b"%d" % number, "q")
    first = near.bodies(3)
    near.call(m.BasicRecover(True))
    assert near.bodies(3) == first


def test_a_transaction_over_two_nodes(nodes, near, far):
    near.queue("there")
    nodes.home("a")
    near.queue("here")
    near.call(m.TxSelect())
    for queue in ("here", "there"):
        near.publish("m", queue)
    assert far.ready("there") == far.ready("here") == 0
    near.call(m.TxCommit())
    assert far.ready("there") == far.ready("here") == 1


def test_a_fan_out_over_two_nodes_is_confirmed_by_both(nodes, near, far):
    near.queue("there")
    near.queue("there too")
    nodes.home("a")
    near.queue("here")
    for queue in ("there", "there too", "here"):
        near.bind(queue, "amq.fanout")
    near.confirm()
    near.publish(b"large" * 2_000, exchange="amq.fanout")
    assert near.confirms(1, 1) == ([1], [])
    assert [far.get_all(queue) for queue in ("there", "there too", "here")] == [[b"large" * 2_000]] * 3


@pytest.mark.parametrize("durable", [False, True])
def test_dead_letters_cross(make, durable):
    """A dead letter with its x-death reaches a queue on another node, not by the journal, which only its own node
    reads.
    """
    nodes = make(with_store=durable)
    near, far = nodes.channel("a"), nodes.channel("b")
    nodes.home("b")
    near.queue("dead", durable=durable)
    nodes.home("a")
    near.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}, durable=durable)
    near.publish("m", "q", delivery_mode=2)
    near.reject(near.get("q").tag, requeue=False)
    far.expect_ready("dead", 1)
    letter = far.get("dead")
    assert letter.body == b"m"
    death = letter.headers.get("x-death")[1][0][1]
    assert death.get("queue")[1] == b"q" and death.get("reason")[1] == b"rejected"


def test_direct_replies_cross(nodes, near, far):
    """A direct reply from a client of one node reaches the client of another without a queue (AB-140)."""
    near.consume("amq.rabbitmq.reply-to", no_ack=True)
    near.queue("requests")
    near.publish("question", "requests", reply_to="amq.rabbitmq.reply-to")
    far.expect_ready("requests", 1)
    request = far.get("requests", no_ack=True)
    reply_to = request.properties.reply_to
    assert far.declare(reply_to, passive=True).consumer_count == 1
    far.publish("answer", reply_to)
    assert near.delivery().body == b"answer"
    near.client.close()
    nodes.world.run(0.1)
    far.refuses(404, f"no queue '{reply_to}' in vhost '/'", m.QueueDeclare(queue=reply_to, passive=True))


def test_a_policy_reaches_the_queue_once(nodes, near, far):
    """Only the home of a queue applies a policy to it; the other nodes send it no settings."""
    near.queue("q")
    for body in "123":
        near.publish(body, "q")
    near.expect_ready("q", 3)
    nodes.propose(PutRecords((Policy("/", "short", "q", '{"max-length":1}'),)))
    far.expect_ready("q", 1)
    assert far.get_all("q") == [b"3"]


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_that_restarts_is_found_again(make, seed):
    """When a queue crashes, consumers on other nodes consume again, and methods that were under way wait for its next
    process (AB-126).
    """
    nodes = make(seed=seed)
    near, far = nodes.channel("a"), nodes.channel("b")
    nodes.home("b")
    near.queue("q")
    near.confirm()
    near.consume("q", "tag")
    (queue,) = nodes.nodes["b"].processes("Queue")
    nodes.crash(queue)
    near.publish("m", "q")
    acked, nacked = near.confirms(1, 1)
    if nacked:
        near.publish("m", "q")
        assert near.confirms(2, 2) == ([2], [])
    assert near.delivery().body == b"m"
    assert near.ready("q") == far.ready("q") == 0
    rows = [nodes.metadata(name).state.queue("/", "q") for name in "ab"]
    assert [row.generation for row in rows] == [1, 1]


def test_a_queue_is_deleted_from_afar(near, far):
    near.queue("q")
    near.publish("m", "q")
    near.expect_ready("q", 1)
    far.consume("q", "tag", no_ack=False)
    far.delivery()
    near.refuses(406, "queue 'q' in vhost '/' in use", m.QueueDelete(queue="q", if_unused=True))
    near = near.client.channel()
    assert near.delete("q") == 0
    assert far.wait(m.BasicCancel).method.consumer_tag == "tag"
    far.refuses(404, "no queue 'q' in vhost '/'", m.QueueDeclare(queue="q", passive=True))


def test_two_nodes_declare_one_name(nodes, near, far):
    """Of two nodes that declare one name, the second in the log is compared with the first (CL-30)."""
    near.send(m.QueueDeclare(queue="q", auto_delete=True))
    far.send(m.QueueDeclare(queue="q"))
    results = []
    for channel in (near, far):
        try:
            results.append(type(channel.wait(m.QueueDeclareOk).method))
        except Refused as refused:
            results.append(refused.close.reply_code)
    assert sorted(results, key=str) in ([406, m.QueueDeclareOk], [m.QueueDeclareOk, 406])
