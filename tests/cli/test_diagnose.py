"""`warren diagnose` against a running broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pika
import pytest

from warren import Broker
from warren.amqp import methods
from warren.tests.behaviour.wire import Client

WARREN = Path(sys.executable).with_name("warren")


@pytest.fixture
def broker(tmp_path):
    with Broker(port=0, control_dir=str(tmp_path / "control"), output_buffer_limit=100_000) as broker:
        yield broker


@pytest.fixture
def diagnose(broker, tmp_path):
    def run(*arguments):
        done = subprocess.run(
            [WARREN, "diagnose", "--seconds", "0.1", *arguments],
            env={"WARREN_DATA_DIR": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_nothing(diagnose):
    assert diagnose().startswith("Nothing holds a connection back on node ")
    assert json.loads(diagnose("--formatter", "json")) == []


def test_an_alarm(broker, diagnose):
    """FC-66: the connection that publishes is blocked by it, and one that only consumes is not."""
    connections = [pika.BlockingConnection(pika.URLParameters(broker.url)) for _ in range(3)]
    broker.set_alarm("memory", True)
    for connection in connections[:2]:
        connection.channel().basic_publish("", "nowhere", b"x")
    deadline = time.monotonic() + 30
    while len(rows := json.loads(diagnose("--formatter", "json"))) < 3:
        assert time.monotonic() < deadline, rows
    assert {row["bottleneck"] for row in rows} == {"resource alarm"}
    text = diagnose()
    assert text.startswith("Resource alarm: low memory on node ") and "It holds back 3 connections" in text
    assert "warren set_vm_memory_high_watermark" in " ".join(text.split())
    broker.set_alarm("memory", False)


def test_a_client_that_does_not_read(broker, diagnose):
    """FC-66: other clients are not named."""
    broker.declare_queue("q")
    for _ in range(30):
        broker.publish(bytes(1_000_000), "q")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as other:
        other.channel()
        reader = Client(broker.url)
        reader.channel().send(methods.BasicConsume(queue="q", no_ack=True))
        deadline = time.monotonic() + 30
        while not (rows := json.loads(diagnose("--formatter", "json"))):
            assert time.monotonic() < deadline
        assert [(row["bottleneck"], row["evidence"]) for row in rows] == [("client", "it does not read")]
        assert str(reader.socket.getsockname()[1]) in rows[0]["subject"]
        reader.abort()
