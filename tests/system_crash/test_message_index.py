"""The message index and crashes: nobody waits for it, and whatever it loses is repeated by the queues."""

import time
from contextlib import suppress

import pika
import pytest

from warren import Broker, BrokerError
from warren.actors.message_index import process as indexer_module
from warren.actors.message_index.process import Indexer
from warren.actors.queue.message_index import index_feed
from warren.tests.torture.broker import TorturedBroker

from .anatomy import Anatomy

PATIENCE = 300.0


def publisher(url):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    return connection, channel


def publish(channel, numbers):
    for number in numbers:
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"m-{number}")
        channel.basic_publish("", "indexed", b"body", properties)


def make_queue(data, **settings):
    with Broker(data_dir=data, **settings) as broker:
        broker.set_policy("indexed", "^indexed$", {"message-index": "key"}, apply_to="queues")
        broker.declare_queue("indexed", durable=True)


def states(broker, numbers):
    return {number: [row["state"] for row in broker.query(queue="indexed", key=f"m-{number}")] for number in numbers}


def become(broker, wanted):
    deadline = time.monotonic() + PATIENCE
    found = None
    while found != wanted and time.monotonic() < deadline:
        with suppress(BrokerError):  # the index process has just crashed
            found = states(broker, wanted)
        time.sleep(0.05)
    assert found == wanted


@pytest.fixture
def data(tmp_path):
    path = str(tmp_path / "data")
    make_queue(path)
    return path


#: The engines, each with files so small that the index begins new ones all the time.
ENGINES = {
    engine: {"message_index_engine": engine, "message_index_slots": 5, "message_index_entries": 20}
    for engine in ("lmdb", "hash", "hash-java")
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_killed_broker(data, tmp_path, seconds, engine):
    """QP-32: after a kill every message is found that is in its queue, whether or not it was in the index."""
    with TorturedBroker(data, tmp_path / "log", settings=ENGINES[engine]) as broker:
        broker.begin()
        _, channel = publisher(broker.url())
        publish(channel, range(50))
        for _ in range(20):
            channel.basic_get("indexed", auto_ack=True)
        publish(channel, range(50, 60))
        time.sleep(seconds)  # in one case the index commits before the kill, in the other not
        broker.kill()
    with Broker(data_dir=data, **ENGINES[engine]) as again:
        become(again, {number: ["ready"] for number in (20, 35, 49, 50, 59)})
        left = [state for found in states(again, range(20)).values() for state in found]
        assert set(left) <= {"acked", "lost"}


@pytest.mark.parametrize("engine", ENGINES)
def test_broker_that_is_killed_again_and_again_while_it_indexes(tmp_path, engine):
    """Whatever a kill leaves of the files of the index, the next start goes on from there (QP-45, QP-47)."""
    data, kills, confirmed = str(tmp_path / "data"), 6, 0
    make_queue(data, **ENGINES[engine])
    with TorturedBroker(data, tmp_path / "log", settings=ENGINES[engine]) as broker:
        for kill in range(kills):
            broker.begin()
            _, channel = publisher(broker.url())
            # Each run is killed after another number of messages, and so in another moment of the index's work.
            publish(channel, range(confirmed, confirmed + 37 + 11 * kill))
            confirmed += 37 + 11 * kill
            broker.kill()
    assert "made anew" not in (tmp_path / "log").read_text(), "an index that a kill has left is not thrown away"
    with Broker(data_dir=data, **ENGINES[engine]) as again:
        become(again, {number: ["ready"] for number in range(confirmed)})


def test_crash_of_the_index_process(data):
    """If the index process crashes, publishes are confirmed meanwhile, and the next process learns of what the last one
    missed (QP-30, QP-31).
    """
    with Broker(data_dir=data) as broker:
        anatomy = Anatomy(broker)
        connection, channel = publisher(broker.url)
        publish(channel, range(10))
        become(broker, {9: ["ready"]})
        anatomy.crash(lambda: anatomy.processes(Indexer)[0])
        publish(channel, range(10, 20))
        become(broker, {0: ["ready"], 10: ["ready"], 19: ["ready"]})
        connection.close()


def test_publishes_do_not_wait_for_an_index_that_hangs(data, monkeypatch):
    """Publishes do not wait for an index that hangs: the feed of the index falls behind, and catches up when there is
    an index process again (QP-30, QP-31).
    """
    monkeypatch.setattr(indexer_module, "COMMIT_SECONDS", 1000.0)
    monkeypatch.setattr(index_feed, "MOST_WAITING", 20)
    with Broker(data_dir=data) as broker:
        anatomy = Anatomy(broker)
        connection, channel = publisher(broker.url)
        publish(channel, range(100))
        assert states(broker, [50]) == {50: []}
        assert anatomy.queue("indexed").indexing.feed.behind
        for _ in range(10):
            channel.basic_get("indexed", auto_ack=True)
        monkeypatch.setattr(indexer_module, "COMMIT_SECONDS", 0.01)
        anatomy.crash(lambda: anatomy.processes(Indexer)[0])
        become(broker, {number: ["ready"] for number in (10, 50, 99)})
        # These messages left the queue before they could be reported.
        assert states(broker, [5]) == {5: []}
        connection.close()


def test_departures_that_were_dropped_are_marked_as_lost(data, monkeypatch):
    """If more messages leave at once than the feed holds, the index marks them as lost, with a time, so that it does
    not keep them for ever (QP-26, QP-31).
    """
    with Broker(data_dir=data) as broker:
        connection, channel = publisher(broker.url)
        publish(channel, range(30))
        become(broker, {29: ["ready"]})
        monkeypatch.setattr(index_feed, "MOST_WAITING", 20)
        for _ in range(29):
            last, _, _ = channel.basic_get("indexed")
        channel.basic_ack(last.delivery_tag, multiple=True)
        become(broker, {28: ["lost"], 29: ["ready"]})
        deadline = time.monotonic() + PATIENCE
        while not (row := broker.query(queue="indexed", key="m-0")[0])["gone_at"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert row["state"] == "lost"
        connection.close()


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_damaged_index_is_made_anew(data, tmp_path, part):
    """A damaged index is made anew when the broker starts, and finds every message that is in its queue (QP-32)."""
    with Broker(data_dir=data) as broker:
        connection, channel = publisher(broker.url)
        publish(channel, range(30))
        connection.close()
        become(broker, {29: ["ready"]})
    (file,) = (tmp_path / "data" / "vhosts").glob("*/index/data.mdb")
    with file.open("r+b") as opened:
        opened.truncate(int(file.stat().st_size * part))
    with Broker(data_dir=data) as broker:
        become(broker, {0: ["ready"], 29: ["ready"]})
