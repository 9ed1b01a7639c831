"""The commands of `rabbitmq-diagnostics`: checks with their exit codes, and the streams of events and of the log."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from thespian.actors import ActorExitRequest

from warren import Broker
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.cli import failure
from warren.cli.main import main
from warren.version import __version__

WARREN = Path(sys.executable).with_name("warren")
NODE = "warren@localhost"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "node"


@pytest.fixture
def broker(directory):
    with Broker(port=0, control_dir=str(directory / "control"), data_dir=str(directory)) as broker:
        yield broker


@pytest.fixture
def run(monkeypatch, capfd, directory):
    """`run(*arguments)` runs a command in this process, and returns its exit code, lines of output and error text."""

    def run(*arguments, quiet=True):
        words = ["warren", *(["-q"] if quiet else []), "--data-dir", str(directory), *arguments]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return end.value.code, out.splitlines(), err

    return run


def document(run, *arguments):
    """The JSON document that the command prints."""
    code, lines, err = run(*arguments, "--formatter", "json")
    assert (code, err) == (0, "")
    return json.loads("\n".join(lines))


HEALTHY = {
    "check_running": (
        f"Checking if RabbitMQ is running on node {NODE} ...",
        f"RabbitMQ on node {NODE} is fully booted and running",
    ),
    "is_running": (f"Asking node {NODE} for its status ...", f"RabbitMQ on node {NODE} is fully booted and running"),
    "is_booting": (
        f"Asking node {NODE} for its boot status ...",
        f"RabbitMQ on node {NODE} is fully booted (check with is_running), stopped or has not started booting yet",
    ),
    "check_local_alarms": (
        f"Asking node {NODE} to report any local resource alarms ...",
        f"Node {NODE} reported no local alarms",
    ),
    "check_alarms": (
        f"Asking node {NODE} to report any local resource alarms ...",
        f"Node {NODE} reported no alarms, local or clusterwide",
    ),
    "alarms": (
        f"Asking node {NODE} to report any known resource alarms ...",
        f"Node {NODE} reported no alarms, local or clusterwide",
    ),
    "check_virtual_hosts": (
        f"Checking if all vhosts are running on node {NODE} ...",
        f"Node {NODE} reported all vhosts as running",
    ),
    "check_if_node_is_quorum_critical": (
        f"Checking if node {NODE} is critical for quorum of any quorum queues ...",
        f"Node {NODE} seems to be the only one in a single node cluster, the check does not apply",
    ),
    "check_if_node_is_mirror_sync_critical": (
        f"Checking if node {NODE} is critical for data safety of any classic mirrored queues ...",
        f"Node {NODE} seems to be the only one in a single node cluster, the check does not apply",
    ),
    "check_protocol_listener AMQP-0-9-1": (
        f"Asking node {NODE} if there's an active listener for protocol AMQP-0-9-1 ...",
        f"A listener for protocol amqp is running on node {NODE}.",
    ),
}


def test_a_healthy_node(broker, run):
    """On a healthy node every check succeeds with RabbitMQ's texts (CM-190 to CM-198, CM-200)."""
    for command, lines in HEALTHY.items():
        assert run(*command.split(), quiet=False) == (0, list(lines), ""), command
    port = broker.port
    assert run("check_port_listener", str(port)) == (0, [f"A listener for port {port} is running on node {NODE}."], "")
    assert run("check_port_connectivity") == (0, [f"Successfully connected to ports {port} on node {NODE}."], "")
    line = f"Interface: 127.0.0.1, port: {port}, protocol: amqp, purpose: AMQP 0-9-1"
    assert run("listeners") == (0, [line], "")
    assert document(run, "is_running")["result"] is True and document(run, "is_booting")["result"] is False
    assert document(run, "check_local_alarms")["result"] == "ok"
    assert document(run, "alarms")["alarms"] == []
    assert document(run, "listeners")["listeners"][0]["port"] == port


def test_a_node_without_mirrored_queues_awaits_no_mirror(broker, run):
    """On a node without mirrored queues `await_online_synchronized_mirror` returns at once (CM-47)."""
    assert run("await_online_synchronized_mirror") == (0, [], "")


