"""`peek`, `reclaim_quorum_memory` and `schema_info`, in the words of RabbitMQ 3.10's tools (CM-173, CM-205)."""

from __future__ import annotations

import json
import sys

import pika
import pytest

from warren import Broker
from warren.cli.main import main


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=str(tmp_path / "data"), control_dir=str(tmp_path / "data" / "control")) as broker:
        broker.declare_queue("q", durable=True, arguments={"x-queue-type": "quorum"})
        broker.declare_queue("classic", durable=True)
        yield broker


@pytest.fixture
def run(broker, monkeypatch, capfd):
    """`run(*arguments)` runs a command in this process, and returns its exit code, output and error text."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["warren", *arguments])
        monkeypatch.setenv("WARREN_DATA_DIR", broker.settings.data_dir)
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capfd.readouterr()

    return run


@pytest.fixture
def channel(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        yield connection.channel()


def payload(run, position):
    code, out, err = run("peek", "q", str(position), "--formatter", "json")
    assert code == 0, err
    return json.loads(out)["message"]["payload (max 64 bytes)"]


def test_peek_shows_a_message_and_leaves_it(broker, run, channel):
    properties = pika.BasicProperties(delivery_mode=2, headers={"a": 1}, content_type="text/plain")
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"first", properties)
    channel.basic_publish("", "q", b"second \xff" + 100 * b"x")
    for _ in range(2):
        code, out, err = run("peek", "q", "1", "--formatter", "json")
        assert (code, err) == (0, "")
        assert json.loads(out) == {
            "result": "ok",
            "message": {
                "content_type": "text/plain",
                "delivery_mode": 2,
                "exchange": "",
                "header.a": 1,
                "header.x-delivery-count": 0,
                "payload (max 64 bytes)": "first",
                "routing_keys": ["q"],
            },
        }
    assert payload(run, 2) == "second \\xff" + 56 * "x"
    code, out, _ = run("peek", "q", "1")
    assert code == 0
    assert out.splitlines()[0] == f"Peeking at quorum queue q at position 1 on node {broker.settings.node_name} ..."
    assert "payload (max 64 bytes)\tfirst" in out.splitlines()
    assert broker.queue("q").messages == 2


def test_peek_passes_over_messages_that_a_consumer_has(run, channel):
    channel.confirm_delivery()
    # More messages than one read returns.
    for number in range(300):
        channel.basic_publish("", "q", b"%d" % number)
    first, _, _ = channel.basic_get("q")
    assert payload(run, 1) == "1"
    assert payload(run, 299) == "299"
    assert run("peek", "q", "300")[0] == 69
    channel.basic_nack(first.delivery_tag)
    while run("peek", "q", "300")[0] == 69:  # wait until the queue has handled the reject
        pass
    code, out, _ = run("peek", "q", "1", "--formatter", "json")
    found = json.loads(out)["message"]
    assert (found["payload (max 64 bytes)"], found["header.x-delivery-count"]) == ("0", 1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("peek", "q", "1"), 69, "Target queue does not have a message at that position"),
        (("peek", "q", "0"), 64, "position value must be a positive integer"),
        (("peek", "q", "x"), 64, "position value must be a positive integer"),
        (("peek", "classic", "1"), 69, "Cannot peek into a classic queue"),
        (("peek", "no", "1"), 69, "Target queue was not found in virtual host '/'"),
        (("reclaim_quorum_memory", "classic"), 69, "This operation is not applicable to classic queues"),
        (("reclaim_quorum_memory", "no"), 69, "Target queue was not found in virtual host '/'"),
    ],
)
def test_refusals_are_those_of_rabbitmq_queues(run, arguments, code, text):
    found, _, err = run(*arguments)
    assert (found, text in err) == (code, True), err


def test_reclaim_quorum_memory_moves_messages_to_the_disk(run, channel):
    channel.confirm_delivery()
    for _ in range(50):
        channel.basic_publish("", "q", 6_000 * b"x", pika.BasicProperties(delivery_mode=2))
    assert "50\tq" in run("-s", "list_queues", "messages_ready_ram", "name")[1].splitlines()
    assert run("reclaim_quorum_memory", "q") == (0, "Will flush Raft WAL of quorum queue q ...\n", "")
    while "0\tq" not in run("-s", "list_queues", "messages_ready_ram", "name")[1].splitlines():
        pass
    assert payload(run, 50) == 64 * "x"


def test_schema_info_lists_the_tables(broker, run):
    code, out, _ = run("schema_info", "--formatter", "json")
    assert code == 0
    tables = {row["name"]: row for row in json.loads(out)}
    assert {name: tables[name]["size"] for name in ("vhosts", "users", "queues", "exchanges", "bindings")} == {
        "vhosts": 1,
        "users": 1,
        "queues": 2,
        "exchanges": 7,
        "bindings": 2,
    }
    assert all(row["storage_type"] == "disc_copies" for row in tables.values())
    assert all(row["active_replicas"] == [broker.settings.node_name] for row in tables.values())
    code, out, _ = run("-s", "schema_info", "size", "name")
    assert "2\tqueues" in out.splitlines()
    assert run("schema_info", "cookie")[0] == 64
