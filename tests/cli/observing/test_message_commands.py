"""`warren query_message` and `warren decode_message_id` (QP-50, QP-51)."""

from __future__ import annotations

import json
import sys
import time

import pytest

from warren import Broker
from warren.cli.main import main


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with one indexed message in each of two queues."""
    data_dir = tmp_path_factory.mktemp("node")
    with Broker(data_dir=str(data_dir), control_dir=str(data_dir / "control")) as broker:
        broker.set_policy("indexed", "^indexed", {"message-index": "key"}, apply_to="queues")
        for name in ("indexed-a", "indexed-b"):
            broker.declare_queue(name, durable=True)
            broker.bind(name, "amq.fanout")
        broker.publish(b"the body", "key", "amq.fanout", delivery_mode=2, message_id="order-1")
        deadline = time.monotonic() + 300
        while not all(broker.query(queue=name, key="order-1") for name in ("indexed-a", "indexed-b")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield broker


@pytest.fixture
def run(broker, monkeypatch, capfd):
    """`run(*words)` runs a command in this process; returns its exit code, its output and its error text."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["warren", "--data-dir", str(broker.settings.data_dir), *words])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capfd.readouterr()

    return run


def test_a_message_is_found_in_each_queue(run):
    """For people, `query_message` prints a row for each queue that has the message (QP-21, QP-50)."""
    words = ("query_message", "--queue", "indexed-a", "--queue", "indexed-b", "--key", "order-1")
    code, out, err = run("-s", *words)
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "") and {row[0] for row in rows} == {"indexed-a", "indexed-b"}
    assert {(row[4], row[5], row[6], row[7], row[8]) for row in rows} == {
        ("ready", "amq.fanout", "key", "8", "order-1")
    }
    assert run("-s", *words, "--begin", "-1h")[1] == out
    assert run("-s", *words, "--end", "-1h")[1] == ""
    assert run("-s", *words, "--begin", "2001-02-03T04:05:06")[1] == out


def test_json_has_everything_that_is_known(run):
    """As JSON, `query_message` prints all that a Python program gets about the message (QP-51, QP-53)."""
    words = ("query_message", "--queue", "indexed-a", "--key", "order-1", "--formatter", "json")
    code, out, _ = run(*words)
    answer = json.loads(out)
    (message,) = answer.pop("messages")
    assert code == 0 and answer.pop("index_last_update_timestamp") >= message["stored_at"]
    assert answer.pop("index_last_update_position") > 0
    assert answer == {"truncated": False, "hidden": 0, "nodes_failed": []}
    assert (message["payload"], message["payload_encoding"], message["redelivered"]) == ("the body", "string", False)
    assert (message["gone_at"], message["channel"], message["seq"]) == (None, "", 0)
    assert json.loads(run("query_message", "--id", message["id"], "--formatter", "json")[1])["messages"] == [message]
    assert "payload" not in json.loads(run(*words, "--no-body")[1])["messages"][0]


def test_nothing_found(run):
    """To find nothing is a success, except with `--fail-if-none` for scripts (QP-50)."""
    words = ("query_message", "--queue", "indexed-a", "--key", "order-2")
    code, out, err = run(*words)
    assert (code, err) == (0, "") and "Nothing found." in out
    assert run("-q", *words, "--fail-if-none") == (69, "", "Error: no message was found\n")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--queue", "q"), 64, "give either --id, or --queue and --key"),
        (("--key", "k"), 64, "give either --id, or --queue and --key"),
        (("--queue", "q", "--key", "k", "--max-num", "65"), 65, "--max-num must be from 1 to 64"),
        (("--queue", "q", "--key", "k", "--begin", "soon"), 65, "'soon' is no time"),
        (("--queue", "q", "--key", "k", "--begin", "²"), 65, "'²' is no time"),
        (("--queue", "q", "--key", "k", "--begin", "1" * 5000), 65, "is no time"),
        (("--queue", "q", "--key", "k", "--end", f"-{'1' * 5000}d"), 65, "is no time"),
        (("--queue", "q", "--key", "k", "--begin", "2", "--end", "1"), 65, "later than its end"),
    ],
)
def test_wrong_questions(run, words, code, text):
    """A wrong query is refused with the reason (QP-12, QP-50)."""
    found, out, err = run("-q", "query_message", *words)
    assert (found, out) == (code, "") and text in err


@pytest.mark.parametrize(
    ("text", "address", "counter"),
    [
        ("C0A8000A00002A9F00000000075BCD15", "192.168.0.10", 123456789),
        ("c0a8000a00002a9f00000000075bcd15", "192.168.0.10", 123456789),
        ("20010DB800000000000000000000000100002A9F00000000075BCD15", "2001:db8::1", 123456789),
    ],
)
def test_an_id_is_taken_apart(run, text, address, counter):
    """`decode_message_id` prints the address and the counter that a message id contains (QP-22, QP-50)."""
    code, out, _ = run("decode_message_id", text, "--formatter", "json")
    assert (code, json.loads(out)) == (0, {"address": address, "port": 10911, "counter": counter})


@pytest.mark.parametrize("text", ["", "C0A8", "C0A8000AFFFFFFFF00000000075BCD15", "G" * 32])
def test_what_is_no_id(run, text):
    """A text that is no message id is refused (QP-50)."""
    code, out, err = run("decode_message_id", text)
    assert (code, out) == (65, "") and "is no id of a message. An id has 32 or 56" in err
