"""Definitions: a file that a real RabbitMQ 3.10.8 exported loads and exports again; wrong files change nothing."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warren import Broker
from warren.cli.main import main

EXPORTED = Path(__file__).resolve().parents[2] / "testdata" / "definitions" / "rabbitmq-3.10.8.json"


@pytest.fixture
def broker(tmp_path):
    with Broker(control_dir=str(tmp_path / "control")) as broker:
        yield broker


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    """`run(*arguments)` runs a command in this process, and returns its exit code, output and error text."""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["warren", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path))
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capfd.readouterr()

    return run


def exported(run):
    code, out, err = run("export_definitions", "-")
    assert (code, err) == (0, "")
    return json.loads(out)


def comparable(document):
    """The sections of a document with their items as sorted texts, without the differences between RabbitMQ's exports
    and warren's that have no effect.
    """
    things = {}
    for section, items in document.items():
        if not isinstance(items, list):
            continue
        shown = []
        for item in items:
            item = dict(item)
            value = item.get("value")
            if section == "parameters" and isinstance(value.get("definition"), list):
                # RabbitMQ's export writes the definition as a list of pairs, which its own import refuses.
                item["value"] = {**value, "definition": dict(value["definition"])}
            if section == "parameters" and item["component"] == "operator_policy":
                item["value"] = {**item["value"], "apply-to": "queues"}
            if section == "vhosts":
                # RabbitMQ exports the limits of a virtual host here and as parameters, and its import reads only the
                # parameters.
                tags = item["metadata"]["tags"]
                item["metadata"] = {**item["metadata"], "tags": tags.split(",") if isinstance(tags, str) else tags}
                item["limits"] = []
            if item.get("name") == "internal_cluster_id":
                continue
            if section == "exchanges":
                # rabbitmqctl's export has no field `internal`, because it leaves internal exchanges out.
                assert item.pop("internal", False) is False
            shown.append(json.dumps(item, sort_keys=True))
        things[section] = sorted(shown)
    return things


def test_what_rabbitmq_exported_loads_and_exports_again(broker, run):
    """A file that RabbitMQ exported is imported and exported again with the same content, and its users keep their
    passwords (CM-90, CM-216, CM-218, CM-219).
    """
    code, out, err = run("import_definitions", str(EXPORTED))
    assert (code, err) == (0, "")
    assert out.startswith(f'Importing definitions in JSON from a file at "{EXPORTED}" ...\nImported: 2 vhosts, 2 users')
    wanted = comparable(json.loads(EXPORTED.read_text()))
    found = comparable(exported(run))
    for section in wanted:
        assert found[section] == wanted[section], section
    # The user logs in with the password that the user had in RabbitMQ.
    assert run("-q", "authenticate_user", "cliann", "secret") == (0, "Success\n", "")
    # A second import of the same file changes nothing.
    assert run("-q", "import_definitions", str(EXPORTED))[0] == 0
    assert comparable(exported(run)) == found


def test_an_export_loads_into_an_empty_node(broker, run, tmp_path):
    """An export is imported into an empty node, whose export is the same (CM-215, CM-218, CM-424)."""
    run("-q", "import_definitions", str(EXPORTED))
    path = tmp_path / "exported.json"
    assert run("export_definitions", str(path))[0] == 0
    before = exported(run)
    other = tmp_path / "other"
    with Broker(control_dir=str(other / "control")):
        assert run("--data-dir", str(other), "import_definitions", stdin=path.read_text())[0] == 0
        code, out, _ = run("--data-dir", str(other), "export_definitions", "-")
    assert comparable(json.loads(out)) == comparable(before)


WRONG = {
    "vhosts": [{"name": "new"}, {"name": ""}, {"metadata": {}}],
    "users": [{"name": "u", "password_hash": "!", "hashing_algorithm": "rabbit_password_hashing_sha256"}],
    "permissions": [{"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}],
    "topic_permissions": [{"user": "guest", "vhost": "nix", "exchange": "", "write": "", "read": ""}],
    "parameters": [{"vhost": "/", "component": "shovel", "name": "s", "value": {}}],
    "policies": [{"vhost": "/", "name": "p", "pattern": "(", "definition": {"max-length": 1}}, {"vhost": "new"}],
    "exchanges": [{"vhost": "/", "name": "e", "type": "nix"}, {"vhost": "/", "name": "amq.direct", "type": "fanout"}],
    "queues": [
        {"vhost": "/", "name": "good"},
        {"vhost": "/", "name": "bad", "arguments": {"x-max-length": -1}},
        {"vhost": "/", "name": 5},
        "text",
    ],
    "bindings": [
        {"vhost": "/", "source": "amq.direct", "destination": "good", "destination_type": "queue"},
        {"vhost": "/", "source": "amq.direct", "destination": "good", "destination_type": "nix"},
    ],
}


def test_all_errors_are_listed_and_nothing_is_changed(broker, run):
    """A document with errors is refused with all of them, each with its place, and nothing is changed (CM-217)."""
    before = exported(run)
    code, _, err = run("import_definitions", stdin=json.dumps(WRONG))
    assert code == 65
    for place in (
        *(
            "vhosts[1]",
            "vhosts[2]",
            "users[0]",
            "permissions[0]",
            "topic_permissions[0]",
            "parameters[0]",
            "policies[0]",
        ),
        *("policies[1]", "exchanges[0]", "exchanges[1]", "queues[1]", "queues[2]", "queues[3]", "bindings[1]"),
    ):
        assert f"\n{place}: " in err, place
    assert len(err.splitlines()) == 2 + 14
    assert exported(run) == before


def test_bindings_of_what_rabbitmq_does_not_export_are_left_out(broker, run):
    """RabbitMQ's export contains bindings of exclusive queues and internal exchanges and leaves the queues and
    exchanges themselves out. An import leaves such bindings out with a warning.
    """
    missing = {"vhost": "/", "source": "amq.direct", "routing_key": "k", "arguments": {}}
    document = {
        "queues": [{"vhost": "/", "name": "of a file"}],
        "bindings": [
            {**missing, "destination": "an exclusive one", "destination_type": "queue"},
            {**missing, "destination": "an internal one", "destination_type": "exchange"},
            {**missing, "destination": "of a file", "destination_type": "queue"},
        ],
    }
    code, _, err = run("import_definitions", stdin=json.dumps(document))
    assert code == 0
    for kind in ("queue", "exchange"):
        name = "an exclusive one" if kind == "queue" else "an internal one"
        phrase = f"the binding of {kind} '{name}' to exchange 'amq.direct' in vhost '/'"
        assert f"Warning: left out is {phrase}: there is no {kind} '{name}'\n" in err
    assert len(err.splitlines()) == 2
    assert [each["destination"] for each in exported(run)["bindings"] if each["routing_key"] == "k"] == ["of a file"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"queues": 5}', '{"queues": [[]]}'])
def test_what_is_no_definitions(broker, run, text):
    """A file that contains no definitions is refused with exit code 65 and without a traceback (CM-216)."""
    code, out, err = run("import_definitions", stdin=text)
    assert code == 65
    assert "Traceback" not in err


def test_files_that_cannot_be_read_or_written(broker, run, tmp_path):
    """A file that cannot be read or written is exit code 65 (CM-215, CM-216)."""
    assert run("import_definitions", str(tmp_path / "missing"))[0] == 65
    assert run("export_definitions", str(tmp_path / "missing" / "file"))[0] == 65


def test_a_dry_run_only_checks(broker, run):
    """`--dry-run` checks a document and changes nothing (CM-217)."""
    document = json.dumps({"queues": [{"vhost": "/", "name": "q"}]})
    assert run("import_definitions", "--dry-run", stdin=document)[:2] == (0, "Checked: 1 queues.\n")
    assert broker.queues() == []
    assert run("import_definitions", "--formatter", "json", stdin=document)[:2] == (
        0,
        '{"node":"warren@localhost","result":"ok","queues":1}\n',
    )
    assert [queue.name for queue in broker.queues()] == ["q"]


def test_an_imported_queue_without_a_type_gets_the_default_of_its_virtual_host(broker, run):
    """A queue of a document that has no type in any form is of the default type, whether the document or the node has
    the virtual host; one with a type keeps it. An export and another import leave all of them as they are (AB-91,
    CM-218).
    """
    typed = {"name": "typed", "metadata": {"description": "", "tags": [], "default_queue_type": "quorum"}, "limits": []}
    queues = [
        {"vhost": "typed", "name": "none", "durable": True},
        {"vhost": "typed", "name": "classic", "durable": True, "type": "classic"},
        {"vhost": "typed", "name": "auto", "durable": True, "auto_delete": True},
    ]
    assert run("import_definitions", stdin=json.dumps({"vhosts": [typed], "queues": queues}))[0] == 0
    later = {"vhost": "typed", "name": "later", "durable": True}
    assert run("import_definitions", stdin=json.dumps({"queues": [later, *queues]}))[0] == 0
    document = exported(run)
    assert typed in document["vhosts"]
    assert {each["name"]: (each["type"], each["arguments"]) for each in document["queues"]} == {
        "none": ("quorum", {"x-queue-type": "quorum"}),
        "classic": ("classic", {}),
        "auto": ("classic", {}),
        "later": ("quorum", {"x-queue-type": "quorum"}),
    }
    broker.delete_vhost("typed")
    assert run("import_definitions", stdin=json.dumps(document))[0] == 0
    assert comparable(exported(run)) == comparable(document)


def test_a_document_is_checked_with_the_default_type(broker, run):
    """A virtual host with an unknown default type is an error, and so is a queue whose arguments its default type does
    not accept (AB-90, CM-217).
    """
    document = {
        "vhosts": [
            {"name": "typed", "metadata": {"default_queue_type": "quorum"}},
            {"name": "odd", "metadata": {"default_queue_type": "group"}},
        ],
        "queues": [{"vhost": "typed", "name": "q", "durable": True, "arguments": {"x-max-priority": 3}}],
    }
    code, _, err = run("import_definitions", stdin=json.dumps(document))
    assert code == 65
    assert "vhosts[1]: invalid_queue_type: the default queue type is one of classic, quorum, stream, not 'group'" in err
    assert "queues[0]: invalid arg 'x-max-priority' for queue 'q' in vhost 'typed' of queue type rabbit_quorum" in err
    assert broker.vhosts() == ["/"]


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1, max_size=8).filter(
    lambda name: not name.startswith("amq.")
)
ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"x-max-length": st.integers(0, 2**31), "x-message-ttl": st.integers(0, 2**31), "x-any": NAMES}
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    vhost=NAMES,
    queues=st.dictionaries(NAMES, ARGUMENTS, max_size=4),
    exchanges=st.dictionaries(NAMES, st.sampled_from(["direct", "fanout", "topic", "headers"]), max_size=4),
    users=st.dictionaries(NAMES, st.lists(NAMES, unique=True, max_size=2), max_size=3),
    key=NAMES,
)
def test_any_definitions_come_back(broker, run, vhost, queues, exchanges, users, key):
    """Whatever names and arguments a document has, an export after its import contains all its items (CM-218)."""
    document = {
        "vhosts": [{"name": vhost, "metadata": {"description": key, "tags": ["t"]}, "limits": []}],
        "users": [
            {
                "name": name,
                "tags": tags,
                "password_hash": "",
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "limits": {},
            }
            for name, tags in users.items()
            if name != "guest"
        ],
        "queues": [
            {"vhost": vhost, "name": name, "durable": True, "auto_delete": False, "arguments": args, "type": "classic"}
            for name, args in queues.items()
        ],
        "exchanges": [
            {
                "vhost": vhost,
                "name": name,
                "type": kind,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for name, kind in exchanges.items()
        ],
        "bindings": [
            {
                "vhost": vhost,
                "source": source,
                "destination": queue,
                "destination_type": "queue",
                "routing_key": key,
                "arguments": {},
            }
            for source in exchanges
            for queue in queues
        ],
    }
    assert run("-q", "import_definitions", stdin=json.dumps(document))[0] == 0
    found = comparable(exported(run))
    for section, items in comparable(document).items():
        assert set(items) <= set(found.get(section, [])), section
    for name in users:
        if name != "guest":
            run("-q", "delete_user", "--", name)
    run("-q", "delete_vhost", "--", vhost)
