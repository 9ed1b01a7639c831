"""The commands that ask a running node: output, formatters, errors and exit codes, as rabbitmqctl 3.10 has them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pika
import pika.exceptions
import pytest

from warren import Broker
from warren.actors.queue.process import Queue
from warren.cli.main import main
from warren.cli.node_command import GENERAL_NAMES, Call
from warren.runtime.long_turn import LongTurnRecord

WARREN = Path(sys.executable).with_name("warren")


@pytest.fixture
def broker(tmp_path):
    with Broker(control_dir=str(tmp_path / "control")) as broker:
        yield broker


class Run:
    """Runs a command in this process; `code`, `out` and `err` are those of the last command."""

    def __init__(self, monkeypatch, capfd, data_dir):
        self._monkeypatch, self._capfd, self._data_dir = monkeypatch, capfd, data_dir

    def __call__(self, *arguments, data_dir=None):
        self._monkeypatch.setenv("WARREN_DATA_DIR", str(data_dir or self._data_dir))
        return self.without_place(*arguments)

    def without_place(self, *arguments):
        """Run a command without the variable that says where the node's data directory is."""
        self._monkeypatch.setattr(sys, "argv", ["warren", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        self.out, self.err = self._capfd.readouterr()
        self.code = end.value.code
        return self.code

    @property
    def lines(self):
        return self.out.splitlines()


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    return Run(monkeypatch, capfd, tmp_path)


# -- listings ---


def test_list_queues_writes_what_rabbitmqctl_writes(broker, run):
    """`list_queues` writes banner, names of columns and rows as rabbitmqctl does (CM-16, CM-25, CM-140, CM-141)."""
    broker.declare_queue("orders")
    broker.publish(b"first", "orders")
    broker.declare_queue("b")
    assert run("list_queues") == 0
    assert run.lines == [
        "Timeout: 60.0 seconds ...",
        "Listing queues for vhost / ...",
        "name\tmessages",
        "b\t0",
        "orders\t1",
    ]
    assert run.err == ""


def test_rows_are_printed_when_the_command_waits_for_more_of_them(broker, tmp_path, capfd):
    """Rows that have arrived are printed before the command waits for more, so a long listing is shown while it arrives
    (CM-140).
    """
    call = Call("list_queues", {**dict.fromkeys(GENERAL_NAMES), "data_dir": str(tmp_path)}, 30.0)
    node = call.node

    def rows():
        yield {"name": "a"}
        yield {"name": "b"}
        assert capfd.readouterr().out == ""
        assert [vhost["name"] for vhost in node.call("list_vhosts")] == ["/"]
        assert capfd.readouterr().out == "name\na\nb\n"
        yield {"name": "c"}

    call.list(("name",), rows())
    call.close()
    assert capfd.readouterr().out == "c\n"


@pytest.mark.parametrize(
    ("command", "banner"),
    [
        ("list_exchanges", "Listing exchanges for vhost / ..."),
        ("list_bindings", "Listing bindings for vhost / ..."),
        ("list_consumers", "Listing consumers in vhost / ..."),
        ("list_unresponsive_queues", "Listing unresponsive queues for vhost / ..."),
    ],
)
def test_only_list_queues_says_how_long_it_may_take(broker, run, command, banner):
    """Only `list_queues` prints the line with its time limit, as in rabbitmqctl: a script that skips the first line of
    another listing would otherwise take the banner for data (CM-16).
    """
    assert run(command) == 0
    assert run.lines[0] == banner


def test_a_queue_that_does_not_answer_is_unresponsive(broker, run, monkeypatch):
    """A queue that does not answer within `--queue-timeout` seconds is listed as unresponsive (CM-147)."""
    for name in ("hangs", "works"):
        broker.declare_queue(name)

    async def on_counts(self, sender):
        if self.row.name == "hangs":
            await self.sleep(60)
        return 0, 0

    monkeypatch.setitem(Queue._handlers, "counts", on_counts)
    assert run("-q", "list_unresponsive_queues", "name", "durable", "--queue-timeout", "0.2") == 0
    assert run.lines == ["name\tdurable", "hangs\tfalse"]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["-q"], ["name\tmessages", "orders\t1"]),
        (["--silent"], ["orders\t1"]),
        (["--no-table-headers", "-q"], ["orders\t1"]),
        (["-q", "--formatter", "csv"], ['"name","messages"', '"orders","1"']),
        (["--formatter", "csv"], ['"name","messages"', '"orders","1"']),
        (["--formatter=json"], ["[", '{"name":"orders","messages":1}', "]"]),
        (["--formatter", "json_stream"], ['{"name":"orders","messages":1}']),
        (["-q", "--formatter", "inspect"], ["[{'name': 'orders', 'messages': 1}]"]),
        (["-q", "messages", "name"], ["messages\tname", "1\torders"]),
        (["-q", "messages,name", "durable"], ["messages\tname\tdurable", "1\torders\tfalse"]),
        (["-q", "--timeout", "5", "name"], ["name", "orders"]),
    ],
)
def test_formatters_and_columns(broker, run, arguments, lines):
    """Options choose formatter, headers and banner, and words choose the columns (CM-8, CM-16, CM-25 to CM-27, CM-33,
    CM-140).
    """
    broker.declare_queue("orders")
    broker.publish(b"first", "orders")
    assert run("list_queues", *arguments) == 0
    assert run.lines == lines


