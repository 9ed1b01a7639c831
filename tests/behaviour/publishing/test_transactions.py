"""Transactions (AB-115 to AB-117, AB-56)."""

import pytest

from warren.amqp import methods as m


@pytest.fixture
def tx(channel, name):
    """A transactional channel on which queue `name` is declared."""
    channel.queue(name)
    channel.call(m.TxSelect())
    return channel


def test_publishes_arrive_at_commit(tx, client, name):
    """AB-115, AB-116: all messages are in the queue when commit-ok comes, in order."""
    other = client.channel()
    tx.publish("1", name)
    tx.publish("2", name)
    tx.qos(0)
    assert other.ready(name) == 0
    tx.call(m.TxCommit())
    assert other.get_all(name) == [b"1", b"2"]


def test_rollback_discards_publishes(tx, name):
    """tx.rollback discards the publishes, and the next transaction begins at once (AB-117)."""
    tx.publish("1", name)
    tx.call(m.TxRollback())
    tx.publish("2", name)
    tx.call(m.TxCommit())
    assert tx.get_all(name) == [b"2"]


def test_publishes_are_checked_at_once(tx, name):
    """A publish is checked at once, so an error does not wait for the commit; earlier publishes of the transaction are
    rolled back (AB-115).
    """
    tx.publish("1", name)
    tx.refuses(404, f"no exchange '{name}' in vhost '/'", m.BasicPublish(exchange=name), b"")
    assert tx.client.channel().ready(name) == 0


def test_publishes_are_routed_at_once(tx, client, name):
    """AB-115: a binding deleted before the commit still counts; a binding made after the publish does not."""
    other = client.channel()
    other.bind(name, "amq.direct", f"{name}-a")
    tx.publish("routed", f"{name}-a", "amq.direct")
    tx.publish("lost", f"{name}-b", "amq.direct")
    tx.qos(0)
    other.call(m.QueueUnbind(queue=name, exchange="amq.direct", routing_key=f"{name}-a"))
    other.bind(name, "amq.direct", f"{name}-b")
    tx.call(m.TxCommit())
    assert other.get_all(name) == [b"routed"]


def test_returns_come_at_commit(tx, name):
    """Returns come at the commit, before commit-ok (AB-116)."""
    tx.publish("back", f"{name}-absent", mandatory=True)
    tx.qos(0)
    assert not tx.pending
    tx.send(m.TxCommit())
    event = tx.wait()
    assert (event.method.reply_code, event.body) == (312, b"back")
    assert tx.wait().method == m.TxCommitOk()


def test_a_message_whose_queue_is_gone_at_the_commit_is_returned(tx, client, name):
    """A message is routed by the bindings at its publish, to the queues that exist at the commit; if none does, it is
    returned (AB-115, AB-116).
    """
    other = client.channel()
    tx.publish("back", name, mandatory=True)
    tx.publish("lost", name)
    tx.qos(0)
    other.delete(name)
    tx.send(m.TxCommit())
    event = tx.wait()
    assert (event.method.reply_code, event.body) == (312, b"back")
    assert tx.wait().method == m.TxCommitOk()


def test_a_queue_that_has_the_name_at_the_commit_gets_the_message(tx, client, name):
    other = client.channel()
    tx.publish("m", name, mandatory=True)
    tx.qos(0)
    other.delete(name)
    other.queue(name)
    tx.call(m.TxCommit())
    assert other.get_all(name) == [b"m"]


def test_a_queue_that_is_declared_before_the_commit_gets_what_was_published_to_its_name(tx, client, name):
    """The default exchange has no bindings that could count, so a queue that is declared before the commit gets what
    was published to its name. RabbitMQ looks for the queue at the commit as well (AB-115).
    """
    other = client.channel()
    tx.publish("m", f"{name}-later", mandatory=True)
    tx.qos(0)
    other.queue(f"{name}-later")
    tx.call(m.TxCommit())
    assert other.get_all(f"{name}-later") == [b"m"]


def test_settlements_take_effect_at_commit(tx, client, name):
    """AB-115, AB-116: settlements take effect at the commit, in order."""
    other = client.channel()
    other.fill(name, *"abcd")
    tags = [tx.get(name).tag for _ in range(4)]
    tx.ack(tags[0])
    tx.nack(tags[1], requeue=True)
    tx.reject(tags[2], requeue=False)
    tx.nack(tags[3], requeue=True)
    tx.qos(0)
    assert other.ready(name) == 0
    tx.call(m.TxCommit())
    assert other.get_all(name) == [b"b", b"d"]


