"""A queue between its crash and its restart, and its consumers afterwards (AB-63, AB-126)."""

from __future__ import annotations

import pytest

from warren.actors.metadata.process import Metadata
from warren.actors.node.queue_supervisor import QueueSupervisor
from warren.actors.node.restart_policy import MAX_RESTARTS
from warren.amqp.fields import table_from
from warren.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)

pytestmark = pytest.mark.usefixtures("witness")

CANCEL_ON_FAILOVER = table_from({"x-cancel-on-ha-failover": True})


class Held:
    """A `with` block during which the queue has crashed, but its supervisor has not been notified, so its row still
    says `running`.
    """

    def __init__(self, anatomy, name):
        self.anatomy, self.name = anatomy, name
        self.kept = []

    def __enter__(self):
        """Crash the queue and hold back the notifications of queue supervisors."""
        anatomy = self.anatomy

        def hold():
            for supervisor in anatomy.processes(QueueSupervisor):
                supervisor.on_down = lambda *news, supervisor=supervisor: self.kept.append((supervisor, news))

        anatomy.call(hold)
        anatomy.crash(lambda: anatomy.queue(self.name))
        anatomy.eventually(lambda: self.kept)
        return self

    def __exit__(self, *_):
        self.release()

    def release(self):
        """Deliver the notifications now."""

        def let_go():
            for supervisor in self.anatomy.processes(QueueSupervisor):
                vars(supervisor).pop("on_down", None)
            kept, self.kept = self.kept, []
            for supervisor, news in kept:
                restart = supervisor.on_down(*news)
                if restart is not None:
                    supervisor.spawn(restart)

        self.anatomy.call(let_go)

    def waiting(self):
        """The number of requests that wait at Metadata for the queue."""
        return len(self.metadata().queues.restart_waiters._waiting.get(("/", self.name), ()))

    def metadata(self):
        return self.anatomy.processes(Metadata)[0]


def consumers_of(anatomy, name):
    """The tags of the queue's consumers; none while it is dead."""
    row = anatomy.node().routing.queue("/", name)
    cell = anatomy.base.cells.get(row.address.actorAddressString)
    role = getattr(cell.actor, "role", None) if cell else None
    return [consumer.tag for consumer in role.consumers] if role else []


@pytest.fixture
def queue(connect, name):
    """The name of a declared queue, which is deleted after the test."""
    wire = connect()
    wire.call(1, QueueDeclare(queue=name), QueueDeclareOk)
    yield name
    wire.call(1, QueueDelete(queue=name), QueueDeleteOk)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (QueueDeclare, QueueDeclareOk(message_count=0, consumer_count=0)),
        (QueuePurge, QueuePurgeOk(0)),
        (BasicGet, BasicGetEmpty()),
        (BasicConsume, BasicConsumeOk("t")),
    ],
)
def test_a_method_waits_for_the_restart(anatomy, connect, queue, method, answer):
    """A method that uses a queue which is being restarted waits for it, and is not refused with 404 (AB-63)."""
    wire = connect()
    options = {"consumer_tag": "t"} if method is BasicConsume else {}
    with Held(anatomy, queue) as held:
        wire.send_method(1, method(queue=queue, **options))
        anatomy.eventually(held.waiting)
    if method is QueueDeclare:
        answer.queue = queue
    assert wire.method(1, type(answer)) == answer
    wire.publish(1, b"x", queue)
    if method is BasicConsume:
        assert wire.method(1, BasicDeliver).consumer_tag == "t"
        assert wire.content(1)[1] == b"x"


def test_methods_behind_a_waiting_one_keep_their_order(anatomy, connect, queue):
    """Methods behind one that waits for a restart keep their order, although they could be answered at once (AB-56)."""
    wire = connect()
    with Held(anatomy, queue) as held:
        wire.send_method(1, QueuePurge(queue=queue))
        wire.send_method(1, BasicQos(0, 7, False))
        anatomy.eventually(held.waiting)
    assert wire.method(1, QueuePurgeOk) == QueuePurgeOk(0)
    wire.method(1, BasicQosOk)


def test_a_queue_that_stays_down_is_404(anatomy, connect, queue):
    """A method that waited is refused with 404 if the queue stays down (AB-63)."""
    wire = connect()
    for _ in range(MAX_RESTARTS):
        address = anatomy.call(lambda: anatomy.queue(queue).myAddress)
        anatomy.crash(lambda: anatomy.queue(queue))
        anatomy.eventually(lambda address=address: anatomy.node().routing.queue("/", queue).address != address)
    with Held(anatomy, queue) as held:
        wire.send_method(1, BasicGet(queue=queue))
        anatomy.eventually(held.waiting)
    close = wire.method(1, ChannelClose)
    assert (close.reply_code, close.reply_text) == (
        404,
        f"NOT_FOUND - queue '{queue}' in vhost '/' has crashed and failed to restart",
    )