def test_general_options_may_stand_before_the_command_and_hyphens_are_underscores(broker, run):
    """General options may stand before the command, and hyphens in its name are underscores (CM-1, CM-9)."""
    broker.declare_queue("orders")
    assert run("-q", "--formatter", "csv", "list-queues", "name") == 0
    assert run.lines == ['"name"', '"orders"']


def test_arguments_of_a_queue(broker, run):
    """Arguments of a queue are written as rabbitmqctl writes AMQP tables, in tables and in JSON (CM-29, CM-30)."""
    broker.declare_queue("q", arguments={"x-max-length": 1000, "x-dead-letter-exchange": "alt"})
    run("-q", "list_queues", "arguments")
    assert run.lines[1] == '[{"x-max-length",1000},{"x-dead-letter-exchange","alt"}]'
    run("list_queues", "arguments", "--formatter", "json")
    [row] = json.loads(run.out)
    assert row["arguments"] == [["x-max-length", "signedint", 1000], ["x-dead-letter-exchange", "longstr", "alt"]]


def test_every_column_of_every_listing_is_answered(broker, run):
    from warren.actors.node.operations import columns

    broker.declare_queue("q")
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().basic_consume("q", lambda *_: None)
    for command, known in (
        ("list_queues", columns.QUEUES),
        ("list_exchanges", columns.EXCHANGES),
        ("list_bindings", columns.BINDINGS),
        ("list_connections", columns.CONNECTIONS),
        ("list_channels", columns.CHANNELS),
        ("list_consumers", columns.CONSUMERS),
    ):
        assert run(command, *known.known, "--formatter", "json") == 0
        rows = json.loads(run.out)
        assert rows, command
        assert all(tuple(row) == known.known for row in rows)
        assert None not in rows[0].values()
    connection.close()


def test_pids_lead_from_one_listing_to_the_other(broker, run):
    """The pid of a connection or channel is the same in every listing that has it (CM-31)."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("mine", exclusive=True)
    channel.basic_consume("mine", lambda *_: None)
    found = {}
    for command, column in (
        ("list_connections", "pid"),
        ("list_channels", "connection"),
        ("list_channels", "pid"),
        ("list_consumers", "channel_pid"),
        ("list_queues", "owner_pid"),
    ):
        run("-q", "-s", command, column)
        [found[command, column]] = run.lines
    assert found["list_connections", "pid"].startswith("<warren@localhost.")
    assert found["list_connections", "pid"] == found["list_channels", "connection"] == found["list_queues", "owner_pid"]
    assert found["list_channels", "pid"] == found["list_consumers", "channel_pid"]
    connection.close()


def test_close_all_user_connections(broker, run):
    """`close_all_user_connections` closes the connections of one user with the reason given (CM-171)."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    assert run("close_all_user_connections", "nobody", "x") == 0
    connection.process_data_events(0)
    assert run("close_all_user_connections", "guest", "go") == 0
    assert run.out == "Closing connections of user guest, reason: go...\n"
    assert_closed(connection, "go")


