"""The log of `warren start`: its format, files and levels, and that it contains no secrets."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pika
import pika.exceptions
import pytest

WARREN = Path(sys.executable).with_name("warren")

#: Seconds that a test waits for the broker to write a line.
WAIT = 300.0


class Node:
    """A broker in the background, whose log is `path`."""

    def __init__(self, directory, *options):
        self.directory = directory
        self.path = directory.parent / "broker.log"
        started = self("start", "--background", "--port", "0", "--log-file", str(self.path), *options)
        assert started.returncode == 0, started.stderr
        facts = json.loads(self("status", "--formatter", "json").stdout)
        self.pid, self.port = facts["pid"], facts["listeners"][0]["port"]

    def __call__(self, *arguments, text=""):
        words = [str(WARREN), *arguments, "--data-dir", str(self.directory)]
        return subprocess.run(words, input=text, capture_output=True, text=True, timeout=300, cwd="/")

    def connect(self, user="guest", password="guest"):
        login = pika.PlainCredentials(user, password)
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, credentials=login)).close()

    def until_reopened(self):
        """Have the broker write lines until the new file exists: it may handle the signal only after the
        first of them.
        """
        end = time.monotonic() + WAIT
        while not self.path.exists():
            assert time.monotonic() < end, "no log after SIGHUP"
            self.connect()

    def lines(self, wanted, path=None):
        """Wait until a line of the log contains `wanted`, and return all lines."""
        end = time.monotonic() + WAIT
        while wanted not in (text := (path or self.path).read_text() if (path or self.path).exists() else ""):
            assert time.monotonic() < end, text
            time.sleep(0.02)
        return text.splitlines()


@pytest.fixture
def start(tmp_path):
    nodes = []

    def start(*options):
        nodes.append(Node(tmp_path / "node", *options))
        return nodes[-1]

    yield start
    for node in nodes:
        node("stop", "--idempotent")


def test_json_levels_and_a_signal(start):
    """The log can be JSON, SIGHUP reopens its file as logrotate requires, and the level of a category can be changed
    (CM-186).
    """
    node = start("--log-format", "json")
    node.connect()
    lines = node.lines("opened by")
    opened = next(json.loads(line) for line in lines if "opened by" in line)
    assert (opened["level"], opened["domain"]) == ("info", "warren.connection")
    assert opened["msg"].endswith("opened by 'guest' on vhost '/'")
    old = node.path.with_name("old.log")
    node.path.rename(old)
    os.kill(node.pid, signal.SIGHUP)
    node.until_reopened()
    node.connect()
    assert node("ping").returncode == 0
    assert "opened by" in "".join(node.lines("opened by"))
    assert node("set_log_level", "error", "--category", "connection").returncode == 0
    size = node.path.stat().st_size
    node.connect()
    assert node("set_log_level", "info", "--category", "connection").returncode == 0
    assert node.path.stat().st_size == size
    for wrong in (["loud"], ["info", "--category", "nothing"]):
        refused = node("set_log_level", *wrong)
        assert refused.returncode == 65 and "Try one of" in refused.stderr


def test_rotation_by_size(start):
    node = start("--log-rotation-size", "400", "--log-rotation-count", "2")
    for _ in range(4):
        node.connect()
    node.lines("opened by", node.path.with_name("broker.log.2"))
    found = sorted(each.name for each in node.path.parent.glob("broker.log*"))
    assert found == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all(each.stat().st_size <= 400 for each in node.path.parent.glob("broker.log.[12]"))


def test_no_secret_is_ever_in_the_log(start):
    """At the lowest level the log contains no password, whatever users and operators send, right or wrong."""
    node = start("--log-level", "debug")
    secret = "hush-hush"
    assert node("add_user", "ann", text=f"{secret}-1\n").returncode == 0
    assert node("change_password", "ann", text=f"{secret}-2\n").returncode == 0
    assert node("authenticate_user", "ann", text=f"{secret}-3\n").returncode == 65
    assert node("set_permissions", "ann", ".*", ".*", ".*").returncode == 0
    assert node("add_user", "ann", text=f"{secret}-4\n").returncode != 0
    assert node("set_global_parameter", "upstream", json.dumps(f"amqp://bob:{secret}@example.org")).returncode == 0
    assert node("set_parameter", "shovel", "name", f"{{{secret}").returncode != 0
    node.connect("ann", f"{secret}-2")
    with pytest.raises(pika.exceptions.AMQPError):
        node.connect("ann", f"{secret}-wrong")
    node.lines("refused")
    assert node("stop").returncode == 0
    assert secret not in node.path.read_text()


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--log-rotation-size", "big", "setting 'log_rotation_size' is 'big'"),
        ("--log-rotation-count", "-1", "setting 'log_rotation_count' is -1"),
        ("--log-file", "/nowhere/broker.log", "cannot write '/nowhere/broker.log'"),
    ],
)
def test_wrong_settings(option, value, reason):
    done = subprocess.run([str(WARREN), "start", option, value], capture_output=True, text=True, timeout=300)
    assert done.returncode == 78 and reason in done.stderr
