"""A node whose disk refuses writes at its start, or takes long at its stop.

The stop waits for the disk up to a time limit, and no other broker can use the directory until the disk has answered.
"""

import re
import threading

import pytest

from warren import Broker, BrokerError, StartError, running_node
from warren.actors.disk import journal, message_store
from warren.store.data_dir import recovery_terms, vhost_dir


@pytest.fixture
def gate(monkeypatch):
    """An event; the last write of a stop waits until it is set."""
    gate = threading.Event()
    write = vhost_dir.RecoveryTerms.put_all
    monkeypatch.setattr(vhost_dir.RecoveryTerms, "put_all", lambda *arguments: (gate.wait(60), write(*arguments)))
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
    stopping.join(60)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.queue("kept").messages == 1


def test_a_directory_is_not_let_go_while_the_disk_may_still_write(tmp_path, gate, monkeypatch, caplog):
    monkeypatch.setattr(running_node, "SHUTDOWN_SECONDS", 0.2)
    monkeypatch.setattr(running_node, "STORE_SECONDS", 0.2)
    broker = Broker(data_dir=tmp_path, stop_timeout=0).start()
    broker.stop()
    assert (
        f"data directory '{tmp_path}' stays in use until this process ends, because the disk does not answer"
        in caplog.text
    )
    with pytest.raises(StartError, match="is in use by warren@localhost"):
        broker.start()


def refusing(*_):
    raise OSError(28, "No space left on device")


def test_a_first_start_on_a_full_disk_says_so_in_a_sentence(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("warren.actors.node.vhost_supervisor.open_vhost", refusing)
    with pytest.raises(
        StartError,
        match=rf"^vhost '/' cannot use '{tmp_path}/vhosts/\w+': \[Errno 28\] No space left on device\. "
        r"No data is lost\. Free space on that disk",
    ):
        Broker(data_dir=tmp_path).start()
    assert "Traceback" not in caplog.text
    monkeypatch.undo()
    with Broker(data_dir=tmp_path) as broker:
        assert broker.vhosts() == ["/"]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (journal.JournalEngine, "its journal cannot be opened"),
        # Both stores are opened at the same time, and the text names the first that is refused.
        (message_store.StoreEngine, "msg_store_(transient|persistent) cannot be opened"),
    ],
)
def test_a_vhost_whose_disk_refuses_is_down_and_the_others_run(tmp_path, monkeypatch, caplog, engine, said):
    """AB-171, queue-and-store section 10.1: a start on a full disk loses nothing; the next start has all data."""
    with Broker(data_dir=tmp_path) as broker:
        broker.create_vhost("other")
        broker.declare_queue("kept", durable=True)
        broker.publish(b"x", "kept", delivery_mode=2)
    (directory,) = (path.parent for path in (tmp_path / "vhosts").glob("*/name") if path.read_text() == "/")
    recover = engine.recover
    monkeypatch.setattr(
        engine,
        "recover",
        lambda self, *rest: refusing() if self._disk.full_path("") == f"{directory}/" else recover(self, *rest),
    )
    with Broker(data_dir=tmp_path) as broker:
        assert re.search(
            re.escape(f"vhost '/' is down: vhost '/' cannot use '{directory}': ")
            + said
            + re.escape(": [Errno 28] No space left on device"),
            caplog.text,
        )
        assert "Traceback" not in caplog.text
        broker.declare_queue("here", vhost="other")
        with pytest.raises(BrokerError, match="refused by a queue"):
            broker.publish(b"x", "kept")
        broker.publish(b"x", "here", vhost="other")
    monkeypatch.undo()
    with Broker(data_dir=tmp_path) as broker:
        assert broker.queue("kept").messages == 1


def test_a_full_disk_is_no_damage(tmp_path, monkeypatch):
    """The terms of a clean stop are kept if there is no room on the disk to open them."""
    recovery_terms.take_terms(str(tmp_path))
    terms = recovery_terms.RecoveryTerms(str(tmp_path))
    terms.put_all({7: {"segments": {}}})
    terms.close()

    def full(*_, **__):
        raise recovery_terms.lmdb.DiskError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(recovery_terms.lmdb, "open", full)
        with pytest.raises(recovery_terms.lmdb.DiskError):
            recovery_terms.take_terms(str(tmp_path))
    assert recovery_terms.take_terms(str(tmp_path)) == {7: {"segments": {}}}