def test_an_exclusive_consumer_and_an_open_transaction(broker, run):
    """Listings show an exclusive consumer with its channel, and what an open transaction contains (CM-152, CM-158)."""
    broker.declare_queue("q")
    broker.publish(b"1", "q")
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.tx_select()
    channel.basic_publish("", "q", b"2")
    channel.basic_publish("", "q", b"3")
    method, _, _ = channel.basic_get("q")
    channel.basic_ack(method.delivery_tag)
    channel.basic_consume("q", lambda *_: None, exclusive=True, consumer_tag="only")
    run("-s", "list_queues", "exclusive_consumer_tag", "exclusive_consumer_pid")
    tag, pid = run.lines[0].split("\t")
    run("-s", "list_channels", "pid", "transactional", "messages_uncommitted", "acks_uncommitted")
    assert (tag, run.lines) == ("only", [f"{pid}\ttrue\t2\t1"])
    connection.close()


def test_a_row_is_one_line_whatever_names_contain(broker, run):
    """A row of a table is one line, whatever characters names contain; CSV and JSON give the characters back (CM-32,
    CM-156).
    """
    broker.declare_queue("q")
    broker.bind("q", "amq.direct", 'tab\tline\nquote"é')
    columns = ("list_bindings", "source_name", "routing_key")
    run("-q", *columns)
    assert run.lines == ["source_name\trouting_key", "\tq", 'amq.direct\ttab\\tline\\nquote"é']
    run(*columns, "--formatter", "csv")
    assert list(csv.reader(io.StringIO(run.out)))[2] == ["amq.direct", 'tab\tline\nquote"é']
    run(*columns, "--formatter", "json")
    assert json.loads(run.out)[1] == {"source_name": "amq.direct", "routing_key": 'tab\tline\nquote"é'}


def test_more_rows_than_one_slice(broker, run):
    """A listing that the node sends in several parts has all rows (CM-140)."""
    for number in range(450):
        broker.declare_queue(f"{number:03}")
    run("-s", "list_queues", "name")
    assert run.lines == [f"{number:03}" for number in range(450)]
    run("list_bindings", "--formatter", "json")
    assert len(json.loads(run.out)) == 450


# -- errors ---


@pytest.mark.parametrize(
    ("arguments", "code", "first_line"),
    [
        (["list_queues", "name", "foo"], 64, "Error (argument validation): Info key(s) foo are not supported"),
        (["list_exchanges", "foo", "bar"], 64, "Error (argument validation): Info key(s) foo,bar are not supported"),
        (["ping", "x"], 64, "Error (argument validation): too many arguments."),
        (["list_queues", "--foo"], 64, "Error (argument validation): Invalid options for this command:"),
        (["list_queues", "--timeout", "abc"], 64, "Error (argument validation): Invalid options for this command:"),
        (["list_queues", "--formatter", "yaml"], 64, "Error: Unknown formatter 'yaml'."),
        (["-n", "a b", "ping"], 65, "Error: 'a b' is no node name"),
        (["-p", "nix", "-q", "list_queues"], 65, "Error:"),
    ],
)
def test_errors_have_rabbitmqctls_code_and_nothing_on_standard_output(broker, run, arguments, code, first_line):
    """A command that fails has rabbitmqctl's exit code, and writes to standard error only (CM-10, CM-12, CM-17 to
    CM-20).
    """
    assert run(*arguments) == code
    assert run.err.startswith(first_line)
    assert run.out == ""


def test_a_command_that_does_not_exist(run):
    """For an unknown command the error suggests a similar one, or lists all (CM-3)."""
    assert run("list_quues") == 64
    assert run.err.splitlines()[1:] == ["Command 'list_quues' not found.", "Did you mean 'list_queues'?"]
    assert run("zzz") == 64
    assert "These are the commands:" in run.err and "list_queues" in run.err
    assert max(map(len, run.err.splitlines())) <= 100


