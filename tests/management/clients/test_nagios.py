"""The checks for Nagios from the Debian package nagios-plugins-rabbitmq work with warren as they are."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ..conftest import ports, until

pytestmark = pytest.mark.skipif(
    shutil.which("check_rabbitmq_overview") is None, reason="needs the Debian package nagios-plugins-rabbitmq"
)

#: The exit codes by which a check tells Nagios its result.
OK, CRITICAL, UNKNOWN = 0, 2, 3


@pytest.fixture
def check(broker):
    """`check(name, *options)` runs a check, and returns its exit code and its line."""

    def run(name, *options, password="guest"):
        place = ["-H", "127.0.0.1", "--port", str(ports(broker)["http"]), "-u", "guest", "-p", password]
        found = subprocess.run(
            [f"check_rabbitmq_{name}", *place, *options], capture_output=True, text=True, timeout=300, check=False
        )
        return found.returncode, found.stdout.strip()

    return run


def test_the_checks_of_a_healthy_broker(check, broker, api):
    """Each check of a healthy broker exits with 0, and the check of a queue gives the queue's message counts (CM-311,
    CM-320).
    """
    broker.declare_queue("watched")
    for _ in range(3):
        broker.publish(b"x", "watched")
    until(lambda: api.get("/api/queues/%2F/watched").get("messages"), (3).__eq__)
    assert check("aliveness") == (OK, "RABBITMQ_ALIVENESS OK - vhost: /")
    assert check("connections")[0] == OK
    assert check("objects")[0] == OK
    code, line = check("queue", "--queue", "watched")
    assert code == OK and "messages OK (3) messages_ready OK (3) messages_unacknowledged OK (0)" in line
    broker.delete_queue("watched")


def test_a_backlog_above_the_limit_is_critical(check, broker, api):
    """A queue with more messages than the critical limit makes the check exit with 2, so that Nagios alerts
    (CM-320).
    """
    broker.declare_queue("behind")
    for _ in range(3):
        broker.publish(b"x", "behind")
    until(lambda: api.get("/api/queues/%2F/behind").get("messages"), (3).__eq__)
    code, line = check("queue", "--queue", "behind", "-w", "1,1,1", "-c", "2,2,2")
    assert code == CRITICAL and "messages CRITICAL (3)" in line
    broker.delete_queue("behind")


def test_what_is_wrong_is_named(check):
    code, line = check("queue", "--queue", "nosuch")
    assert code == CRITICAL and "Not Found" in line
    code, line = check("aliveness", password="wrong")
    assert code == UNKNOWN and "Access refused" in line
