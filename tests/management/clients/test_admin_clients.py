"""Two programs written for RabbitMQ's HTTP API work with warren as they are: Celery's monitor Flower, and the client
library pyrabbit2.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import subprocess
import sys

import pytest

from ..conftest import until

pyrabbit2 = pytest.importorskip("pyrabbit2.api", reason="pyrabbit2 is not installed")


@contextlib.contextmanager
def flower(broker, api, folder):
    """Run Flower with this broker and yield `page(path)`, which fetches a page of Flower, or "" while it does not
    answer.
    """
    pytest.importorskip("flower", reason="Flower is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-P", "-m", "celery", f"--broker=amqp://guest:guest@127.0.0.1:{broker.port}//", "flower"]
    command += [f"--broker-api=http://guest:guest@127.0.0.1:{api.port}/api/", f"--port={port}", "--address=127.0.0.1"]
    with (folder / "flower.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)

    def page(path):
        assert process.poll() is None, (folder / "flower.log").read_text()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == 200 else ""
        except ConnectionRefusedError:
            return ""
        finally:
            connection.close()

    try:
        yield page
    finally:
        process.terminate()
        process.wait(30)


def test_flower_shows_the_queue_of_celery(broker, api, tmp_path):
    """Flower's page of the broker lists a queue with the numbers of its messages (CM-320)."""
    api("PUT", "/api/queues/%2F/celery", {"durable": True})
    for number in range(3):
        message = {"properties": {}, "routing_key": "celery", "payload": str(number), "payload_encoding": "string"}
        assert api("POST", "/api/exchanges/%2F/amq.default/publish", message) == (200, {"routed": True})

    def row(text):
        cells = re.findall(r"<td[^>]*>([^<]*)</td>", text)
        return cells[:4]

    with flower(broker, api, tmp_path) as page:
        until(lambda: row(page("/broker")), lambda cells: cells == ["celery", "3", "0", "3"])
    api("DELETE", "/api/queues/%2F/celery")


def test_pyrabbit2_declares_publishes_gets_and_deletes(api):
    """pyrabbit2 does its whole work through the API, from a virtual host to messages and users (CM-231, CM-238,
    CM-320).
    """
    client = pyrabbit2.Client(f"127.0.0.1:{api.port}", "guest", "guest")
    assert client.is_alive()
    client.create_vhost("shop")
    client.set_vhost_permissions("shop", "guest", ".*", ".*", ".*")
    assert sorted(client.get_vhost_names()) == ["/", "shop"]
    client.create_exchange("shop", "events", "topic")
    client.create_queue("shop", "orders")
    client.create_binding("shop", "events", "orders", "order.#")
    assert client.publish("shop", "events", "order.new", "hello")
    (message,) = client.get_messages("shop", "orders")
    assert (message["payload"], message["routing_key"]) == ("hello", "order.new")
    assert [queue["name"] for queue in client.get_queues("shop")] == ["orders"]
    client.purge_queue("shop", "orders")
    client.delete_queue("shop", "orders")
    client.delete_exchange("shop", "events")
    client.create_user("watcher", "secret", "monitoring")
    assert {user["name"] for user in client.get_users()} == {"guest", "watcher"}
    with pytest.raises(pyrabbit2.http.HTTPError, match="Object Not Found"):
        client.get_queue("shop", "orders")
    client.delete_user("watcher")
    client.delete_vhost("shop")
    assert client.get_vhost_names() == ["/"]