def test_a_wrong_column_names_the_right_ones_and_the_usage(broker, run):
    """For an unknown column the error lists the columns and the usage (CM-20)."""
    run("list_bindings", "nam")
    assert "Supported are: source_name, source_kind" in run.err
    assert "Arguments given:\n\tlist_bindings nam\n" in run.err
    assert "list_bindings [<column> ...]" in run.err


def test_a_missing_vhost(broker, run):
    """A missing virtual host is exit code 65 with RabbitMQ's text (CM-22, CM-151)."""
    assert run("list_queues", "-p", "nix") == 65
    assert run.err == "Error:\nVirtual host 'nix' does not exist\n"


def test_errors_as_json_keep_the_code(broker, run):
    """With the formatter JSON an error is one object on standard error, and the exit code is the same (CM-24)."""
    assert run("list_queues", "-p", "nix", "--formatter", "json") == 65
    assert run.out == ""
    assert json.loads(run.err) == {
        "result": "error",
        "node": "warren@localhost",
        "message": "Virtual host 'nix' does not exist",
    }


def test_a_node_that_does_not_run(run, tmp_path):
    """The error for a node that does not run names the data directory where it was looked for, because the node's name
    is unknown, and what is missing there (CM-18, CM-22, CM-23).
    """
    place = tmp_path / "nowhere"
    assert run("ping", data_dir=place) == 69
    assert run.lines == [f"Will ping in '{place}'."]
    assert run.err.startswith(f"Error: unable to perform an operation on node in '{place}'.")
    assert "DIAGNOSTICS" in run.err
    assert f"`warren start --data-dir {place}` starts one" in run.err
    assert f"attempted to contact: [{place}]" in run.err
    assert f"there is no directory '{place}'" in run.err
    place.mkdir()
    assert run("ping", data_dir=place) == 69
    assert "nowhere/control/node.json' does not exist" in run.err
    assert run("ping", "--formatter", "json", data_dir=place) == 69
    assert json.loads(run.err)["node"] == str(place)


def test_a_node_of_a_name_that_does_not_run(run, monkeypatch, tmp_path):
    """The error for a node that was asked by name has its name (CM-12, CM-22)."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("WARREN_DATA_DIR", raising=False)
    assert run.without_place("ping", "--node", "other") == 69
    assert run.err.startswith("Error: unable to perform an operation on node 'other@localhost'.")
    assert "attempted to contact: [other@localhost]" in run.err


def test_a_node_at_an_address_that_does_not_run(run, tmp_path):
    """The error for a node that was asked by address has the address (CM-22, CM-23)."""
    cookie = tmp_path / "cookie"
    cookie.write_text("a secret that is long enough, and nobody else's")
    cookie.chmod(0o600)
    assert run("ping", "--address", "127.0.0.1:1", "--cookie-file", str(cookie)) == 69
    assert "unable to perform an operation on node at 127.0.0.1:1." in run.err
    assert "attempted to contact: [127.0.0.1:1]" in run.err


def test_a_node_that_answers_too_late(broker, run, monkeypatch):
    """A node that accepts the connection and answers later than `--timeout` is exit code 75 (CM-8, CM-18, CM-22)."""
    from warren.actors.node.operations import registry

    async def sleepy(operator):
        await operator.process.sleep(60)

    monkeypatch.setitem(registry.OPERATIONS, "ping", registry.Operation(sleepy, True, {}, frozenset()))
    assert run("ping", "--timeout", "1") == 75
    assert run.err == ("Error: operation ping on node warren@localhost timed out. Timeout value used: 1000\n")


# -- the node ---


def test_ping(broker, run):
    """`ping` succeeds with RabbitMQ's text (CM-49)."""
    assert run("ping") == 0
    assert run.lines == ["Will ping warren@localhost.", "Ping succeeded"]


