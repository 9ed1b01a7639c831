"""Commands with which an operator finds out what is wrong with a node, and repairs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pika
import pytest
from thespian.actors import ActorExitRequest

from warren import Broker
from warren.actors.node.operations.observing.bottlenecks import chain, verdict
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.cli.main import NOT_OFFERED, main


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "node"


@pytest.fixture
def broker(directory):
    with Broker(port=0, control_dir=str(directory / "control"), data_dir=str(directory)) as broker:
        yield broker


@pytest.fixture
def run(monkeypatch, capfd, directory):
    """`run(*arguments)` runs a command in this process, and returns its exit code, its output and its error text."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["warren", "--data-dir", str(directory), *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return end.value.code, out, err

    return run


# -- virtual hosts --


def test_a_virtual_host_that_failed_is_started_again(broker, run):
    """`restart_vhost` starts a virtual host that is down, and its messages on disk are there again (CM-109)."""
    broker.declare_queue("q", durable=True)
    broker.publish(b"kept", "q", delivery_mode=2)
    base = broker._node._base

    def fail():
        (supervisor,) = [
            cell.address for cell in base.cells.values() if isinstance(getattr(cell, "actor", None), VhostSupervisor)
        ]
        base.enqueue(supervisor, supervisor, ActorExitRequest())

    base.call(fail)
    while broker.queue("q").state != "stopped":
        broker.wait_idle()
    banner = "Trying to restart vhost '/' on node 'warren@localhost' ...\n"
    assert run("restart_vhost") == (0, f"{banner}Successfully restarted vhost '/' on node 'warren@localhost'\n", "")
    assert broker.get("q").body == b"kept"
    assert run("restart_vhost") == (0, f"{banner}Vhost '/' is already running on node 'warren@localhost'\n", "")


def test_a_virtual_host_that_does_not_exist_is_not_restarted(broker, run):
    code, _, err = run("restart_vhost", "-p", "nope")
    assert (code, err) == (70, "Error:\nFailed to start vhost 'nope'. Reason: {:no_such_vhost, \"nope\"}\n")


# -- the node --


def test_wait_returns_when_the_node_serves_clients(broker, run, tmp_path):
    """`wait` returns when the process of the pid file, or of `--pid`, serves clients (CM-44)."""
    pidfile = tmp_path / "warren.pid"
    pidfile.write_text(f"{os.getpid()}\n")
    code, out, err = run("wait", str(pidfile))
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [f"Waiting for pid file '{pidfile}' to appear", f"pid is {os.getpid()}"]
    assert run("-q", "wait", "--pid", str(os.getpid())) == (0, "", "")


def test_wait_ends_with_the_process_of_the_node(run):
    """`wait` fails when the process has ended (CM-44)."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    code, _, err = run("wait", "--pid", str(ended.pid))
    assert (code, err) == (69, "Error: process_not_running\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((), "No pid or pidfile specified"), (("file", "-P", "1"), "Cannot specify both pid and pidfile")],
)
def test_wait_needs_one_of_pid_and_pidfile(run, arguments, text):
    """`wait` needs either a pid file or `--pid` (CM-44)."""
    code, _, err = run("wait", *arguments)
    assert code == 64 and text in err


def test_wait_gives_up(run, tmp_path):
    """`wait` gives up after `--timeout` with exit code 75 (CM-18, CM-44)."""
    code, _, err = run("-t", "0", "wait", str(tmp_path / "none"))
    place = f"node in '{tmp_path / 'node'}'"
    assert (code, err) == (75, f"Error: operation wait on {place} timed out. Timeout value used: 0\n")


def test_garbage_is_collected(broker, run):
    """`force_gc` prints how many bytes it has freed (CM-56)."""
    code, out, err = run("-q", "force_gc")
    assert (code, err) == (0, "") and out.endswith(" bytes were freed\n")


def test_the_deprecated_health_check(broker, run):
    """`node_health_check` says that it is deprecated, and fails while an alarm is on (CM-205)."""
    code, out, err = run("-q", "node_health_check")
    assert (code, out) == (0, "Health check passed\n") and "DEPRECATED" in err
    broker.set_alarm("memory", True)
    code, out, err = run("-q", "node_health_check")
    assert (code, out) == (69, "") and "Memory alarm on node warren@localhost" in err


def test_logins_are_counted(broker, run):
    """Logins are counted by protocol, and by address and user with `--by-source` (CM-149)."""
    url = pika.URLParameters(broker.url)
    pika.BlockingConnection(url).close()
    url.credentials = pika.PlainCredentials("mallory", "guess")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(url)
    columns = "protocol\tauth_attempts\tauth_attempts_failed\tauth_attempts_succeeded"
    assert run("-q", "list_node_auth_attempt_stats")[1].splitlines() == [columns, "amqp091\t2\t1\t1"]
    code, out, _ = run("list_node_auth_attempt_stats", "--by-source", "--formatter", "json")
    found = {(row["remote_address"], row["username"]): row["auth_attempts_failed"] for row in json.loads(out)}
    assert (code, found) == (0, {("127.0.0.1", "guest"): 0, ("127.0.0.1", "mallory"): 1})


@pytest.mark.parametrize("command", sorted(NOT_OFFERED))
def test_what_is_not_offered_names_the_way_out(run, command):
    """A command of RabbitMQ that warren does not have is exit code 64, and the error says what to use instead (CM-150,
    CM-172, CM-173, CM-187, CM-189, CM-202, CM-205).
    """
    code, out, err = run(command, "x")
    assert (code, out) == (64, "")
    assert f"warren has no command '{command}': {NOT_OFFERED[command]}" in " ".join(err.split())


# -- flow --


def test_the_chain_of_a_connection(broker, run):
    """`flow_chain` shows the stages of each connection, or of the one that is named (CM-206, FC-67)."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel()
    code, out, _ = run("-q", "flow_chain", "--formatter", "json")
    stages = json.loads(out)
    assert (code, [stage["stage"] for stage in stages]) == (0, ["connection", "channel"])
    assert {stage["state"] for stage in stages} == {"running"} and not any(stage["bottleneck"] for stage in stages)
    name = stages[0]["name"]
    assert run("flow_chain", "--connection", name)[1].splitlines() == [
        f"connection {name}: running",
        "  channel 1: running",
    ]
    code, _, err = run("flow_chain", "--connection", "nope")
    assert (code, err) == (65, "Error:\nthere is no connection 'nope' on this node\n")
    connection.close()