def test_a_queue_deleted_meanwhile_is_404(anatomy, connect, queue):
    """A crashed queue can be deleted, and a method that waits for it is then refused with 404 (AB-63)."""
    wire, other = connect(), connect()
    with Held(anatomy, queue) as held:
        wire.send_method(1, BasicGet(queue=queue))
        anatomy.eventually(held.waiting)
        other.call(1, QueueDelete(queue=queue), QueueDeleteOk)
        close = wire.method(1, ChannelClose)
        assert (close.reply_code, close.reply_text) == (404, f"NOT_FOUND - no queue '{queue}' in vhost '/'")
        held.kept.clear()  # its supervisor has forgotten it


def test_consumers_continue_without_notification(anatomy, connect, queue):
    """AB-126: consumers keep tag, prefetch and priority, and the client receives only the next messages."""
    wire, publisher = connect(), connect()
    wire.call(1, BasicQos(0, 1, False), BasicQosOk)
    wire.call(
        1, BasicConsume(queue=queue, consumer_tag="first", arguments=table_from({"x-priority": 5})), BasicConsumeOk
    )
    wire.call(1, BasicQos(0, 0, False), BasicQosOk)
    wire.call(1, BasicConsume(queue=queue, consumer_tag="second"), BasicConsumeOk)
    anatomy.crash(lambda: anatomy.queue(queue))
    anatomy.eventually(lambda: len(consumers_of(anatomy, queue)) == 2)
    for _ in range(3):
        publisher.publish(1, b"x", queue)
    tags = []
    for _ in range(3):
        tags.append(wire.method(1, BasicDeliver).consumer_tag)  # a basic.cancel would fail here
        wire.content(1)
    assert tags == ["first", "second", "second"]
    wire.send_method(1, BasicAck(0, True))
    wire.call(1, BasicConsume(queue=queue, consumer_tag="third"), BasicConsumeOk)


def test_a_consumer_continues_after_each_crash_until_the_queue_stays_down(anatomy, connect, queue):
    """A consumer goes on after each crash, once in each restarted queue, until the queue stays down and basic.cancel is
    sent (AB-126, AB-63).
    """
    wire = connect()
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    for _ in range(MAX_RESTARTS):
        address = anatomy.call(lambda: anatomy.queue(queue).myAddress)
        anatomy.crash(lambda: anatomy.queue(queue))
        anatomy.eventually(lambda address=address: anatomy.node().routing.queue("/", queue).address != address)
        anatomy.eventually(lambda: consumers_of(anatomy, queue))
        assert anatomy.call(lambda: consumers_of(anatomy, queue)) == ["t"]
    anatomy.crash(lambda: anatomy.queue(queue))
    assert wire.method(1, BasicCancel) == BasicCancel("t", True)


def test_a_crash_while_consuming_again_starts_over(anatomy, connect, queue):
    """If the queue crashes again while a consumer is registered with it, the queue has the consumer once in the end
    (AB-126).
    """
    wire = connect()
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    with Held(anatomy, queue) as held:
        anatomy.eventually(held.waiting)

        def strike_the_next():
            """Crash the new process before the consumer is registered with it."""
            held.release()
            address = next(
                each.row.address
                for supervisor in anatomy.processes(QueueSupervisor)
                for each in supervisor.queues.values()
                if each.row.name == queue
            )
            anatomy.base.enqueue(address, address, ("no such message",))

        anatomy.call(strike_the_next)
    anatomy.eventually(lambda: len(consumers_of(anatomy, queue)) == 1)
    wire.publish(1, b"x", queue)
    assert wire.method(1, BasicDeliver).consumer_tag == "t"
    wire.content(1)
    assert anatomy.call(lambda: consumers_of(anatomy, queue)) == ["t"]


def test_a_consumer_that_the_queue_does_not_take_again_is_cancelled(anatomy, connect, queue):
    """A consumer that the restarted queue does not take again is cancelled, here because another client became its
    exclusive consumer first (AB-126).
    """
    wire, rival = connect(), connect()
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    with Held(anatomy, queue) as held:
        anatomy.eventually(lambda: held.waiting() == 1)

        def rival_first():
            """Let Metadata answer the rival's request first."""
            metadata = held.metadata()
            metadata.queues.restart_waiters._waiting["/", queue].reverse()

        rival.send_method(1, BasicConsume(queue=queue, consumer_tag="r", exclusive=True))
        anatomy.eventually(lambda: held.waiting() == 2)
        anatomy.call(rival_first)
    assert rival.method(1, BasicConsumeOk).consumer_tag == "r"
    assert wire.method(1, BasicCancel) == BasicCancel("t", True)
    assert wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), ChannelClose).reply_code == 403