def test_status(broker, run):
    """`status` has RabbitMQ's sections, and its JSON the same facts (CM-70 to CM-72)."""
    broker.declare_queue("q")
    assert run("status", "--formatter", "json") == 0
    facts = json.loads(run.out)
    assert facts["pid"] == os.getpid()
    assert facts["totals"] == {"virtual_host_count": 1, "connection_count": 0, "queue_count": 1}
    assert facts["listeners"][0]["port"] == broker.port
    assert facts["alarms"] == []
    assert facts["is_running"] is True
    descriptors = facts["file_descriptors"]
    assert 0 < descriptors["total_used"] <= descriptors["total_limit"] == descriptors["sockets_limit"]
    assert descriptors["sockets_used"] == 0
    sizes = {name: size for name, size in facts["memory"].items() if name not in ("total", "strategy")}
    assert sizes["code"] > 0 and sizes.keys() >= {"binary", "queue_procs", "mnesia"}, "RabbitMQ's categories"
    broker.set_alarm("memory", True)
    assert run("status") == 0
    assert "Memory alarm on node warren@localhost" in run.out
    assert f"port: {broker.port}, protocol: amqp, purpose: AMQP 0-9-1" in run.out
    lines = run.lines
    memory = lines[lines.index("Memory") : lines.index("File Descriptors")]
    assert any(line.startswith("code: 0.0") and line.endswith(" %)") for line in memory)
    at = lines.index("File Descriptors")
    assert lines[at + 2].startswith("Total: ") and lines[at + 3] == f"Sockets: 0, limit: {descriptors['sockets_limit']}"
    assert lines[at + 5] == "Free Disk Space"


def test_status_shows_the_longest_turns(broker, run):
    turn = LongTurnRecord(0.125, "queue 'orders' in vhost '/' (Queue-7)", "publish", 1e12)
    broker._running._base.watchdog.longest.insert(0, turn)
    assert run("status") == 0
    assert " * 125.0 ms: queue 'orders' in vhost '/' (Queue-7), publish" in run.out
    assert run("status", "--formatter", "json") == 0
    assert json.loads(run.out)["longest_turns"][0] == turn._asdict()


def test_an_embedded_node_is_not_stopped_by_a_command(broker, run):
    assert run("stop") == 69
    assert "embedded in a program" in run.err


def test_stop_without_a_node(run, tmp_path):
    """`stop` without a node fails, and succeeds with `--idempotent` (CM-42)."""
    assert run("stop", data_dir=tmp_path / "nowhere") == 69
    assert run("stop", "--idempotent", data_dir=tmp_path / "nowhere") == 0


