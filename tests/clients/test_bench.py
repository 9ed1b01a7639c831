"""The benchmarks of client libraries and of operations run for a moment: they measure, print their tables and delete
their queues.
"""

import subprocess
import sys

import pika
import pytest

from warren.bench.operations import OPERATIONS


def test_pika_is_measured_and_its_queue_deleted(broker_address, broker_url, tmp_path):
    host, port = broker_address
    command = [sys.executable, "-m", "warren.bench.clients", f"here={host}:{port}", "--only", "pika"]
    # In a folder without the clone, because the clone's folder `amqp` would hide the client library of that name.
    ran = subprocess.run([*command, "--seconds", "0.2"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    rows = [line for line in ran.stdout.splitlines() if line.startswith("pika: ")]
    assert len(rows) == 2
    for row in rows:
        rate, share, coreless = row.split()[-3:]
        assert int(rate.replace(",", "")) > 0
        assert share.endswith("%") and coreless.endswith("%")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            connection.channel().queue_declare("bench.clients", passive=True)


def test_each_operation_is_measured_and_its_queues_deleted(broker_address, broker_url, tmp_path):
    host, port = broker_address
    command = [sys.executable, "-m", "warren.bench.operations", f"one={host}:{port}", f"other={host}:{port}"]
    ran = subprocess.run([*command, "--seconds", "0.02"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines()[3:]]
    assert [row[0] for row in rows] == list(OPERATIONS)
    for row in rows:
        _, rate, _, other_rate, _, ratio, _ = row
        assert int(rate.replace(",", "")) > 0 and int(other_rate.replace(",", "")) > 0 and float(ratio) > 0
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        for queue in ("bench.operations", "bench.operations.other", "bench.operations.fanout.0"):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
                connection.channel().queue_declare(queue, passive=True)
