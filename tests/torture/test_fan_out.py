"""Large messages to ten durable queues are stored once, survive kill -9, and are removed after the last ack."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep

import pytest

from warren.actors.metadata.log.row_encoding import stored_rows
from warren.store.verify import verify as engine
from warren.tests.behaviour.wire import Client
from warren.tests.file_sizes import size_of_files
from warren.tests.torture.broker import AS_IT_IS, SMALL, TorturedBroker

QUEUES = [f"q{number}" for number in range(10)]
SIZE = 16_384
COUNT = 300
ARGUMENTS = {"q1": {"x-queue-mode": "lazy"}, "q2": {"x-max-priority": 3}, "q9": {"x-dead-letter-exchange": "dead"}}


@pytest.fixture(params=[SMALL, AS_IT_IS], ids=["small files", "files as they are"])
def broker(request, tmp_path):
    with TorturedBroker(tmp_path / "data", tmp_path / "broker.log", request.param) as broker:
        yield broker


def started(broker):
    broker.begin()
    return Client(broker.url())


def store_bytes(tmp_path):
    """The size of the files of the persistent store. Space reserved ahead is not part of it."""
    return size_of_files(Path(tmp_path / "data").rglob("msg_store_persistent/*.rdq"))


def wait_for_one_file(tmp_path):
    """Wait until only the current file is left, because garbage is collected in the background."""
    deadline = monotonic() + 300
    while len(files := [path.name for path in Path(tmp_path / "data").rglob("msg_store_persistent/*.rdq")]) > 1:
        assert monotonic() < deadline, files
        sleep(0.02)


def verified(tmp_path):
    with engine.opened(str(tmp_path / "data")) as path:
        return engine.verify(path, lambda tables: stored_rows(tables).stale)


def body(number):
    return str(number).ljust(SIZE, "x").encode()


def taken(channel, queue):
    """The bodies and delivery tags of all ready messages, not acknowledged."""
    events = []
    while (event := channel.get(queue)) is not None:
        events.append(event)
    return [event.body for event in events], [event.tag for event in events]


def test_fan_out_is_stored_once(broker, tmp_path):
    client = started(broker)
    channel = client.channel()
    channel.exchange("all", "fanout", durable=True)
    channel.exchange("dead", "fanout", durable=True)
    for queue in (*QUEUES, "buried", "buried too"):
        channel.queue(queue, ARGUMENTS.get(queue), durable=True)
        channel.bind(queue, "all" if queue in QUEUES else "dead")
    channel.confirm()
    with client.in_one_piece():
        for number in range(COUNT):
            channel.publish(body(number), exchange="all", delivery_mode=2, priority=number % 4)
    assert len(channel.confirms(1, COUNT)[0]) == COUNT
    assert COUNT * SIZE <= store_bytes(tmp_path) < 1.1 * COUNT * SIZE

    broker.kill()
    client.abort()
    assert verified(tmp_path).is_fine
    client = started(broker)
    channel = client.channel()
    wanted = [body(number) for number in range(COUNT)]
    assert channel.purge("q8") == COUNT
    assert channel.delete("q7") == COUNT
    for queue in QUEUES[:7]:
        bodies, tags = taken(channel, queue)
        assert bodies == (wanted if queue != "q2" else sorted(wanted, key=lambda one: -(int(one.rstrip(b"x")) % 4)))
        channel.ack(tags[-1], multiple=True)
    bodies, tags = taken(channel, "q9")
    assert bodies == wanted
    channel.nack(tags[-1], multiple=True, requeue=False)
    channel.expect_ready("buried", COUNT)
    channel.expect_ready("buried too", COUNT)

    client.abort()
    broker.terminate()
    assert broker.ended()
    report = verified(tmp_path)
    assert report.is_fine
    live = sum(file["live"] for vhost in report.as_dict()["vhosts"] for file in vhost["files"])
    assert COUNT * SIZE <= live < 1.1 * COUNT * SIZE  # only the bodies that the queues of dead letters share are left

    client = started(broker)
    channel = client.channel()
    for queue in ("buried", "buried too"):
        assert sorted(channel.get_all(queue)) == sorted(wanted)
    wait_for_one_file(tmp_path)
    client.close()