def test_a_server_is_stopped_by_a_command(tmp_path):
    """`warren stop` finds the node in the default data directory without an option, and returns when its process has
    ended (CM-35, CM-42, CM-45).
    """
    server = subprocess.Popen(
        [WARREN, "start", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )
    try:
        while "stop " not in server.stdout.readline():
            assert server.poll() is None, server.stderr.read()
        started = subprocess.run([WARREN, "await_startup"], capture_output=True, text=True, timeout=300, cwd="/")
        assert (started.returncode, started.stderr) == (0, "")
        stopped = subprocess.run([WARREN, "stop"], capture_output=True, text=True, timeout=300, cwd="/")
        assert (stopped.returncode, stopped.stderr) == (0, "")
        assert server.wait(60) == 0
        assert "an operator's command" in server.stderr.read()
    finally:
        server.kill()
        server.communicate()


def test_a_node_in_memory_is_found_by_its_name(tmp_path):
    """A node that keeps everything in memory is found by its name (CM-14)."""
    server = subprocess.Popen(
        [WARREN, "start", "--port", "0", "--in-memory"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    )
    try:
        while b"stop " not in server.stdout.readline():
            assert server.poll() is None, server.stderr.read()
        stopped = subprocess.run([WARREN, "-q", "stop"], capture_output=True, text=True, timeout=300, cwd="/")
        assert (stopped.returncode, stopped.stdout, stopped.stderr) == (0, "", "")
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()


# -- queues and connections ---


def test_purge_queue(broker, run):
    """`purge_queue` removes the ready messages, and its JSON counts them (CM-17, CM-20, CM-26, CM-167)."""
    broker.declare_queue("q")
    broker.publish(b"1", "q")
    assert run("purge_queue", "q") == 0
    assert run.out == "Purging queue 'q' in vhost '/' ...\n"
    assert broker.queue("q").messages == 0
    assert run("purge_queue", "q", "--formatter", "json") == 0
    assert json.loads(run.out) == {"node": "warren@localhost", "result": "ok", "message_count": 0}
    assert run("purge_queue", "nix") == 69
    assert run.err.startswith("Error:\nnot_found\nThere is no queue '")
    assert run("purge_queue") == 64
    assert run.err.startswith("Error (argument validation): not enough arguments.\nArguments given:\n\tpurge_queue\n")


def test_delete_queue(broker, run):
    """`delete_queue` has RabbitMQ's options, texts and exit codes (CM-168)."""
    broker.declare_queue("q")
    broker.publish(b"1", "q")
    assert run("delete_queue", "q", "--if-empty") == 64
    assert run.out == "Deleting queue 'q' on vhost '/' if queue is empty ...\n"
    assert run.err == "Error:\nQueue is not empty\n"
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().basic_consume("q", lambda *_: None)
    assert run("delete_queue", "q", "-e", "-u") == 64
    assert run.out == "Deleting queue 'q' on vhost '/' if queue is empty and if queue is unused ...\n"
    assert run.err == "Error:\nQueue is in use\n"
    connection.close()
    broker.wait_idle()
    assert run("delete_queue", "q", "-q") == 0
    assert run.out == "Queue was successfully deleted with 1 ready messages\n"
    assert run("delete_queue", "q") == 64
    assert run.err == "Error:\nQueue not found\n"
    assert run("delete_queue", "") == 65
    assert run.err.startswith("Error (argument validation): Bad argument: queue name cannot be an empty string\n")


def test_an_exclusive_queue_is_deleted_by_an_operator(broker, run):
    """An operator can delete an exclusive queue (CM-168)."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().queue_declare("mine", exclusive=True)
    assert run("-q", "delete_queue", "mine") == 0
    assert broker.queues() == []
    connection.close()


def assert_closed(connection, reason):
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as end:
        connection.process_data_events(30)
    assert (end.value.reply_code, end.value.reply_text) == (320, f"CONNECTION_FORCED - {reason}")


@pytest.mark.parametrize("column", ["pid", "name"])
def test_close_connection(broker, run, column):
    """`close_connection` takes the pid or the name that a listing shows (CM-31, CM-169)."""
    other = pika.BlockingConnection(pika.URLParameters(broker.url))
    run("-s", "list_connections", column)
    [before] = run.lines
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    run("-s", "list_connections", column)
    [identity] = set(run.lines) - {before}
    assert run("close_connection", identity, "go away") == 0
    assert run.out == f"Closing connection {identity}, reason: go away...\n"
    assert_closed(connection, "go away")
    # A connection that is already gone counts as closed, as in RabbitMQ.
    broker.wait_idle()
    assert run("close_connection", identity, "go away") == 0
    assert run("close_connection", "bad", "x") == 69
    other.close()


def test_close_all_connections(broker, run):
    """`close_all_connections` closes those of one virtual host, up to a limit, or all (CM-170)."""
    broker.create_vhost("other")
    connections = [
        pika.BlockingConnection(pika.URLParameters(url))
        for url in (broker.url, broker.url, broker.url_of("other"), broker.url)
    ]
    assert run("close_all_connections", "-p", "other", "maintenance") == 0
    assert run.lines == ["Closing all connections in vhost other, reason: maintenance...", "Closed 1 connections"]
    assert_closed(connections[2], "maintenance")
    broker.wait_idle()
    assert run("-q", "close_all_connections", "--limit", "2", "--per-connection-delay", "1", "x") == 0
    assert run.out == "Closed 2 connections\n"
    broker.wait_idle()
    assert run("close_all_connections", "--global", "x") == 0
    assert run.lines == [
        "Closing all connections to node warren@localhost (across all vhosts), reason: x...",
        "Closed 1 connections",
    ]
    for connection in (connections[0], connections[1], connections[3]):
        assert_closed(connection, "x")


def test_virtual_hosts(broker, run):
    """Virtual hosts are added and deleted with RabbitMQ's texts (CM-105, CM-106)."""
    assert run("add_vhost", "orders") == 0
    assert run.out == 'Adding vhost "orders" ...\n'
    assert run("add_vhost", "orders") == 0
    assert broker.vhosts() == ["/", "orders"]
    assert run("delete_vhost", "orders") == 0
    assert run.out == 'Deleting vhost "orders" ...\n'
    assert run("delete_vhost", "orders") == 65
    assert run.err == "Error:\nVirtual host 'orders' does not exist\n"


# -- limits and settings ---


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["0.5"], 0, "Setting memory threshold on warren@localhost to 0.5 ..."),
        (["0"], 0, "Setting memory threshold on warren@localhost to 0 ..."),
        (["absolute", "2GB"], 0, "Setting memory threshold on warren@localhost to 2GB bytes ..."),
        (["absolute", "512MiB"], 0, "Setting memory threshold on warren@localhost to 512MiB bytes ..."),
        (["absolute", "1000000000"], 0, "Setting memory threshold on warren@localhost to 1000000000 bytes ..."),
        (["1.5"], 65, "Bad argument: The threshold should be a fraction between 0.0 and 1.0"),
        (["nan"], 65, "Bad argument: The threshold should be a fraction between 0.0 and 1.0"),
        (["abc"], 65, "Bad argument: 'abc' is no number"),
        (["absolute", "abc"], 65, "Bad argument: 'abc' is no size such as 50MB, 2GiB or 1000000"),
        (["absolute", "1.5GB"], 65, "Bad argument: The threshold should be an integer."),
        (["absolute", "5XB"], 65, "Bad argument: Invalid units."),
        (["absolute"], 64, "not enough arguments."),
        ([], 64, "not enough arguments."),
        (["absolute", "1GB", "x"], 64, "too many arguments."),
        (["0.5", "x"], 64, "too many arguments."),
    ],
)
def test_memory_watermark(broker, run, arguments, code, text):
    """A fraction or a size sets the memory limit, with a line that says until when; anything else is refused with
    RabbitMQ's text (CM-15, CM-180, CM-181, CM-183, CM-433).
    """
    assert run("set_vm_memory_high_watermark", *arguments) == code
    if code:
        assert (run.out, run.err.splitlines()[0]) == ("", f"Error (argument validation): {text}")
    else:
        assert run.lines[0] == text
        assert "until the node ends" in run.lines[1]


