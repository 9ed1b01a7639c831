"""What Terraform's provider for RabbitMQ and the Java client Hop ask for. warren answers as RabbitMQ 3.10.8 did.

The recorded file has the requests that these clients send, as their public sources make them: the provider creates
each of its resources, reads it back, lists all for an import, changes it and deletes it; Hop reads every list.
Terraform compares what it has put with what it gets back, so the values of declared fields must be the same, not only
their types.
"""

import json

import pytest

from .answers import FOLDER, compare

RECORDED = FOLDER / "rabbitmq-3.10.8-admin-clients.json"

#: Fields whose values a client has declared, or that follow from what it has declared.
DECLARED = frozenset(
    (
        *("name", "vhost", "description", "tags", "tracing", "durable", "auto_delete", "internal", "exclusive", "type"),
        *("arguments", "source", "destination", "destination_type", "routing_key", "pattern", "apply-to", "priority"),
        *("definition", "configure", "write", "read", "user", "exchange", "value", "component", "policy"),
        *("operator_policy", "effective_policy_definition", "hashing_algorithm", "limits", "routed", "payload"),
        *("payload_encoding", "payload_bytes", "properties", "redelivered", "status", "page", "page_count"),
        *("page_size", "item_count", "filtered_count", "total_count"),
    )
)

#: Answers that differ deliberately: path, and why.
DIFFERENT = {
    "/api/definitions/tf%2Fv1": "a document of one virtual host does not name it, also not in its parameters",
    "/api/global-parameters/": "the parameter of the cluster's own id has another name",
}

#: What orders the objects of a list that RabbitMQ answers in no particular order.
KEYS = ("vhost", "name", "user", "source", "destination_type", "destination", "routing_key", "queue_name")


def sorted_rows(rows):
    if not all(isinstance(row, dict) for row in rows):
        return rows
    return sorted(rows, key=lambda row: [str(row.get(key)) for key in KEYS])


def differences(theirs, ours, place=""):
    """The declared fields whose values differ, and rows that only one side has."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name, value in theirs.items():
            # RabbitMQ has null for what it does not know of a queue without its statistics.
            if name in DECLARED and value is not None and ours.get(name) != value:
                yield f"{place}.{name}", value, ours.get(name)
            elif name == "items":
                yield from differences(value, ours.get(name), f"{place}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield place, len(theirs), len(ours)
        for at, (their, our) in enumerate(zip(sorted_rows(theirs), sorted_rows(ours))):
            yield from differences(their, our, f"{place}[{at}]")


@pytest.fixture(scope="module")
def answers(api):
    """Send the requests of the file in their order, and return each with warren's status, answer and headers."""
    found = []
    for recorded in json.loads(RECORDED.read_text("utf-8")):
        status, value = api(recorded["method"], recorded["path"], recorded.get("body"))
        found.append((recorded, status, value, dict(api.answer_headers)))
    return found


def shown(recorded):
    return f"{recorded['method']} {recorded['path']} {recorded.get('body', '')}"


def test_the_statuses_are_those_of_rabbitmq(answers):
    """A provider decides by the status whether an object exists, was made or has changed (CM-232, CM-320)."""
    differ = [(shown(each), each["status"], status) for each, status, _, _ in answers if status != each["status"]]
    assert differ == []


def test_refusals_are_those_of_rabbitmq(answers):
    """The reason of a refusal is what a user of the client reads (CM-233, CM-320)."""
    differ = [
        (shown(recorded), recorded["answer"], value)
        for recorded, status, value, _ in answers
        if status >= 400 and "answer" in recorded and value != recorded["answer"]
    ]
    assert differ == []


def test_objects_have_the_fields_and_values_of_rabbitmq(answers):
    """Every field of RabbitMQ's is there with a value of the same type, and declared values come back as they were put
    (CM-274 to CM-285, CM-320).
    """
    compared = 0
    for recorded, status, value, _ in answers:
        if status != 200 or "answer" not in recorded or recorded["path"] in DIFFERENT:
            continue
        theirs, ours = recorded["answer"], value
        if isinstance(theirs, list):
            theirs, ours = sorted_rows(theirs), sorted_rows(ours)
        compare(theirs, ours, shown(recorded))
        assert list(differences(theirs, ours)) == [], shown(recorded)
        compared += 1
    assert compared > 80


def test_bindings_are_read_back_by_their_location(answers, api):
    """A POST of a binding answers with its relative address, whose last part is RabbitMQ's for bindings without
    arguments (CM-290, CM-294).
    """
    for recorded, status, _, headers in answers:
        if "location" in recorded and status == 201:
            theirs, ours = (each.rpartition("~")[0] or each for each in (recorded["location"], headers["location"]))
            has_arguments = "key1" in recorded["body"]
            assert (ours == theirs) if has_arguments else headers["location"] == recorded["location"]


def test_each_named_difference_is_one(answers):
    for path, reason in DIFFERENT.items():
        found = [(recorded["answer"], value) for recorded, _, value, _ in answers if recorded["path"] == path]
        assert found and all(theirs != ours for theirs, ours in found), reason
