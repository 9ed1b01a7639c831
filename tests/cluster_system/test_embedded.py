"""Several brokers in one program form a cluster."""

from __future__ import annotations

import threading

import pytest

from warren import Broker, BrokerError
from warren.actors.context.lease import FOREVER
from warren.tests.cluster_system.nodes import free_ports, wait_for
from warren.tests.system_crash.anatomy import Anatomy


def founded(tmp_path, has_disks=True):
    """Three brokers that have founded a cluster."""
    names = [f"warren{number}@localhost" for number in (1, 2, 3)]
    ports = free_ports(3)
    made = [
        Broker(
            node_name=name,
            data_dir=tmp_path / name if has_disks else None,
            cluster_port=port,
            cluster_cookie="a secret of the tests",
            cluster_formation={"nodes": names},
            cluster_peer_addresses={name: f"127.0.0.1:{port}" for name, port in zip(names, ports)},
        )
        for name, port in zip(names, ports)
    ]
    threads = [threading.Thread(target=broker.start) for broker in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return made


@pytest.fixture
def brokers(tmp_path):
    made = founded(tmp_path)
    yield made
    for broker in made:
        broker.kill()


@pytest.fixture
def brokers_in_memory(tmp_path):
    made = founded(tmp_path, has_disks=False)
    yield made
    for broker in made:
        broker.kill()


def serves(broker: Broker, queue: str) -> bool:
    try:
        broker.declare_queue(queue, durable=True)
    except Exception:
        return False
    return True


def test_a_broker_that_stood_still_begins_anew_at_its_port(brokers, caplog):
    """A broker that stood still and was declared down begins another run at the same port, where clients find it
    (CL-55).
    """
    caplog.set_level("INFO", "warren.members")
    assert all(broker.is_running for broker in brokers)
    first, second, third = brokers
    assert first.declare_queue("orders", durable=True)
    port = third.port
    third.pause()
    wait_for("the leader to declare it down", lambda: f"{third.settings.node_name} is down" in caplog.text, 60)
    third.resume()
    wait_for("it to begin another run", lambda: "ends this run of its app" in caplog.text, 60)
    wait_for("it to serve clients again", lambda: serves(third, "later"), 60)
    assert third.port == port
    assert second.declare_queue("later", passive=True) == "later"


def test_a_broker_without_a_lease_refuses_what_its_program_asks():
    """A broker without a lease refuses its own program as it refuses clients, also when the lease ends between a
    request and its answer (CL-52).
    """
    with Broker() as broker:
        broker.declare_queue("q")
        broker.publish(b"first", "q")
        anatomy = Anatomy(broker)
        client = anatomy.call(anatomy.direct)
        lease, session = client.context.lease, client.sessions["/"]

        lease.until = 0.0
        for ask in (lambda: broker.publish(b"m", "q"), lambda: broker.get("q"), lambda: broker.declare_queue("r")):
            with pytest.raises(BrokerError, match="CONNECTION_FORCED - node '.*' cannot reach a majority"):
                ask()
        lease.until = FOREVER
        assert broker.get("q").body == b"first"
        assert broker.get("q") is None

        def lose_the_lease(data, output=session.output):
            lease.until = 0.0
            output(data)

        session.output = lose_the_lease
        with pytest.raises(BrokerError, match="cannot reach a majority"):
            broker.publish(b"second", "q")
        del session.output
        lease.until = FOREVER
        assert broker.get("q").body == b"second"


def test_a_broker_that_waits_for_a_majority_can_be_stopped(brokers, caplog):
    """A broker that was declared down, and waits for a majority to begin another run, can be stopped."""
    _, second, third = brokers
    caplog.set_level("INFO", "warren.members")
    third.pause()
    wait_for("the leader to declare it down", lambda: f"{third.settings.node_name} is down" in caplog.text, 60)
    third.resume()
    second.kill()
    wait_for("it to begin another run", lambda: "ends this run of its app" in caplog.text, 60)
    third.stop()
    assert not third.is_running


def test_a_broker_without_a_disk_takes_its_place_again(brokers_in_memory):
    """A broker without a disk rejoins without `forget_cluster_node`, because its messages are lost in any
    case (CL-45).
    """
    first, second, third = brokers_in_memory
    assert first.declare_queue("orders", durable=True)
    third.kill()
    third.start()
    assert third.declare_queue("orders", passive=True) == "orders"
    assert third.declare_queue("later", durable=True)
    assert second.declare_queue("later", passive=True) == "later"
