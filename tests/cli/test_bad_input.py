"""What an operator gets wrong, or an attacker sends on purpose, is refused, and the broker keeps running."""

from __future__ import annotations

import io
import json
import logging
import sys

import pika
import pytest

from warren import Broker, BrokerError
from warren.cli.main import main

HUGE = "9" * 22
DEEP = "[" * 50_000 + "]" * 50_000
NESTED = "[" * 900 + "]" * 900
HALF = '"\\ud800"'
PASSWORD = "s3cretpw"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with a data directory, so that a value which the store cannot write would end the node."""
    data_dir = tmp_path_factory.mktemp("node")
    with Broker(data_dir=str(data_dir), control_dir=str(data_dir / "control")) as broker:
        yield broker


@pytest.fixture
def run(broker, monkeypatch, capfd):
    """`run(*arguments)` runs a command in this process, and returns its exit code, output and error text."""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["warren", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.setenv("WARREN_DATA_DIR", broker.settings.data_dir)
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capfd.readouterr()

    return run


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("set_user_limits", "guest", f'{{"max-connections":{HUGE}}}'), "has more than 64 bits"),
        (("set_user_limits", "guest", f'{{"max-connections":-{HUGE}}}'), "has more than 64 bits"),
        (("set_user_limits", "guest", '{"max-connections":true}'), "should be a number"),
        (("set_user_limits", "guest", '{"max-foo":1}'), "Unrecognised terms"),
        (("set_user_limits", "guest", NESTED), "nested too deeply"),
        (("set_vhost_limits", '{"max-queues":1.5}'), "should be a number"),
        (("set_vhost_limits", "nope"), "JSON decoding error"),
        (("set_vhost_limits", "[1]"), "should be a JSON object"),
        (("set_global_parameter", "g", DEEP), "nested too deeply"),
        (("set_global_parameter", "g", NESTED), "nested too deeply"),
        (("set_global_parameter", "g", "1e999"), "the number 1e999 is too large"),
        (("set_global_parameter", "g", HUGE), "has more than 64 bits"),
        (("set_global_parameter", "g", HALF), "half of a surrogate pair"),
        (("set_global_parameter", "g", '{"a":[{"\\udfff":1}]}'), "half of a surrogate pair"),
        (("set_policy", "p", "x", f'{{"max-length":{HUGE}}}'), "has more than 64 bits"),
        (("set_policy", "p", "x", f'{{"dead-letter-exchange":{HALF}}}'), "half of a surrogate pair"),
        (("set_policy", "p", "x", NESTED), "nested too deeply"),
        (("set_policy", "p", "x", '{"max-length":1}', "--priority", HUGE), "cannot be sent"),
        (
            ("set_policy", "p", "x", '{"max-length":1}', "--priority", "18446744073709551615"),
            "Bad argument: 'priority'",
        ),
        (("set_policy", "p", "a" * 5000, '{"max-length":1}'), "regular expression is too large"),
        (("set_policy", "p", "*", '{"max-length":1}'), "pattern should be regular expression but is invalid"),
        (("set_permissions", "guest", "(", ".*", ".*"), "invalid_regexp"),
        (("set_topic_permissions", "guest", "amq.topic", "[", ".*"), "invalid_regexp"),
    ],
)
def test_a_bad_value_is_refused_and_nothing_changes(broker, run, arguments, text):
    exported = run("export_definitions", "-")[1]
    code, out, err = run(*arguments)
    assert code in (64, 65, 69) and text in err and "Traceback" not in err, err
    assert run("export_definitions", "-") == (0, exported, "")
    assert broker.is_running and broker.queues() == []


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"global_parameters": [{"name": "g", "value": float("inf")}]}, "global_parameters[0]"),
        (
            {"policies": [{"vhost": "/", "name": "p", "pattern": "x", "priority": 1 << 63, "definition": {"ttl": 1}}]},
            "[",
        ),
        ({"users": [{"name": "u", "limits": {"max-connections": float("nan")}}]}, "users[0]"),
        (
            {"parameters": [{"vhost": "/", "component": "operator_policy", "name": "o", "value": NESTED}]},
            "parameters[0]",
        ),
        ({"policies": [{"vhost": "/", "name": "p", "pattern": "x", "definition": NESTED}]}, "policies[0]"),
        ({"policies": [{"vhost": "/", "name": "p", "pattern": "^(", "definition": "{}"}, 7]}, "policies[1]"),
    ],
)
def test_a_bad_document_is_refused(broker, run, document, text):
    """A document with a value that cannot be kept is refused with its place, and nothing is changed (CM-217)."""
    code, out, err = run("import_definitions", stdin=json.dumps(document))
    assert code == 65 and text in err and "Traceback" not in err, err
    assert broker.is_running and "p" not in broker.policies() and list(broker.users()) == ["guest"]


def test_a_program_gets_errors_as_well(broker):
    """A program that embeds the broker gets errors for wrong values, too, also for values that no command can send."""
    with pytest.raises(BrokerError):
        broker.add_user("\ud800", PASSWORD)
    with pytest.raises(BrokerError):
        broker.set_policy("p", "x", {"max-length": 1}, priority=1 << 70)
    with pytest.raises(BrokerError):
        broker.set_policy("p", "x", {"max-length": 1 << 70})
    with pytest.raises(BrokerError) as refusal:
        broker.add_user("ann", PASSWORD.encode())
    assert PASSWORD not in str(refusal.value)
    assert list(broker.users()) == ["guest"]


def test_patterns_that_blow_up_hold_nobody_up(broker, run, caplog):
    """A search with a pattern that backtracks for hours is given up after some milliseconds and repeated without
    backtracking, so nobody waits for it. The pattern counts as one that does not match, which is true.
    """
    for name in ("a", "b"):
        assert run("set_policy", name, "(a|aa|x|xx)+$", '{"max-length":1}')[0] == 0
    broker.add_user("ann", PASSWORD)
    broker.set_permissions("ann", configure="(a|aa|x|xx)+$", write=".*", read=".*")
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, "/", pika.PlainCredentials("ann", PASSWORD))
    with pika.BlockingConnection(parameters) as connection, pytest.raises(pika.exceptions.ChannelClosedByBroker):
        connection.channel().queue_declare("x" * 200 + "b")
    assert "ACCESS_REFUSED" in caplog.text and "takes too long" not in caplog.text
    broker.delete_user("ann")
    for name in ("a", "b"):
        assert run("clear_policy", name)[0] == 0


# -- the last administrator ---


@pytest.mark.parametrize(
    ("command", "undo"),
    [
        (("set_user_tags", "guest", "management"), ("set_user_tags", "guest", "administrator")),
        (("clear_password", "guest"), ("change_password", "guest", "guest")),
        (("clear_permissions", "guest"), ("set_permissions", "guest", ".*", ".*", ".*")),
        (("set_permissions", "guest", "", "^$", ""), ("set_permissions", "guest", ".*", ".*", ".*")),
    ],
)
def test_a_change_that_locks_the_last_administrator_out_warns(run, caplog, command, undo):
    """A change that leaves nobody who can log in as administrator is made with a warning that says how to undo it;
    while there is another administrator there is no warning.
    """
    code, _, err = run(*command)
    assert code == 0 and err.startswith("Warning: no ") and "administrator" in err and undo[0] in err
    assert err.removeprefix("Warning: ").strip() in caplog.text
    assert run(*command)[2] == "", "nobody was left before, so nothing is lost"
    assert run(*undo)[::2] == (0, "")
    assert run("add_user", "bob", PASSWORD)[0] == 0
    assert run("set_user_tags", "bob", "administrator")[2] == ""
    assert run("set_permissions", "bob", ".*", ".*", ".*")[2] == ""
    assert run(*command)[::2] == run(*undo)[::2] == (0, "")
    assert run("delete_user", "bob")[::2] == (0, "")


def test_a_deleted_administrator_is_not_named_as_the_way_out(run):
    code, _, err = run("delete_user", "guest")
    assert code == 0 and "'warren add_user NAME' and 'warren set_user_tags NAME administrator'" in err
    assert run("add_user", "guest", "guest")[0] == 0
    assert run("set_user_tags", "guest", "administrator")[::2] == (0, "")
    assert run("set_permissions", "guest", ".*", ".*", ".*")[0] == 0


@pytest.mark.parametrize(
    ("tag", "meant"), [("admin", "administrator"), ("monitor", "monitoring"), ("shop-team", None), ("management", None)]
)
def test_a_tag_that_looks_like_a_mistake_warns(run, tag, meant):
    """A tag that resembles one with rights warns; any other tag is accepted silently, as in RabbitMQ."""
    assert run("add_user", "tagged", PASSWORD)[0] == 0
    code, _, err = run("set_user_tags", "tagged", tag)
    assert code == 0
    assert err == (f"Warning: the tag '{tag}' gives no rights. Did you mean '{meant}'?\n" if meant else "")
    assert run("delete_user", "tagged")[0] == 0


def test_unknown_sections_of_definitions_are_named(run, tmp_path):
    path = tmp_path / "definitions.json"
    path.write_text('{"rabbit_version": "3.10.8", "polices": [], "notes": 1, "vhosts": [{"name": "/"}]}')
    code, _, err = run("import_definitions", str(path))
    assert code == 0
    assert sorted(err.splitlines()) == [
        "Warning: left out is 'notes', which definitions do not have",
        "Warning: left out is 'polices', which definitions do not have; did you mean 'policies'?",
    ]


def test_to_delete_the_last_administrator_warns(run):
    code, _, err = run("delete_user", "guest")
    assert code == 0 and "no user with the tag 'administrator' can log in" in err
    for undo in (("add_user", "guest", "guest"), ("set_user_tags", "guest", "administrator")):
        assert run(*undo)[::2] == (0, "")
    assert run("set_permissions", "guest", ".*", ".*", ".*")[::2] == (0, "")


# -- secrets ---


@pytest.mark.parametrize(
    "uri",
    [
        f"amqq://guest:{PASSWORD}@127.0.0.1",
        f"guest:{PASSWORD}@127.0.0.1",
        f"amqp://guest:{PASSWORD}/x@127.0.0.1",
        f"amqp://guest:{PASSWORD}@127.0.0.1:99999",
        f"amqp://guest:{PASSWORD}@127.0.0.1:1",
        f"amqp://guest:{PASSWORD}@[127",
    ],
)
def test_no_error_of_a_load_test_has_the_password(run, uri):
    code, out, err = run("perf-test", "--uri", uri, "--time", "1")
    assert code in (64, 69) and PASSWORD not in out + err, err


def test_no_error_and_no_log_has_a_password(broker, run, caplog):
    caplog.set_level(logging.DEBUG)
    for arguments in (
        ("add_user", "", PASSWORD),
        ("add_user", "ann", PASSWORD, "too many"),
        ("change_password", "--bogus", "ann", PASSWORD),
        ("authenticate_user", "--timeout", "x", "guest", PASSWORD),
        ("add_user", "guest", PASSWORD),
        ("change_password", "nobody", PASSWORD),
        ("authenticate_user", "guest", PASSWORD),
        ("add_user", "ann", "--pre-hashed-password", PASSWORD),
        ("import_definitions",),
    ):
        document = {"users": [{"name": "u", "password_hash": PASSWORD, "tags": 5}]}
        code, out, err = run(*arguments, stdin=json.dumps(document))
        assert code and PASSWORD not in out + err, arguments
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, "/", pika.PlainCredentials("guest", PASSWORD))
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)
    address = f"amqp://guest:{PASSWORD}@/{PASSWORD}@host"
    assert run("set_global_parameter", "upstream", json.dumps({"uri": [address, address]}), "--quiet")[0] == 0
    code, out, _ = run("report")
    assert code == 0 and "upstream" in out and PASSWORD not in out
    assert run("clear_global_parameter", "upstream")[0] == 0
    assert run("environment")[0] == 0
    assert PASSWORD not in caplog.text