def test_alarms(broker, run):
    """While an alarm is on, the checks fail and name it, and `alarms` lists it and succeeds (CM-192 to CM-194)."""
    broker.set_alarm("memory", True)
    broker.set_alarm("disk", True)
    lines = [f"Free disk space alarm on node {NODE}", f"Memory alarm on node {NODE}"]
    for command in ("check_local_alarms", "check_alarms"):
        assert run(command) == (69, [], "Error:\n" + "\n".join(lines) + "\n")
        code, out, err = run(command, "--formatter", "json")
        assert (code, out) == (69, [])
        assert json.loads(err)["local"] == lines and json.loads(err)["result"] == "error"
    assert run("alarms") == (0, lines, "")
    assert document(run, "alarms")["local"] == lines


def test_listeners_that_are_missing(broker, run):
    """The check of a listener that is missing fails, and names the listeners that there are (CM-195 to CM-197)."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    code, out, err = run("check_port_listener", str(port))
    assert (code, out) == (69, [])
    assert err == (
        f"Error:\nNo listener for port {port} is active on node {NODE}. "
        f"Found listeners that use the following ports: {broker.port}\n"
    )
    for wrong in ("abc", "0", "-1", "1.5"):
        code, out, err = run("check_port_listener", "--", wrong)
        assert code == 65
        assert err.startswith("Error (argument validation): Bad argument: Argument must be a positive integer\n")
    code, out, err = run("check_protocol_listener", "mqtt")
    assert (code, out) == (69, [])
    assert err == (
        f"Error:\nNo listener for protocol mqtt is active on node {NODE}. "
        "Found listeners for the following protocols: amqp\n"
    )
    # No process listens at this address of the loopback network.
    code, out, err = run("check_port_connectivity", "--host", "127.9.9.9")
    assert code == 69 and f"{broker.port} (127.9.9.9: Connection refused)" in err


def test_a_virtual_host_that_is_down(broker, run):
    """The check of virtual hosts fails when one is down, and names it (CM-198)."""
    broker.create_vhost("orders")
    base = broker._node._base

    def fail():
        cells = base.cells.values()
        newest = [cell.address for cell in cells if isinstance(getattr(cell, "actor", None), VhostSupervisor)][-1]
        base.enqueue(newest, newest, ActorExitRequest())

    base.call(fail)
    broker.wait_idle()
    code, out, err = run("check_virtual_hosts")
    assert (code, out) == (69, [])
    assert err == f"Error:\nSome virtual hosts on node {NODE} are down:\norders\n"


def test_no_node(run):
    """Without a node every check is exit code 69 (CM-190)."""
    for command in ("check_running", "check_alarms", "listeners", "report", "cluster_status"):
        assert run(command)[0] == failure.EX_UNAVAILABLE


def test_cluster_status(broker, run):
    """`cluster_status` of a node without a cluster has all sections, and its JSON names the node (CM-62, CM-66, CM-67,
    CM-202).
    """
    code, lines, err = run("cluster_status")
    assert (code, err) == (0, "")
    titles = ["Basics", "Disk Nodes", "Running Nodes", "Versions", "Maintenance status", "Alarms"]
    titles += ["Network Partitions", "Listeners", "Feature flags"]
    assert [line for line in lines if line in titles] == titles
    assert lines[:3] == ["Basics", "", f"Cluster name: {NODE}"]
    assert f"Node: {NODE}, status: not under maintenance" in lines
    assert f"Node: {NODE}, interface: 127.0.0.1, port: {broker.port}, protocol: amqp, purpose: AMQP 0-9-1" in lines
    facts = document(run, "cluster_status")
    assert facts["disk_nodes"] == facts["running_nodes"] == [NODE] and facts["partitions"] == {}
    assert facts["versions"][NODE]["rabbitmq_version"] == "3.10.8"
    assert document(run, "server_version") == {"result": "ok", "value": "3.10.8"}
    assert run("server_version") == (0, ["3.10.8"], "")


def test_the_program(broker, run, monkeypatch):
    """The commands about the program show its environment without secrets, its command line, and its threads (CM-75,
    CM-202, CM-205).
    """
    monkeypatch.setenv("WARREN_COOKIE", "confidential")
    monkeypatch.setenv("WARREN_EXAMPLE", "shown")
    code, lines, err = run("os_env")
    assert (code, err) == (0, "")
    assert "WARREN_COOKIE=***" in lines and "WARREN_EXAMPLE=shown" in lines
    assert run("command_line_arguments")[0] == 0
    rows = document(run, "runtime_thread_stats", "--sample-interval", "0.2")
    assert len(rows) > 1 and all(0 <= row["percent"] < 150 for row in rows)


def test_a_report(broker, run, monkeypatch):
    """A report has all sections, and no password or secret (CM-75)."""
    monkeypatch.setenv("WARREN_COOKIE", "confidential")
    broker.declare_queue("orders")
    broker.add_user("ann", "confidential-2")
    code, lines, err = run("report")
    assert (code, err) == (0, "")
    for title in ("Runtime", "Application environment", "Connections", "Channels", "Queues on /", "Bindings on /"):
        assert title in lines
    assert any(line.startswith("orders\t") for line in lines)
    text = "\n".join(lines)
    assert "confidential" not in text and "default_pass\t***" in text


def test_addresses_in_a_report_have_no_passwords(broker, run):
    """The login in an address is blanked in a report (CM-75)."""
    value = '{"uri":"amqp://bob:confidential@example.org/%2F"}'
    assert run("set_global_parameter", "upstream", value)[0] == 0
    code, lines, _ = run("report")
    assert code == 0 and "amqp://***@example.org" in "\n".join(lines) and "confidential" not in "\n".join(lines)


def test_help(run):
    """`help` and `--version` print help and version without a node, and suggest the right name of a command (CM-5)."""
    code, names, err = run("help", "--list-commands")
    assert (code, err) == (0, "") and {"list_queues", "start", "check_running"} <= set(names) and names == sorted(names)
    code, lines, err = run("help", "list-queues")
    assert (code, err) == (0, "") and any("List the queues of a virtual host" in line for line in lines)
    code, _, err = run("help", "list_quees")
    assert code == 64 and "Did you mean 'list_queues'?" in err
    assert run("version") == run("--version") == (0, [__version__], "")


# -- the log and the events ---


class Follower:
    """A command that goes on printing lines until it is ended."""

    def __init__(self, directory, *arguments):
        words = [str(WARREN), "-q", *arguments, "--data-dir", str(directory)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self, wanted, provoke):
        """Call `provoke` again and again until the command prints a line that contains `wanted`, and return
        the line.
        """
        found = threading.Event()
        threading.Thread(target=self._provoke, args=(provoke, found), daemon=True).start()
        try:
            return next(line for line in self.process.stdout if wanted in line)
        finally:
            found.set()

    @staticmethod
    def _provoke(provoke, found):
        number = 0
        while not found.wait(0.1):
            provoke(number)
            number += 1

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def follow(directory):
    followers = []

    def follow(*arguments):
        followers.append(Follower(directory, *arguments))
        return followers[-1]

    yield follow
    for follower in followers:
        follower.end()


def test_the_event_stream(broker, follow, run):
    """`consume_event_stream` prints the node's events that match a pattern as JSON, one on a line (CM-204)."""
    stream = follow("consume_event_stream", "--pattern", "queue.*")
    event = json.loads(
        stream.line("queue.created", lambda number: broker.declare_queue(f"q{number}", arguments={"x-max-length": 3}))
    )
    assert event["event"] == "queue.created" and event["name"].startswith("q")
    assert event["arguments"] == {"x-max-length": 3} and isinstance(event["timestamp_in_ms"], int)
    stream.end()
    assert run("consume_event_stream", "-d", "0") == (0, [], "")
    code, _, err = run("consume_event_stream", "-d", "soon")
    assert code == 65 and "'soon' is neither a number of seconds nor infinity" in err


