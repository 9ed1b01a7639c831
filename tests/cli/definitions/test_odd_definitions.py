"""Definitions with values that JSON or AMQP does not have: such an export works, and such a document is refused."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from warren import BrokerError

from .test_definitions import broker, exported, run  # noqa: F401

ODD = {
    "decimal": Decimal("1.5"),
    "bytes": bytearray(b"\xff"),
    "latin": b"\xff\xfe",
    "nan": math.nan,
    "inf": math.inf,
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "nested": {"list": [Decimal("0.1"), b"\xff", math.nan]},
}


@pytest.mark.parametrize("key", ODD)
def test_whatever_clients_declare_can_be_exported(broker, run, key):  # noqa: F811
    """One argument that JSON does not have must not make the whole export fail, which is an operator's backup."""
    broker.declare_queue("odd", durable=True, arguments={key: ODD[key]})
    broker.declare_exchange("odd", arguments={key: ODD[key]})
    broker.bind("odd", "odd", "k", arguments={key: ODD[key]})
    document = exported(run)
    shown = [document[section][-1]["arguments"][key] for section in ("queues", "exchanges", "bindings")]
    assert shown[0] == shown[1] == shown[2]
    assert "NaN" not in json.dumps(document) and "Infinity" not in json.dumps(document)
    broker.delete_queue("odd")
    broker.delete_exchange("odd")
    code, _, err = run("import_definitions", "-", stdin=json.dumps(document))
    assert (code, err) == (0, "")


QUEUE = {"vhost": "/", "name": "q", "durable": True}
EXCHANGE = {"vhost": "/", "name": "x", "type": "fanout"}
POLICY = {"vhost": "/", "name": "p", "pattern": ".*"}


@pytest.mark.parametrize(
    "document",
    [
        {"policies": [{**POLICY, "definition": [[[], 1]]}]},
        {"policies": [{**POLICY, "name": "\ud800", "definition": {"max-length": 1}}]},
        {"queues": [{**QUEUE, "name": "q\ud800"}]},
        {"queues": [{**QUEUE, "name": "q\udcff"}]},
        {"queues": [{**QUEUE, "arguments": {"k" * 300: 1}}]},
        {"queues": [QUEUE], "bindings": [{**QUEUE, "source": "amq.topic", "routing_key": "k" * 300}]},
        {"users": [{"name": ""}]},
        {"users": [{"name": "u", "tags": ["\ud800"]}]},
        # What stopped an import half-way.
        {"queues": [QUEUE, {**QUEUE, "durable": False}]},
        {"queues": [{**QUEUE, "name": "first"}], "exchanges": [EXCHANGE, {**EXCHANGE, "type": "topic"}]},
        {"queues": [QUEUE], "exchanges": [{**EXCHANGE, "name": "", "type": "direct"}]},
        {"queues": [QUEUE], "bindings": [{**QUEUE, "source": "", "routing_key": "q"}]},
    ],
)
def test_a_document_with_one_such_value_changes_nothing(broker, document):  # noqa: F811
    for item in document.get("bindings", ()):
        item |= {"destination": "q", "destination_type": "queue"}
    before = broker.exchanges()
    with pytest.raises(BrokerError, match="nothing of them is in force"):
        broker._running.operate("import_definitions", document=json.loads(json.dumps(document)))
    assert broker.queues() == [] and broker.exchanges() == before


def test_what_is_declared_twice_in_the_same_way_is_declared(broker):  # noqa: F811
    document = {"queues": [QUEUE, QUEUE], "exchanges": [EXCHANGE, EXCHANGE]}
    broker._running.operate("import_definitions", document=document)
    assert [row.name for row in broker.queues()] == ["q"]


def test_a_file_may_begin_with_a_mark_of_byte_order(broker, run, tmp_path):  # noqa: F811
    """Editors on Windows write one."""
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps({"queues": [QUEUE]}), encoding="utf-8-sig")
    assert run("import_definitions", str(path))[0] == 0
