"""`Broker.kill`, `pause` and `resume` do to an embedded broker what SIGKILL, SIGSTOP and SIGCONT do to a process."""

from __future__ import annotations

import os
import threading

import pytest

from warren import Broker
from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client

#: The properties of a message that must survive, which are the delivery mode 2.
PERSISTENT = b"\x10\x00\x02"


def test_a_killed_broker_says_nothing_and_keeps_what_it_confirmed(tmp_path):
    """Clients of a killed broker get no connection.close, and confirmed messages are there at the next start,
    unacknowledged ones too.
    """
    broker = Broker(data_dir=tmp_path / "data")
    broker.start()
    client = Client(broker.url)
    channel = client.channel()
    channel.confirm()
    channel.queue("q", durable=True)
    for number in range(200):
        channel.send(m.BasicPublish(routing_key="q"), b"%d" % number, PERSISTENT)
    channel.confirms(1, 200)
    assert channel.get("q").body == b"0"
    broker.kill()
    assert not broker.is_running
    with pytest.raises(ConnectionError):
        client.wait(0)
    assert not client.events[0] and not channel.pending
    client.abort()
    with broker:
        bodies = [broker.get("q").body for _ in range(200)]
        assert bodies == [b"%d" % number for number in range(200)]
        assert broker.get("q") is None


def test_kill_interrupts_whatever_clients_do(tmp_path):
    """A broker is killed in the middle of a burst of durable publishes, and has a prefix of them at each next start."""
    broker = Broker(data_dir=tmp_path / "data")
    for _ in range(5):
        with broker:
            broker.declare_queue("q", durable=True)
            client = Client(broker.url)
            channel = client.channel()
            channel.confirm()
            with client.in_one_piece():
                for number in range(500):
                    channel.send(m.BasicPublish(routing_key="q"), b"%d" % number, PERSISTENT)
            channel.wait(m.BasicAck)
            broker.kill()
            client.abort()
        with broker:
            bodies = []
            while (message := broker.get("q")) is not None:
                bodies.append(message.body)
            assert bodies and bodies == [b"%d" % number for number in range(len(bodies))]


def test_kill_leaves_nothing_behind(tmp_path):
    """A killed broker leaves no thread, descriptor or port behind, and its data directory can be used at once."""
    broker = Broker(data_dir=tmp_path / "data")
    with broker:
        port = broker.port
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    broker = Broker(port=port, data_dir=tmp_path / "data")
    for _ in range(10):
        broker.start()
        client = Client(broker.url)
        broker.kill()
        client.abort()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_kill_of_a_broker_that_does_not_run_does_nothing():
    broker = Broker()
    broker.kill()
    with broker:
        pass
    broker.kill()


def test_a_paused_broker_answers_when_it_goes_on():
    """The connections of a paused broker stay open, new ones wait, and nothing is lost."""
    with Broker() as broker:
        broker.declare_queue("q")
        client = Client(broker.url)
        channel = client.channel()
        channel.confirm()
        broker.pause()
        broker.pause()
        channel.publish("a", "q")
        assert not client.receive(0.2)
        broker.resume()
        broker.resume()
        assert channel.confirms(1, 1) == ([1], [])
        client.close()


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_a_paused_broker_can_be_ended(end):
    broker = Broker()
    broker.start()
    broker.pause()
    end(broker)
    assert not broker.is_running
