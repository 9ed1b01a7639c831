"""Definitions with values that JSON or AMQP does not have: such an export works, and such a document is refused."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal

import pika
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
        {"queues": [QUEUE], "bindings": [{**QUEUE, "source": "amq.headers", "arguments": {"x-match": "most"}}]},
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


def test_names_that_a_broker_has_given_are_left_out(broker, run):  # noqa: F811
    """An export contains queues to which the broker gave a name for a client, and RabbitMQ's may contain exchanges of
    its own. No other broker can declare them, so they are left out with a warning, and their bindings (CM-218).
    """
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    generated = connection.channel().queue_declare("", auto_delete=True).method.queue
    broker.bind(generated, "amq.topic", "k")
    document = exported(run)
    assert [row["name"] for row in document["queues"]] == [generated]
    connection.channel().queue_delete(generated)
    connection.close()
    document["exchanges"] = [{**EXCHANGE, "name": "amq.rabbitmq.other"}]
    document["queues"].append(QUEUE)
    code, _, err = run("import_definitions", stdin=json.dumps(document))
    assert code == 0
    first, second, third = err.splitlines()
    assert first.startswith("Warning: left out is the exchange 'amq.rabbitmq.other' in vhost '/': ")
    assert second.startswith(f"Warning: left out is the queue '{generated}' in vhost '/': ")
    assert third.startswith(f"Warning: left out is the binding of queue '{generated}' to exchange 'amq.topic'")
    assert [row.name for row in broker.queues()] == ["q"]


def limits(count):
    return {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": count}}


def queues(*names):
    return [{**QUEUE, "name": name} for name in names]


def test_an_export_may_have_more_queues_than_its_limit_allows(broker, run):  # noqa: F811
    """A limit that is set later leaves the queues that are there, so it becomes valid after their import (CM-218)."""
    for name in "abc":
        broker.declare_queue(name, durable=True)
    broker.set_vhost_limits({"max-queues": 1})
    document = exported(run)
    broker.set_vhost_limits({"max-queues": -1})
    for name in "abc":
        broker.delete_queue(name)
    code, _, err = run("import_definitions", stdin=json.dumps(document))
    assert (code, err) == (0, "")
    assert [row.name for row in broker.queues()] == ["a", "b", "c"]
    with pytest.raises(BrokerError, match=r"queue limit in vhost '/' \(1\) is reached"):
        broker.declare_queue("d")


def test_more_queues_than_the_node_allows_are_refused_before_the_first_change(broker, run):  # noqa: F811
    """A document does not stop half-way at the limit of the virtual host (CM-217)."""
    broker.declare_queue("a", durable=True)
    broker.set_vhost_limits({"max-queues": 2})
    code, _, err = run("import_definitions", stdin=json.dumps({"queues": queues("a", "b", "c")}))
    assert code == 65 and "queues: the limit of vhost '/' is 2 queues. It has 1, and the document has 2 more" in err
    assert [row.name for row in broker.queues()] == ["a"]
    wider = {"parameters": [limits(3)], "queues": queues("a", "b", "c")}
    assert run("import_definitions", stdin=json.dumps(wider))[0] == 0
    assert [row.name for row in broker.queues()] == ["a", "b", "c"]


def test_what_is_set_for_a_virtual_host_may_stand_beside_its_name(broker, run):  # noqa: F811
    """RabbitMQ imports the description and the tags of a virtual host from its metadata or from beside its name."""
    vhosts = [
        {"name": "beside", "description": "one", "tags": ["a", "b"]},
        {"name": "within", "metadata": {"description": "two", "tags": "a,b", "default_queue_type": None}},
    ]
    assert run("import_definitions", stdin=json.dumps({"vhosts": vhosts}))[0] == 0
    found = {row["name"]: row["metadata"] for row in exported(run)["vhosts"]}
    assert found["beside"] == {"description": "one", "tags": ["a", "b"]}
    assert found["within"] == {"description": "two", "tags": ["a", "b"]}


def test_what_the_node_has_with_other_properties_stays_as_it_is(broker, run):  # noqa: F811
    """The rest is imported, as by RabbitMQ: a file that is loaded at each start must not keep a node from starting
    because a client has declared a queue anew (CM-220, CM-313).
    """
    broker.declare_queue("q", arguments={"x-max-length": 5})
    broker.declare_exchange("x", "topic")
    document = {"queues": [QUEUE, {**QUEUE, "name": "other"}], "exchanges": [EXCHANGE]}
    code, _, err = run("import_definitions", stdin=json.dumps(document))
    assert code == 0
    assert [line.partition(": inequivalent arg")[0] for line in err.splitlines()] == [
        "Warning: left out is the exchange 'x' in vhost '/', which stays as it is",
        "Warning: left out is the queue 'q' in vhost '/', which stays as it is",
    ]
    assert {row.name: row.durable for row in broker.queues()} == {"q": False, "other": True}
