"""A node whose disk takes its time to stop: it is waited for, not for ever, and nobody else gets at the directory before it has answered."""

import threading

import pytest

from warren import Broker, running_node
from warren.broker import StartError
from warren.store import vhost_dir


@pytest.fixture
def gate(monkeypatch):
    """What a stop writes last waits until this is set."""
    gate = threading.Event()
    write = vhost_dir.RecoveryTerms.put_all
    monkeypatch.setattr(vhost_dir.RecoveryTerms, "put_all", lambda *arguments: (gate.wait(30), write(*arguments)))
    yield gate
    gate.set()


def test_a_stop_waits_for_what_has_to_be_written(tmp_path, gate):
    broker = Broker(data_dir=tmp_path).start()
    broker.declare_queue("kept", durable=True)
    broker.publish(b"x", "kept", delivery_mode=2)
    stopping = threading.Thread(target=broker.stop)
    stopping.start()
    stopping.join(running_node.SHUTDOWN_SECONDS + 1.5)
    assert stopping.is_alive()
    gate.set()
    stopping.join(10)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.queue("kept").messages == 1


def test_a_directory_is_not_let_go_while_the_disk_may_still_write(tmp_path, gate, monkeypatch, caplog):
    monkeypatch.setattr(running_node, "SHUTDOWN_SECONDS", 0.2)
    monkeypatch.setattr(running_node, "STORE_SECONDS", 0.2)
    broker = Broker(data_dir=tmp_path, stop_timeout=0).start()
    broker.stop()
    assert f"data directory '{tmp_path}' stays in use until this process ends: the disk does not answer" in caplog.text
    with pytest.raises(StartError, match="is in use by warren@localhost"):
        broker.start()