def test_the_log_stream(broker, follow):
    """`log_tail_stream` prints the lines of a log that goes to standard error (CM-203)."""
    stream = follow("log_tail_stream")
    assert "warren.test: hello there" in stream.line(
        "hello", lambda number: logging.getLogger("warren.test").warning("hello there")
    )


def test_the_log_of_a_node_without_a_file(broker, run):
    """A node that logs to standard error has no file for `log_tail` (CM-203)."""
    assert run("log_location") == (0, ["<stderr>"], "")
    code, out, err = run("log_tail")
    assert (code, out) == (69, []) and "--log-file" in err
    assert document(run, "log_location")["paths"] == []


def test_the_log_file(tmp_path, directory, run):
    """`log_location` names the log file, and `log_tail` prints its last lines (CM-203)."""
    log = tmp_path / "broker.log"
    words = [str(WARREN), "start", "--background", "--port", "0", "--data-dir", str(directory), "--log-file", str(log)]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    try:
        assert run("log_location") == (0, [str(log)], "")
        code, lines, err = run("log_tail", "-N", "2")
        assert (code, err) == (0, "") and lines == log.read_text().splitlines()[-2:]
        code, _, err = run("log_tail", "-N", "0")
        assert code == 65 and "1 or more" in err
    finally:
        assert run("stop")[0] == 0
