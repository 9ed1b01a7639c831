"""`warren store verify` on data directories of real brokers, and whether the next start does what verify announced."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from .test_start import started

WARREN = Path(sys.executable).with_name("warren")
QUEUES = {"orders": {}, "lazy": {"x-queue-mode": "lazy"}, "urgent": {"x-max-priority": 3}}
#: Sizes of a body that is stored in the queue's index, and of one that is stored in the message store.
SIZES = (10, 20_000)


def fill(port):
    """Publish twelve messages to each queue with confirms, and acknowledge two of them."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.confirm_delivery()
    for queue, arguments in QUEUES.items():
        channel.queue_declare(queue, durable=True, arguments=arguments)
        for number in range(12):
            channel.basic_publish(
                "",
                queue,
                bytes([65 + number]) * SIZES[number % 2],
                pika.BasicProperties(delivery_mode=2, priority=number % 4),
            )
        for _ in range(2):
            method, _, _ = channel.basic_get(queue)
            channel.basic_ack(method.delivery_tag)
    connection.close()


def found(port):
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    bodies = {
        queue: [body for _, _, body in iter(lambda queue=queue: channel.basic_get(queue), (None, None, None))]
        for queue in QUEUES
    }
    connection.close()
    return bodies


def verified(path):
    result = subprocess.run(
        [WARREN, "store", "verify", str(path), "--formatter", "json"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
    )
    report = json.loads(result.stdout)
    return (
        result.returncode,
        report,
        {queue["name"]: queue["messages"] - queue["missing_bodies"] for queue in report["vhosts"][0]["queues"]},
    )


@pytest.fixture(scope="module", params=[signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def original(request, tmp_path_factory):
    """A data directory, and whether its broker stopped cleanly."""
    path = tmp_path_factory.mktemp("left") / "data"
    with started("--data-dir", str(path)) as (process, port):
        fill(port)
        process.send_signal(request.param)
        process.wait(60)
    return path, request.param is signal.SIGTERM


@pytest.fixture
def left(original, tmp_path):
    """A copy of `original` for one test, which may damage it. Sockets are left out, because they cannot be copied."""
    path, is_clean = original
    return shutil.copytree(path, tmp_path / "data", ignore=shutil.ignore_patterns("socket")), is_clean


def test_verify_finds_no_damage_and_counts_the_messages(left):
    path, is_clean = left
    returncode, report, messages = verified(path)
    assert returncode == 0, report["findings"]
    assert report["vhosts"][0]["stopped"] == ("clean" if is_clean else "unclean")
    assert [finding for finding in report["findings"] if finding["severity"] != "note"] == []
    # Acknowledgements just before a kill may be lost, so that their messages come back (C-8).
    assert all(count == 10 or not is_clean and 10 < count <= 12 for count in messages.values())
    with started("--data-dir", str(path)) as (_, port):
        assert {queue: len(bodies) for queue, bodies in found(port).items()} == messages


def test_a_queue_without_files_is_listed(tmp_path):
    """A queue that never had a persistent message has no files, only its row in the metadata."""
    with started("--data-dir", str(tmp_path / "data")) as (process, port):
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            connection.channel().queue_declare("unused", durable=True)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    returncode, _, messages = verified(tmp_path / "data")
    assert (returncode, messages) == (0, {"unused": 0})


@pytest.mark.parametrize("suffix", [".wal", ".idx", ".rdq"])
def test_damage_in_a_file_loses_only_the_messages_there(left, suffix):
    """`verify` reports a changed byte in the middle of a file. The broker starts, logs the damage, and has all other
    messages.
    """
    path, _ = left
    files = sorted(path.rglob(f"*{suffix}"), key=lambda file: file.stat().st_size)
    if not files:
        pytest.skip("all messages are still in the journal")
    data = bytearray(files[-1].read_bytes())
    data[len(data) // 2] ^= 0x10
    files[-1].write_bytes(data)
    returncode, report, messages = verified(path)
    assert returncode == 65
    place = str(files[-1].relative_to(path))
    assert any(finding["place"] == place for finding in report["findings"])
    with started("--data-dir", str(path)) as (process, port):
        bodies = found(port)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=300)[1]
    assert {queue: len(of_queue) for queue, of_queue in bodies.items()} == messages
    if suffix == ".rdq":
        assert (
            "is damaged on the disk and lost" in said and "1 messages are lost, because their data on the disk" in said
        )
    else:
        assert place in said and "is damaged: bytes" in said
    for of_queue in bodies.values():
        assert all(body == body[:1] * len(body) and len(body) in SIZES for body in of_queue)
    returncode, report, _ = verified(path)
    assert returncode == 0, report["findings"]