@pytest.mark.parametrize(("queue_blocked_by", "slow"), [((), ("queue", "orders")), (("journal",), ("disk", "journal"))])
def test_the_stage_that_is_too_slow_is_marked(queue_blocked_by, slow):
    """The stage that makes the others wait is marked as the bottleneck, be it a queue or the disk (CM-206)."""
    common = {"state": "flow", "blocked_share": 0.8}
    connection = {
        **common,
        "name": "a -> b",
        "user": "guest",
        "vhost": "/",
        "alarms": (),
        "pauses": (),
        "blocked_by": ("channel 1",),
    }
    channels = [
        {**common, "number": 1, "blocked_by": ("orders",)},
        {"number": 2, "state": "running", "blocked_share": 0.0, "blocked_by": ()},
    ]
    queue = {**common, "name": "orders", "blocked_by": queue_blocked_by}
    found = verdict(connection, channels, {"orders": queue}.get, "warren@a")
    rows = chain(connection, channels, [queue], found)
    assert [(row["stage"], row["name"]) for row in rows if row["bottleneck"]] == [slow]
    assert [row["name"] for row in rows[:4]] == ["a -> b", "1", "2", "orders"]


# -- definitions at the start --


DOCUMENT = {
    "users": [{"name": "ops", "password": "secret", "tags": "administrator"}],
    "vhosts": [{"name": "/"}],
    "permissions": [{"user": "ops", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
    "queues": [{"name": "orders", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}],
}


def test_definitions_are_loaded_before_clients_can_connect(directory, tmp_path):
    """The definitions of the setting `load_definitions` are loaded at each start before the listeners open. A new node
    then has the users of the file, and no `guest` (CM-220).
    """
    files = tmp_path / "definitions"
    files.mkdir()
    (files / "all.json").write_text(json.dumps(DOCUMENT))
    (files / "README").write_text("not loaded")
    for _ in range(2):
        with Broker(port=0, data_dir=str(directory), load_definitions=str(files)) as broker:
            assert [queue.name for queue in broker.queues()] == ["orders"]
            url = broker.url.replace("guest:guest", "ops:secret")
            pika.BlockingConnection(pika.URLParameters(url)).close()
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                pika.BlockingConnection(pika.URLParameters(broker.url))
            broker.delete_queue("orders")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "has no JSON object"),
        ('{"users": [{"name": "u", "password": "a", "password_hash": "b"}]}', "either 'password' or 'password_hash'"),
        ('{"queues": [{"name": "q", "vhost": "nope"}]}', "The definitions are wrong"),
    ],
)
def test_a_node_does_not_start_with_wrong_definitions(tmp_path, text, error):
    path = tmp_path / "definitions.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Exception, match=f"(?s)setting 'load_definitions': .*{error}"):
        Broker(port=0, load_definitions=str(path)).start()
