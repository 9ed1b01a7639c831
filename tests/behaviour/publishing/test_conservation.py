"""Several channels work on two queues at once; no message is lost or doubled, and order, prefetch and confirms hold.

Hypothesis draws bursts of operations. Each burst is sent at once over three connections, so that publishes, deliveries,
settlements and cancels cross one another; then the test waits until the broker is idle, and compares what it
sent with `model` (AB-109, AB-110, AB-122, AB-127 to AB-137).
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from warren.amqp import methods as m

from ..model import Model, Worker
from ..wire import Channel, Client

QUEUES = ("a", "b")

one_operation = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(QUEUES), st.sampled_from((1, 2, 3, 5, 8, 300))),
    st.tuples(st.just("consume"), st.integers(0, 9), st.sampled_from(QUEUES), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("qos"), st.integers(0, 9), st.integers(0, 4), st.booleans()),
    st.tuples(
        st.just("settle"),
        st.integers(0, 9),
        st.integers(0, 99),
        st.sampled_from(("ack", "ack", "requeue", "reject")),
        st.booleans(),
    ),
    st.tuples(st.just("get"), st.integers(0, 9), st.sampled_from(QUEUES), st.booleans()),
    st.tuples(st.just("recover"), st.integers(0, 9)),
)


class Machine(RuleBasedStateMachine):
    """`number` in an operation picks one of the existing channels, queues or tags."""

    broker = None

    def __init__(self) -> None:
        super().__init__()
        url = self.broker.url
        self.clients = [Client(url) for _ in range(3)]
        self.publisher = self.clients[0].channel()
        self.names = {queue: self.publisher.queue(exclusive=False) for queue in QUEUES}
        self.letters = {name: queue for queue, name in self.names.items()}
        self.publisher.confirm()
        self.unconfirmed = self.last_number = 0
        self.serial = 0
        self.model = Model(list(QUEUES))
        self.channels: dict[Worker, Channel] = {}
        for client in self.clients:
            self.open(client)

    def open(self, client: Client) -> None:
        worker = Worker(f"w{len(self.channels)}")
        self.model.workers.append(worker)
        self.channels[worker] = client.channel()

    def worker(self, number: int) -> Worker:
        return self.model.workers[number % len(self.model.workers)]

    # -- rules

    @rule(operations=st.lists(one_operation, min_size=1, max_size=8))
    def burst(self, operations) -> None:
        self.model.begin_step()
        for kind, *arguments in operations:
            getattr(self, f"do_{kind}")(*arguments)
        self.rest()

    @precondition(lambda self: len(self.model.workers) > 1)
    @rule(number=st.integers(0, 9), publishes=st.integers(0, 3), by_error=st.booleans())
    def end_channel(self, number, publishes, by_error) -> None:
        """A channel ends while messages come in; another takes its place."""
        self.model.begin_step()
        worker = self.worker(number)
        channel = self.channels[worker]
        # The next deliveries to a consumer without acks may be lost with the channel.
        if not any(consumer.no_ack for consumer in worker.consumers.values()):
            self.model.uncertain["a"].update(range(self.model.published["a"], self.model.published["a"] + publishes))
            self.do_publish("a", publishes)
            # Deliveries that arrive after the channel's end are requeued when others may already have later messages.
            self.model.returned = publishes > 0 and bool(worker.consumers)
        channel.send(m.BasicAck(1 << 40) if by_error else m.ChannelClose(200, "bye"))
        self.broker.wait_idle()
        self.take_in()
        last = self.handle(worker)
        assert isinstance(last, m.ChannelClose if by_error else m.ChannelCloseOk)
        if by_error:
            channel.send(m.ChannelCloseOk())
        self.model.close(worker)
        del self.channels[worker]
        self.open(channel.client)
        self.rest()

    @precondition(lambda self: len(self.model.workers) > 1)
    @rule(number=st.integers(0, 1))
    def die(self, number) -> None:
        """A client other than the publisher dies, and another connects."""
        self.model.begin_step()
        client = self.clients.pop(1 + number)
        client.abort()
        for worker in [worker for worker, channel in self.channels.items() if channel.client is client]:
            self.model.close(worker)
            del self.channels[worker]
        self.clients.append(Client(self.broker.url))
        self.open(self.clients[-1])
        self.rest()

    # -- operations

    def do_publish(self, queue: str, count: int) -> None:
        with self.clients[0].in_one_piece():
            for _ in range(count):
                self.publisher.publish(f"{queue}:{self.model.publish(queue)}", self.names[queue])
        self.unconfirmed += count
        self.last_number += count

    def do_consume(self, number: int, queue: str, no_ack: bool) -> None:
        worker = self.worker(number)
        self.serial += 1
        tag = f"t{self.serial}"
        self.channels[worker].send(m.BasicConsume(queue=self.names[queue], consumer_tag=tag, no_ack=no_ack))
        self.model.consume(worker, tag, queue, no_ack)

    def do_cancel(self, number: int, which: int) -> None:
        worker = self.worker(number)
        if worker.consumers:
            tag = sorted(worker.consumers)[which % len(worker.consumers)]
            self.channels[worker].send(m.BasicCancel(tag))
            self.model.cancel(worker, tag)

    def do_qos(self, number: int, count: int, global_: bool) -> None:
        worker = self.worker(number)
        self.channels[worker].send(m.BasicQos(0, count, global_))
        self.model.qos(worker, count, global_)

    def do_settle(self, number: int, which: int, how: str, multiple: bool) -> None:
        worker = self.worker(number)
        if worker.held:
            tag = sorted(worker.held)[which % len(worker.held)]
            self.channels[worker].send(
                m.BasicAck(tag, multiple) if how == "ack" else m.BasicNack(tag, multiple, how == "requeue")
            )
            self.model.settle(worker, tag, multiple, how == "requeue")

    def do_get(self, number: int, queue: str, no_ack: bool) -> None:
        worker = self.worker(number)
        self.channels[worker].send(m.BasicGet(queue=self.names[queue], no_ack=no_ack))
        self.model.get(worker, queue, no_ack)

    def do_recover(self, number: int) -> None:
        worker = self.worker(number)
        # basic.recover also requeues deliveries that cross it, so it is sent only when nothing is in flight.
        self.rest()
        self.model.begin_step()
        self.channels[worker].send(m.BasicRecover(True))
        self.model.recover(worker)

    # -- comparing

    def rest(self) -> None:
        """Wait until the broker is idle, and compare it with the model."""
        self.broker.wait_idle()
        self.take_in()
        for worker in self.model.workers:
            self.handle(worker)
        self.check_confirms()
        self.model.check_rest()
        for queue, name in self.names.items():
            assert self.publisher.ready(name) == len(self.model.ready[queue])

    def take_in(self) -> None:
        for client in self.clients:
            while client.receive(0):
                pass

    def handle(self, worker: Worker):
        """Pass the messages and methods that a channel received to the model, in order; returns the last method."""
        channel = self.channels[worker]
        last = None
        tags = []
        for method, _, body in channel.pending:
            last = method
            if isinstance(method, (m.BasicDeliver, m.BasicGetOk)):
                queue, number = body.decode().split(":")
                if isinstance(method, m.BasicDeliver):
                    self.model.delivered(
                        worker, method.delivery_tag, method.consumer_tag, method.redelivered, queue, int(number)
                    )
                    tags.append((queue, int(number)))
                else:
                    self.model.got(worker, method.delivery_tag, method.redelivered, queue, int(number))
            elif isinstance(method, m.BasicGetEmpty):
                self.model.got_nothing(worker)
            else:
                assert isinstance(
                    method,
                    (
                        m.BasicConsumeOk,
                        m.BasicCancelOk,
                        m.BasicQosOk,
                        m.BasicRecoverOk,
                        m.ChannelClose,
                        m.ChannelCloseOk,
                    ),
                ), method
        channel.client.events[channel.number].clear()
        if not self.model.returned:
            for queue in QUEUES:
                numbers = [number for letter, number in tags if letter == queue]
                assert numbers == sorted(numbers), f"a channel got messages of {queue} out of order"
        return last

    def check_confirms(self) -> None:
        first = self.last_number - self.unconfirmed + 1
        assert self.publisher.confirms(first, self.last_number)[1] == []
        self.unconfirmed = 0
        assert not self.publisher.pending, "confirmed twice"

    def teardown(self) -> None:
        """Messages that were neither acknowledged nor delivered without ack are in the queues, in the order of
        publishing."""
        try:
            self.model.begin_step()
            for worker in self.model.workers:
                while worker.consumers:
                    self.do_cancel(self.model.workers.index(worker), 0)
            self.rest()
            for worker in list(self.model.workers):
                self.channels[worker].call(m.ChannelClose(200, "bye"))
                self.model.close(worker)
            for queue, name in self.names.items():
                left = [int(body.split(b":")[1]) for body in self.publisher.get_all(name)]
                assert left == sorted(self.model.ready[queue])
        finally:
            for name in self.names.values():
                self.publisher.delete(name)
            for client in self.clients:
                client.abort()


@pytest.mark.hypothesis
def test_model(broker):
    """A broker and the model agree after every burst."""
    if broker is None:
        pytest.skip("needs to know when the broker is at rest")

    class On(Machine):
        pass

    On.broker = broker
    # Without shrinking, because each attempt takes as long as a test.
    run_state_machine_as_test(
        On,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