def test_cancelling_while_the_queue_is_down_leaves_no_consumer(anatomy, connect, queue):
    """basic.cancel while the queue is down is answered at once, and the consumer is not registered with the restarted
    queue (AB-126).
    """
    wire = connect()
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    wire.call(1, BasicConsume(queue=queue, consumer_tag="stays"), BasicConsumeOk)
    with Held(anatomy, queue) as held:
        anatomy.eventually(held.waiting)
        assert wire.call(1, BasicCancel("t", False), BasicCancelOk) == BasicCancelOk("t")
    anatomy.eventually(lambda: consumers_of(anatomy, queue))
    assert anatomy.call(lambda: consumers_of(anatomy, queue)) == ["stays"]


def test_a_channel_closed_while_the_queue_is_down_leaves_no_consumer(anatomy, connect, queue):
    """The consumer of a channel that is closed while the queue is down is not registered with the restarted queue
    (AB-53, AB-126).
    """
    wire = connect()
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    with Held(anatomy, queue) as held:
        anatomy.eventually(held.waiting)
        wire.call(1, ChannelClose(200, "", 0, 0), ChannelCloseOk)
    wire.open_channel(1)
    assert wire.call(1, QueueDeclare(queue=queue), QueueDeclareOk).consumer_count == 0


def test_settling_deliveries_of_the_crashed_queue_has_no_effect(anatomy, connect, queue):
    """Delivery tags continue after a crash; acks and nacks of the tags before it are accepted, and do not touch new
    messages (AB-126).
    """
    wire = connect()
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    for _ in range(2):
        wire.publish(1, b"old", queue)
        wire.method(1, BasicDeliver)
        wire.content(1)
    anatomy.crash(lambda: anatomy.queue(queue))
    anatomy.eventually(lambda: len(consumers_of(anatomy, queue)) == 1)
    for _ in range(2):
        wire.publish(1, b"new", queue)
        wire.method(1, BasicDeliver)
        wire.content(1)
    wire.send_method(1, BasicAck(1, False))
    wire.send_method(1, BasicNack(2, False, True))
    wire.call(1, BasicQos(0, 0, False), BasicQosOk)
    anatomy.eventually(lambda: sum(len(record.pending) for record in anatomy.queue(queue).channels.by_id.values()) == 2)
    wire.send_method(1, BasicNack(0, True, True))
    assert sorted(_redelivered(wire) for _ in range(2)) == [(5, True), (6, True)]


def _redelivered(wire):
    deliver = wire.method(1, BasicDeliver)
    assert wire.content(1)[1] == b"new"
    return deliver.delivery_tag, deliver.redelivered


def test_a_channel_with_a_global_prefetch_continues_within_it(anatomy, connect, queue):
    """A channel with a global prefetch stays within it: what the crashed queue had of it is free again for the
    restarted one (AB-127, AB-126).
    """
    wire = connect()
    wire.call(1, BasicQos(0, 2, True), BasicQosOk)
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    anatomy.crash(lambda: anatomy.queue(queue))
    anatomy.eventually(lambda: len(consumers_of(anatomy, queue)) == 1)
    for _ in range(3):
        wire.publish(1, b"x", queue)
    for _ in range(2):
        wire.method(1, BasicDeliver)
        wire.content(1)
    anatomy.eventually(lambda: len(anatomy.queue(queue).backing) == 1)
    wire.send_method(1, BasicAck(0, True))
    wire.method(1, BasicDeliver)
    wire.content(1)


def test_a_deleted_queue_cancels_all_its_consumers(connect, queue):
    """If a queue is deleted, the clients receive basic.cancel for every consumer, whatever its arguments
    are (AB-126).
    """
    wire, other = connect(), connect()
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    wire.call(1, BasicConsume(queue=queue, consumer_tag="u", arguments=CANCEL_ON_FAILOVER), BasicConsumeOk)
    other.call(1, QueueDelete(queue=queue), QueueDeleteOk)
    assert [wire.method(1, BasicCancel), wire.method(1, BasicCancel)] == [
        BasicCancel("t", True),
        BasicCancel("u", True),
    ]
    assert not wire.call(1, QueueDeclare(queue=queue), QueueDeclareOk).consumer_count


def test_gets_after_the_restart_are_settled_with_the_new_queue(anatomy, connect, queue):
    """A get that waited for the restart, and the acks that follow it, go to the restarted queue (AB-63)."""
    wire = connect()
    with Held(anatomy, queue) as held:
        wire.send_method(1, BasicGet(queue=queue))
        anatomy.eventually(held.waiting)
    wire.method(1, BasicGetEmpty)
    wire.publish(1, b"x", queue)
    wire.call(1, BasicGet(queue=queue), BasicGetOk)
    wire.content(1)
    wire.send_method(1, BasicAck(0, True))
    anatomy.eventually(lambda: not any(record.pending for record in anatomy.queue(queue).channels.by_id.values()))
