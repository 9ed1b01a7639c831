"""RabbitMQ 3.10's own `rabbitmqadmin`, unchanged, works with warren. The tests run it from an installed RabbitMQ,
because its licence keeps it out of this tree.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PLACES = "/usr/lib/rabbitmq/lib/*/plugins/rabbitmq_management-3.10.*/priv/www/cli/rabbitmqadmin"


@pytest.fixture(scope="module")
def admin(api):
    found = sorted(Path("/").glob(PLACES.removeprefix("/")))
    if not found:
        pytest.skip(f"no RabbitMQ 3.10 is installed: there is no {PLACES}")

    def admin(*arguments, code=0):
        command = [sys.executable, str(found[-1]), "-P", str(api.port), *arguments]
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


def test_it_shows_everything(admin):
    """`rabbitmqadmin` lists every kind of object, shows the overview, and reports a wrong password (CM-320)."""
    for kind in ("users", "vhosts", "connections", "channels", "consumers", "nodes", "parameters", "policies"):
        admin("list", kind)
    assert "3.10.8" in admin("show", "overview")
    assert "Access refused" in admin("-u", "guest", "-p", "wrong", "list", "queues", code=1)