def test_a_watermark_of_zero_blocks_publishers_and_is_seen_everywhere(broker, run):
    """A watermark of 0 sets the memory alarm at once, which `status` shows (CM-180, CM-183)."""
    assert run("-q", "set_vm_memory_high_watermark", "0.0") == 0
    run("status", "--formatter", "json")
    facts = json.loads(run.out)
    assert facts["alarms"] == [{"node": "warren@localhost", "resource": "memory", "type": "resource_limit"}]
    assert facts["vm_memory_high_watermark_limit"] == 0
    assert run("-q", "set_vm_memory_high_watermark", "absolute", "900GB") == 0
    run("status", "--formatter", "json")
    assert json.loads(run.out)["alarms"] == []


def test_disk_limit(run, tmp_path):
    """`set_disk_free_limit` takes a size or a multiple of the memory, and refuses anything else (CM-182, CM-183)."""
    with Broker(control_dir=str(tmp_path / "control"), data_dir=str(tmp_path / "data")):
        assert run("set_disk_free_limit", "50MB") == 0
        assert run.lines[0] == "Setting disk free limit on warren@localhost to 50MB bytes ..."
        assert run("set_disk_free_limit", "mem_relative", "1000.0") == 0
        assert run.lines[0] == "Setting disk free limit on warren@localhost to 1000.0 times the total RAM ..."
        run("status", "--formatter", "json")
        assert json.loads(run.out)["alarms"][0]["resource"] == "disk"
        for wrong in (["5XB"], ["mem_relative", "abc"], ["mem_relative", "--", "-1"], ["abc"]):
            assert run("set_disk_free_limit", *wrong) == 65
        assert run("set_disk_free_limit", "mem_relative") == 64


