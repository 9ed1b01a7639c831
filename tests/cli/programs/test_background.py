"""`warren start --background`, as an operator uses it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from warren import Broker
from warren.cli.node_client import NodeFailure, Target
from warren.cli.programs import background

WARREN = Path(sys.executable).with_name("warren")


def warren(*arguments):
    return subprocess.run([WARREN, *arguments], capture_output=True, text=True, timeout=300, cwd="/")


@pytest.mark.parametrize("place", [[], ["--in-memory"]], ids=["on disk", "in memory"])
def test_it_returns_when_the_broker_accepts_connections(home, place):
    """`start --background` returns when the broker accepts connections, and says where it listens, logs and keeps its
    messages; `rotate_logs` opens a renamed log again (CM-35, CM-55, CM-427).
    """
    started = warren("start", "--background", "--port", "0", "--node", "mine", *place)
    try:
        assert (started.returncode, started.stderr) == (0, "")
        facts = json.loads(warren("-n", "mine@localhost", "status", "--formatter", "json").stdout)
        log = home / ".local" / "state" / "warren" / "mine@localhost.log"
        port = facts["listeners"][0]["port"]
        kept = home / ".local" / "share" / "warren" / "mine@localhost"
        messages = "in memory: they are lost when the broker stops" if place else str(kept)
        assert started.stdout == (
            f"mine@localhost runs in the background as process {facts['pid']}; its log is {log}\n"
            f"  AMQP 0-9-1    127.0.0.1:{port}\n"
            f"  messages      {messages}\n"
            "  stop          warren stop --node mine@localhost\n"
        )
        assert port > 0
        assert facts["log_files"] == [str(log)]
        # logrotate renames the file and then has the program open it again.
        log.rename(home / "old.log")
        assert warren("-n", "mine", "rotate_logs").stdout.endswith("Reopened 1 log file.\n")
    finally:
        stopped = warren("-n", "mine@localhost", "stop")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert warren("-n", "mine", "ping").returncode == 69
    assert "stopped" in log.read_text()
    assert "stopped" not in (home / "old.log").read_text()


def test_the_command_that_stops_it_finds_it(home, tmp_path):
    """The command for stopping that `start --background` prints works when a person copies it into a shell."""
    place = tmp_path / "a place"
    started = warren("start", "--background", "--port", "0", "--no-management", "--data-dir", str(place))
    (line,) = [line for line in started.stdout.splitlines() if line.startswith("  stop ")]
    words = shlex.split(line)[1:]
    assert words == ["warren", "stop", "--data-dir", str(place)]
    assert warren(*words[1:]).returncode == 0
    assert warren("--data-dir", str(place), "ping").returncode == 69


def test_it_warns_of_an_alarm(home, tmp_path):
    """`start --background` warns of an alarm, because otherwise clients would find that they cannot publish, and nobody
    would know why.
    """
    config = tmp_path / "config.toml"
    config.write_text('disk_free_limit = "1000000GB"')
    started = warren("start", "--background", "--port", "0", "--node", "mine", "--config", str(config))
    try:
        assert started.returncode == 0
        assert started.stderr == (
            "Warning: Free disk space alarm on node mine@localhost: publishers are blocked. 'warren status' shows what "
            "is in use, and the limit\n"
        )
    finally:
        warren("-n", "mine@localhost", "stop")


def test_a_node_that_ends_while_it_is_asked_has_not_started(monkeypatch):
    """A node that answers once and then ends, because its port is taken, has not started."""

    class Ending:
        def __init__(self, target):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def call(self, operation, **arguments):
            raise NodeFailure("unavailable", "the process that performs this has ended", [])

    monkeypatch.setattr(background, "NodeClient", Ending)
    assert not background._has_started(Target("warren@test"), 1)


def test_a_broker_that_cannot_start_shows_why(tmp_path):
    """A broker that cannot start has `start --detached` print the reason, without a traceback (CM-35)."""
    with Broker() as other:
        result = warren("start", "--detached", "--port", str(other.port), "--log-file", str(tmp_path / "log"))
    assert (result.returncode, result.stdout) == (70, "")
    assert "the port is in use" in result.stderr
    assert "Traceback" not in result.stderr
