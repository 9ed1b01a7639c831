"""RabbitMQ 3.10's own `rabbitmqadmin`, unchanged, works with warren, and so does `warrenadmin`, which warren offers.

The tests run the former from an installed RabbitMQ, because its licence keeps it out of this tree, and the latter as it
is downloaded.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PLACES = "/usr/lib/rabbitmq/lib/*/plugins/rabbitmq_management-3.10.*/priv/www/cli/rabbitmqadmin"


@pytest.fixture(scope="module", params=["rabbitmqadmin", "warrenadmin"])
def admin(api, request, tmp_path_factory):
    if request.param == "rabbitmqadmin":
        found = sorted(Path("/").glob(PLACES.removeprefix("/")))
        if not found:
            pytest.skip(f"no RabbitMQ 3.10 is installed: there is no {PLACES}")
        script = found[-1]
    else:
        script = tmp_path_factory.mktemp("download") / "warrenadmin"
        status, text = api.raw("GET", "/cli/warrenadmin")
        assert status == 200
        script.write_bytes(text)

    def admin(*arguments, code=0):
        # Without the paths of this program: the script must not need any package.
        command = [sys.executable, "-I", str(script), "-P", str(api.port), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    return admin


def listed(admin, *arguments):
    return json.loads(admin("-f", "raw_json", *arguments))


def test_it_declares_publishes_gets_and_deletes(admin, tmp_path):
    """`rabbitmqadmin` declares, binds, publishes, gets, purges, exports, imports and deletes (CM-233, CM-239, CM-294,
    CM-320).
    """
    admin("declare", "queue", "name=orders", "durable=true", 'arguments={"x-max-length": 10}')
    admin("declare", "exchange", "name=ex", "type=topic")
    admin("declare", "binding", "source=ex", "destination=orders", "routing_key=a.#")
    published = admin("publish", "exchange=ex", "routing_key=a.b", "payload=hello", 'properties={"delivery_mode":2}')
    assert "Message published" in published and "NOT" not in published
    assert "NOT routed" in admin("publish", "routing_key=nosuch", "payload=x")
    (message,) = listed(admin, "get", "queue=orders", "ackmode=ack_requeue_true", "count=1")
    assert (message["payload"], message["exchange"], message["properties"]) == ("hello", "ex", {"delivery_mode": 2})
    assert [row["name"] for row in listed(admin, "list", "queues") if row["durable"]] == ["orders"]
    assert "orders" in admin("list", "queues", "vhost", "name", "messages")
    admin("purge", "queue", "name=orders")
    file = tmp_path / "definitions.json"
    admin("export", str(file))
    assert [row["name"] for row in json.loads(file.read_text())["queues"] if row["durable"]] == ["orders"]
    admin("delete", "binding", "source=ex", "destination_type=queue", "destination=orders", "properties_key=a.%23")
    admin("delete", "queue", "name=orders")
    admin("import", str(file))
    assert [row["source"] for row in listed(admin, "list", "bindings") if row["source"]] == ["ex"]
    assert "Not found" in admin("delete", "queue", "name=nosuch", code=1)


def test_an_export_that_is_refused_leaves_the_file_alone(admin, tmp_path):
    """The file may be the only backup of the definitions."""
    file = tmp_path / "definitions.json"
    file.write_text("{}")
    admin("-p", "wrong", "export", str(file), code=1)
    assert file.read_text() == "{}"


def test_it_shows_everything(admin):
    """`rabbitmqadmin` lists every kind of object, shows the overview, and reports a wrong password (CM-320)."""
    for kind in ("users", "vhosts", "connections", "channels", "consumers", "nodes", "parameters", "policies"):
        admin("list", kind)
    assert "3.10.8" in admin("show", "overview")
    assert "Access refused" in admin("-u", "guest", "-p", "wrong", "list", "queues", code=1)


def test_it_declares_every_kind_of_object(admin):
    """Both scripts take the same words for every kind of object (CM-225, CM-320)."""
    admin("declare", "vhost", "name=shop")
    admin("declare", "user", "name=anna", "password=pw", "tags=management")
    admin("declare", "permission", "vhost=shop", "user=anna", "configure=.*", "write=.*", "read=.*")
    admin("-V", "shop", "declare", "policy", "name=p", "pattern=^a", 'definition={"max-length": 3}', "priority=2")
    admin("-V", "shop", "declare", "operator_policy", "name=o", "pattern=^a", 'definition={"expires": 60000}')
    admin("declare", "vhost_limit", "vhost=shop", "name=max-queues", "value=7")
    admin("-V", "shop", "declare", "queue", "name=a", "queue_type=quorum", "durable=true")
    admin("-V", "shop", "declare", "exchange", "name=x", "type=fanout")
    admin("-V", "shop", "declare", "binding", "source=amq.direct", "destination_type=exchange", "destination=x")
    (queue,) = [row for row in listed(admin, "-V", "shop", "list", "queues") if row["vhost"] == "shop"]
    assert (queue["type"], queue["policy"], queue["operator_policy"]) == ("quorum", "p", "o")
    assert listed(admin, "list", "vhost_limits") == [{"vhost": "shop", "value": {"max-queues": 7}}]
    found = listed(admin, "-V", "shop", "list", "bindings")
    assert ("amq.direct", "x") in {(row["source"], row["destination"]) for row in found}
    for words in (
        ("-V", "shop", "delete", "binding", "source=amq.direct", "destination_type=exchange", "destination=x"),
        ("-V", "shop", "delete", "exchange", "name=x"),
        ("-V", "shop", "delete", "queue", "name=a"),
        ("delete", "vhost_limit", "vhost=shop", "name=max-queues"),
        ("-V", "shop", "delete", "operator_policy", "name=o"),
        ("-V", "shop", "delete", "policy", "name=p"),
        ("delete", "permission", "vhost=shop", "user=anna"),
        ("delete", "user", "name=anna"),
        ("delete", "vhost", "name=shop"),
    ):
        admin(*words)
    assert [row["name"] for row in listed(admin, "list", "vhosts")] == ["/"]


def test_the_formats_of_lists(admin):
    """Lists come as a table, with tabs, one field a line, and as NAME="VALUE" (CM-320)."""
    admin("declare", "queue", "name=a b", "durable=false")
    for name, wanted in (
        ("table", "| a b "),
        ("tsv", "\ta b"),
        ("kvp", 'name="a b"'),
        ("long", "name: a b"),
        ("pretty_json", '"name": "a b"'),
    ):
        text = admin("-f", name, "list", "queues", "vhost", "name")
        assert wanted in text, name
    admin("delete", "queue", "name=a b")
    assert "No items" in admin("list", "channels")


@pytest.mark.parametrize("admin", ["warrenadmin"], indirect=True)
def test_control_characters_in_a_name_do_not_reach_the_terminal(admin, api):
    """Whoever may declare a queue chooses its name, and a terminal obeys the control characters in it (CM-32)."""
    assert api("PUT", "/api/queues/%2F/red%1B%5B31m", {})[0] == 201
    shown = admin("-f", "tsv", "list", "queues", "name")
    assert api("DELETE", "/api/queues/%2F/red%1B%5B31m")[0] == 204
    assert "red\\x1b[31m" in shown.splitlines()


def test_what_warrenadmin_says_of_a_wrong_command_line(admin, request):
    """A wrong command line is refused with exit code 2 and what is wrong with it, and a broker that does not answer
    with 1 (CM-225).
    """
    if request.node.callspec.params["admin"] != "warrenadmin":
        pytest.skip("the other script has other words")
    for words, text in (
        (("list", "things"), "expected one of connections,"),
        (("declare", "queue", "name"), "'name' is no NAME=VALUE"),
        (("declare", "queue", "durable=true"), "name=… is missing"),
        (("declare", "queue", "name=q", "arguments={"), "the value of 'arguments' is no JSON: {"),
        (("export",), "export needs the name of a file"),
        (("fly",), "invalid choice: 'fly'"),
    ):
        assert text in admin(*words, code=2)
    assert "cannot be reached" in admin("-P", "1", "list", "queues", code=1)
    assert "copied to any machine" in admin("--help")
