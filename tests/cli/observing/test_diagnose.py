"""`warren diagnose` against a running broker."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pika
import pytest

from warren import Broker
from warren.actors.queue.master.master import Master
from warren.amqp import methods
from warren.extensions import BasicPublish, ChannelInterceptor
from warren.store.disk.real_disk import RealFile
from warren.tests.behaviour.wire import Client
from warren.tests.system.wire import publish_frames

WARREN = Path(sys.executable).with_name("warren")


@pytest.fixture
def started(tmp_path):
    """`start(...)` starts a broker that commands find."""
    with ExitStack() as stack:

        def start(extensions=(), is_durable=False, **settings):
            data_dir = str(tmp_path) if is_durable else None
            control_dir = str(tmp_path / "control")
            return stack.enter_context(
                Broker(port=0, extensions=extensions, data_dir=data_dir, control_dir=control_dir, **settings)
            )

        yield start


@pytest.fixture
def broker(started):
    return started(output_buffer_limit=100_000)


@pytest.fixture
def run(tmp_path):
    def run(*arguments):
        done = subprocess.run(
            [WARREN, *arguments],
            env={"WARREN_DATA_DIR": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def diagnose(broker, run):
    return lambda *arguments: run("diagnose", *arguments)


def test_nothing(diagnose):
    assert diagnose().startswith("Nothing holds a connection back on node ")
    assert json.loads(diagnose("--formatter", "json")) == []


def test_an_alarm_that_blocks_nobody_yet(broker, diagnose):
    """An alarm is shown before it blocks a connection, so that the operator learns of it although nobody publishes."""
    broker.set_alarm("memory", True)
    assert diagnose() == (
        "Memory alarm on node warren@localhost\n"
        "  No client publishes now. The first message of a client will block its connection.\n"
    )
    broker.set_alarm("memory", False)
    assert diagnose().startswith("Nothing holds a connection back on node ")


def test_an_alarm(broker, diagnose):
    """`diagnose` names the alarm as what holds connections back, and how to end it (CM-185, FC-66)."""
    connections = [pika.BlockingConnection(pika.URLParameters(broker.url)) for _ in range(3)]
    broker.set_alarm("memory", True)
    for connection in connections[:2]:
        connection.channel().basic_publish("", "nowhere", b"x")
    deadline = time.monotonic() + 300
    while len(rows := json.loads(diagnose("--formatter", "json"))) < 3:
        assert time.monotonic() < deadline, rows
    assert {row["bottleneck"] for row in rows} == {"resource alarm"}
    text = diagnose()
    assert text.startswith("Resource alarm: low memory on node ") and "It holds back 3 connections" in text
    assert "warren set_vm_memory_high_watermark" in " ".join(text.split())
    broker.set_alarm("memory", False)


def test_a_client_that_does_not_read(broker, diagnose):
    """A client that does not read its deliveries is named as what holds its own connection back, and other clients are
    not named (FC-66).
    """
    broker.declare_queue("q")
    for _ in range(30):
        broker.publish(bytes(1_000_000), "q")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as other:
        other.channel()
        reader = Client(broker.url)
        reader.channel().send(methods.BasicConsume(queue="q", no_ack=True))
        deadline = time.monotonic() + 300
        while not (rows := json.loads(diagnose("--formatter", "json"))):
            assert time.monotonic() < deadline
        assert [(row["bottleneck"], row["evidence"]) for row in rows] == [("client", "it does not read")]
        assert str(reader.socket.getsockname()[1]) in rows[0]["subject"]
        reader.abort()


# -- a stage that is too slow ---

#: Seconds that a publish takes in the stage that a test slows down; the other stages take a small part of that.
SLOW = 0.0005
#: Seconds that each write to the slowed disk takes.
SLOW_WRITE = 0.2


class SlowAudit(ChannelInterceptor):
    """An extension that makes channels the slowest stage."""

    methods = (BasicPublish,)

    def intercept(self, place, method, content):
        time.sleep(SLOW)
        return method, content


@pytest.fixture
def slow_queue(monkeypatch):
    publish = Master.publish

    def slowly(self, record, entries):
        time.sleep(SLOW * sum(len(contents) for _, contents, *_ in entries))
        return publish(self, record, entries)

    monkeypatch.setattr(Master, "publish", slowly)


@pytest.fixture
def slow_disk(monkeypatch):
    """Each write takes long. It happens in a thread as always, so that the event loop runs on."""

    def slowed(write):
        def slowly(*arguments):
            time.sleep(SLOW_WRITE)
            return write(*arguments)

        return slowly

    for name in ("append", "append_synced"):
        monkeypatch.setattr(RealFile, name, slowed(getattr(RealFile, name)))


@contextmanager
def publishing(broker, name):
    """Have a client publish persistent messages as fast as it can; nobody consumes them."""
    client = Client(broker.url)
    client.channel().queue(name, durable=True)
    frames = publish_frames(1, bytes(100), name, props=b"\x10\x00\x02", frame_max=131_072) * 4000
    ends = threading.Event()

    def publish():
        client.socket.settimeout(0.1)
        rest = b""
        while not ends.is_set():
            rest = rest or frames
            with suppress(TimeoutError):
                rest = rest[client.socket.send(rest) :]

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        client.reset()


def awaited(run, bottleneck):
    """Wait until the only connection that is held back is held back by this stage, and return its row."""
    deadline = time.monotonic() + 300
    while True:
        rows = json.loads(run("diagnose", "--formatter", "json"))
        if [row["bottleneck"] for row in rows] == [bottleneck]:
            return rows[0]
        assert time.monotonic() < deadline, rows


def listed(run, command, *columns):
    """The rows of a listing, each as a dict."""
    return json.loads(run(command, *columns, "--formatter", "json"))


def test_slow_channels(started, run):
    """If an extension takes long for each publish, the channel is named, and no queue (FC-66)."""
    with publishing(started(extensions=[SlowAudit()]), "q"):
        row = awaited(run, "channel")
        assert row["state"] == "flow" and row["subject"].startswith("channel 1 of connection 127.0.0.1:")
        (connection,) = listed(run, "list_connections", "state", "bottleneck", "blocked_by", "blocked_share", "blocks")
        assert (connection["state"], connection["bottleneck"]) == ("flow", "channel")
        assert connection["blocked_by"] == ["channel 1"] and connection["blocks"] > 0
        assert 0 < connection["blocked_share"] <= 1


def test_a_slow_queue(started, run, slow_queue):
    """A slow queue is named, with control characters of its name escaped, and the listing of channels names it too
    (FC-66, FC-68).
    """
    name = "orders\x1b[2J\x9b2J"
    with publishing(started(), name):
        row = awaited(run, "queue")
        assert row["subject"] == f"queue '{name}' in vhost '/'" and row["evidence"].startswith("blocked channel 1 for ")
        (channel,) = listed(run, "list_channels", "state", "blocked_by", "blocked_seconds")
        assert channel["state"] == "flow" and channel["blocked_by"] == [name] and channel["blocked_seconds"] > 0
        assert "Queue: queue 'orders\\e[2J\\x9b2J' in vhost '/'" in run("diagnose")


def test_a_slow_disk(started, run, slow_disk):
    """If the disk is slow, the message store is named, and the listing of queues says that the queue waits for the
    journal (FC-66).
    """
    with publishing(started(is_durable=True), "orders"):
        row = awaited(run, "message store")
        assert row["subject"].startswith("the disk of vhost '/' on node ")
        assert row["evidence"].startswith("its journal blocked queue 'orders' for ")
        (queue,) = listed(run, "list_queues", "state", "blocked_by", "blocked_seconds_by")
        assert (queue["state"], queue["blocked_by"]) == ("flow", ["journal"])
        assert queue["blocked_seconds_by"]["journal"] > 0


def test_a_queue_that_nothing_holds_back(started, run):
    """A queue that was never blocked has zeros and an empty list in the columns about blocking."""
    broker = started()
    broker.declare_queue("q")
    (queue,) = listed(run, "list_queues", "state", "blocks", "blocked_seconds", "blocked_share", "blocked_by")
    assert list(queue.values()) == ["running", 0, 0.0, 0.0, []]
