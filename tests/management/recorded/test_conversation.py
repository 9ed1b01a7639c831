"""warren answers the requests of a recorded conversation as RabbitMQ 3.10.8 did, except where `DIFFERENT` names a
difference.

The recorded file has the requests in order, each with RabbitMQ's status, answer and the headers that clients read. An
error's answer must be the same; an object must have all of RabbitMQ's fields, with values of the same types.
"""

import json

import pytest

from .answers import FOLDER, compare

RECORDED = FOLDER / "rabbitmq-3.10.8.json"

#: Requests that warren deliberately answers otherwise: method, path, a part of the body, and why.
DIFFERENT = [
    ("POST", "/api/exchanges/%2F/nosuch/publish", "", "an exchange that does not exist is 404, as elsewhere"),
    ("POST", "/api/queues/%2F/nosuch/get", "", "the text does not begin with the name of the reply code"),
    ("PUT", "/api/permissions/%2F/u1", '"("', "Erlang shows the pattern as a list of numbers"),
    ("PUT", "/api/policies/%2F/p2", '"("', "Erlang's and Python's regular expressions describe faults differently"),
    ("PUT", "/api/policies/%2F/p2", "max-length", "RabbitMQ escapes the text for HTML"),
    ("PUT", "/api/policies/%2F/p2", "zzz", "RabbitMQ escapes the text for HTML"),
    ("PUT", "/api/policies/%2F/p2", "priority", "RabbitMQ escapes the text for HTML, and lists a second fault"),
    ("GET", "/api/health/checks/port-listener/1", "", "the ports of listeners differ"),
    ("GET", "/api/health/checks/protocol-listener/mqtt", "", "a node that is alone does not listen for others"),
    ("GET", "/api/vhosts/v1", "", "RabbitMQ forgets a description when PUT comes without one"),
    ("POST", "/api/definitions", '"queues"', "all faults of the document are listed"),
    ("GET", "/api/cluster-name", "", "nodes have other names"),
    ("PUT", "/api/vhost-limits/%2F/zzz", "", "the text goes on with the limits that there are"),
]


def conversation():
    return json.loads(RECORDED.read_text("utf-8").replace("mgmt@localhost", "warren@localhost"))


def is_different(recorded):
    return any(
        recorded["method"] == method and recorded["path"] == path and part in recorded.get("body", "")
        for method, path, part, _ in DIFFERENT
    )


@pytest.fixture(scope="module")
def answers(api):
    """Send the requests of the file in their order, and return each with warren's status, answer and headers."""
    found = []
    for recorded in conversation():
        client = api.as_user(recorded["user"]) if "user" in recorded else api
        status, value = client(
            recorded["method"], recorded["path"], recorded.get("body"), headers=recorded.get("headers")
        )
        found.append((recorded, status, value, dict(client.answer_headers)))
    return found


def shown(recorded):
    return f"{recorded['method']} {recorded['path']} {recorded.get('body', '')} as {recorded.get('user', 'guest')}"


def test_the_statuses_are_those_of_rabbitmq(answers):
    """Each request gets the status that RabbitMQ gave it (CM-232, CM-260 to CM-267, CM-287 to CM-293)."""
    differ = [
        (shown(recorded), recorded["status"], status, value)
        for recorded, status, value, _ in answers
        if status != recorded["status"] and not is_different(recorded)
    ]
    assert differ == []


def test_refusals_are_those_of_rabbitmq(answers):
    """Each refused request gets RabbitMQ's JSON with the same error and reason (CM-233, CM-248, CM-249, CM-287 to
    CM-293, CM-300, CM-310, CM-315).
    """
    differ = [
        (shown(recorded), recorded["answer"], value)
        for recorded, _, value, _ in answers
        if recorded["status"] >= 400 and recorded.get("answer") != value and not is_different(recorded)
        if "page_out_of_range" not in str(recorded.get("answer"))
    ]
    assert differ == []


def test_objects_have_all_fields_of_rabbitmq(answers):
    """A tool that reads a field of RabbitMQ's objects finds it in warren's, too (CM-245, CM-247, CM-250, CM-281 to
    CM-285).
    """
    for recorded, status, value, _ in answers:
        if recorded["status"] == status == 200 and "answer" in recorded and not is_different(recorded):
            compare(recorded["answer"], value, shown(recorded))


def test_headers_that_clients_read_are_those_of_rabbitmq(answers):
    """The headers `allow` and `location` are those of RabbitMQ (CM-232, CM-290)."""
    for recorded, _, _, headers in answers:
        if "allow" in recorded:
            assert headers["allow"] == recorded["allow"], shown(recorded)
        if "location" in recorded and not is_different(recorded):
            assert headers["location"] == recorded["location"], shown(recorded)


def test_each_named_difference_is_one(answers):
    """Each entry of `DIFFERENT` still differs in at least one answer; an entry that does not must leave the list."""
    for method, path, part, reason in DIFFERENT:
        same = [
            recorded["status"] == status and recorded.get("answer") == value
            for recorded, status, value, _ in answers
            if (recorded["method"], recorded["path"]) == (method, path) and part in recorded.get("body", "")
        ]
        assert same and not all(same), (method, path, reason)