def test_rollback_puts_settlements_back(tx, client, name):
    """After a rollback the deliveries are unacknowledged again, under their tags (AB-117)."""
    other = client.channel()
    other.fill(name, *"abc")
    for _ in range(3):
        tx.get(name)
    tx.ack(2)
    tx.nack(1, requeue=True)
    tx.call(m.TxRollback())
    assert other.ready(name) == 0
    tx.ack(1)
    tx.nack(3, multiple=True, requeue=True)
    tx.call(m.TxCommit())
    assert other.get_all(name) == [b"b", b"c"]


def test_tags_are_checked_at_once(tx, client, name):
    """Tags are checked at once: one that was settled in this transaction is unknown (AB-115)."""
    client.channel().publish("m", name)
    while tx.get(name) is None:
        pass
    tx.ack(1)
    tx.refuses(406, "unknown delivery tag 1", m.BasicAck(1))


def test_closing_rolls_back(tx, client, name):
    """AB-117: closing the channel drops uncommitted publishes and requeues uncommitted acks."""
    other = client.channel()
    other.fill(name, "held")
    tx.publish("never", name)
    tx.ack(tx.get(name).tag)
    tx.close()
    assert other.get_all(name) == [b"held"]


def test_deliveries_go_on(tx, client, name):
    """AB-115: a transactional channel receives messages without a commit."""
    tx.consume(name)
    client.channel().publish("m", name)
    tx.ack(tx.delivery().tag)
    client.channel().publish("n", name)
    assert tx.delivery().body == b"n"


def test_empty_commit(tx):
    """AB-116: a transaction without work can be committed and rolled back."""
    tx.call(m.TxCommit())
    tx.call(m.TxRollback())


def test_refused_message_fails_the_commit(tx, client, name):
    """If a queue refuses a message, the commit fails with 406; other queues keep the messages they got (AB-116)."""
    full = client.channel().queue(f"{name}-full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    for target in (full, full, name):
        tx.publish("m", target)
    tx.refuses(406, "partial tx completion", m.TxCommit())
    other = client.channel()
    assert (len(other.get_all(full)), len(other.get_all(name))) == (1, 1)


def test_commit_after_the_queue_was_deleted(tx, client, name):
    """A queue that was deleted before the commit confirms its messages (AB-116, AB-111)."""
    tx.publish("m", name)
    tx.qos(0)
    client.channel().delete(name)
    tx.call(m.TxCommit())


def test_next_transaction_after_a_failed_one_is_on_a_new_channel(tx, client, name):
    """AB-116, AB-54: a refused ack closes the channel; its successor is not transactional."""
    tx.refuses(406, "unknown delivery tag 5", m.BasicAck(5))
    again = client.channel()
    again.refuses(406, "channel is not transactional", m.TxCommit())


def test_publish_is_an_error_while_committing(channel, inside, name):
    """Until commit-ok any method but channel.close closes the connection with 504 (AB-56). The commit waits for a queue
    that does not answer.
    """
    channel.queue(name)
    channel.call(m.TxSelect())
    channel.publish("m", name)
    with inside.paused(name), channel.client.in_one_piece():
        channel.send(m.TxCommit())
        channel.send(m.BasicQos())
    channel.refuses(504, "unexpected command while processing 'tx.commit'")


def test_close_is_welcome_while_committing(channel, inside, name):
    """AB-56: channel.close during a commit is answered, and so is the commit."""
    channel.queue(name)
    channel.call(m.TxSelect())
    channel.publish("m", name)
    with inside.paused(name):
        channel.send(m.TxCommit())
        channel.send(m.ChannelClose(200, "bye"))
        inside.broker.wait_idle()
    assert {type(channel.wait().method) for _ in range(2)} == {m.TxCommitOk, m.ChannelCloseOk}


def test_deliveries_flow_while_committing(channel, client, inside, name):
    """AB-56: a channel receives messages while its commit waits for a queue."""
    other = client.channel()
    other.queue(f"{name}-other")
    channel.queue(name)
    channel.call(m.TxSelect())
    channel.consume(f"{name}-other", no_ack=True)
    channel.publish("m", name)
    with inside.paused(name):
        channel.send(m.TxCommit())
        inside.broker.wait_idle()
        other.publish("flows", f"{name}-other")
        assert channel.delivery().body == b"flows"
    assert channel.wait().method == m.TxCommitOk()