def test_a_node_without_a_data_directory_has_no_disk_limit(broker, run):
    assert run("set_disk_free_limit", "50MB") == 69
    assert "data_dir" in run.err


def test_environment_shows_every_setting_and_no_secret(run, tmp_path):
    """`environment` shows every setting with its origin, and blanks secrets (CM-74, CM-75)."""
    settings = {"default_pass": "very-secret", "cluster_cookie": "very-secret-too", "heartbeat": 17}
    with Broker(control_dir=str(tmp_path / "control"), **settings):
        assert run("-q", "environment") == 0
    assert "heartbeat\t17\tset" in run.lines
    assert "channel_max\t2047\tdefault" in run.lines
    assert "default_pass\t***\tset" in run.lines and "cluster_cookie\t***\tset" in run.lines
    assert "very-secret" not in run.out


def test_of_several_nodes_of_one_name_the_one_with_the_data_directory_is_asked(tmp_path):
    """Of several nodes with one name, the one with the data directory is asked. Two nodes in memory cannot be told
    apart, so `stop` refuses and ends neither by mistake (CM-14).
    """
    servers = []

    def start(*arguments):
        command = [WARREN, "start", "--port", "0", *arguments]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/")
        servers.append(server)
        while b"stop " not in server.stdout.readline():
            assert server.poll() is None

    def warren(*arguments):
        return subprocess.run([WARREN, *arguments], capture_output=True, text=True, timeout=300, cwd="/")

    try:
        start("--in-memory")
        start("--in-memory")
        result = warren("stop")
        assert result.returncode == 69
        assert "several nodes have this name" in result.stderr
        start()
        assert warren("stop").returncode == 0
        assert servers[2].wait(60) == 0
        assert [server.poll() for server in servers[:2]] == [None, None]
    finally:
        for server in servers:
            server.kill()
            server.communicate()


# -- output ---


def test_a_terminal_gets_aligned_columns(broker, tmp_path):
    """On a terminal the columns of a table are aligned (CM-25)."""
    broker.declare_queue("a-long-name")
    broker.declare_queue("b")
    terminal, screen = pty.openpty()
    environment = {**os.environ, "WARREN_DATA_DIR": str(tmp_path), "NO_COLOR": "1"}
    command = [WARREN, "-q", "list_queues", "name", "messages"]
    subprocess.run(command, stdout=screen, stderr=subprocess.PIPE, timeout=300, cwd="/", env=environment, check=True)
    lines = os.read(terminal, 10_000).decode().splitlines()
    os.close(terminal)
    os.close(screen)
    assert lines[-2:] == ["a-long-name         0", "b                   0"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["list_que"], "list_queues"),
        (["list_queues", "--form"], "--formatter"),
        (["list_queues", "messages_un"], "messages_unacknowledged"),
        (["list-que"], "list-queues"),
        (["help", "list_que"], "list_queues"),
        (["set_policy", "--apply-to", "ex"], "exchanges"),
        (["set_log_level", "deb"], "debug"),
        (["store", "ver"], "verify"),
    ],
)
def test_a_shell_completes_commands_options_and_columns(words, wanted):
    environment = {
        **os.environ,
        "_WARREN_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["warren", *words]),
        "COMP_CWORD": str(len(words)),
    }
    result = subprocess.run([WARREN], capture_output=True, text=True, timeout=300, cwd="/", env=environment)
    assert f"plain,{wanted}" in result.stdout.splitlines()


def test_a_closed_standard_output_is_no_error(broker, tmp_path):
    """`warren list_queues | head -1` ends silently with exit code 0 (CM-19)."""
    for number in range(2000):
        broker.declare_queue(f"{number:04}" + "x" * 100)
    environment = {**os.environ, "WARREN_DATA_DIR": str(tmp_path)}
    result = subprocess.run(
        ["/bin/bash", "-c", f"({WARREN} list_queues; echo code $? >&2) | head -1"],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        timeout=300,
    )
    assert result.stderr == "code 0\n"
