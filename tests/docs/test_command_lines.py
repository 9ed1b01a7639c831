"""Every command line of `warren` in the pages runs.

There are three kinds: lines of `sh` and `console` blocks, command lines inside a sentence, and the usage of each
command in the table of docs/cli.md, whose arguments get values here. The README and the first session of docs/cli.md
are sessions, which tests of their own follow in order. `ELSEWHERE` names the test of each command that cannot run here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from warren import Broker
from warren.cli.main import main, root

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.name: path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
CLI_PAGE = PAGES["cli.md"]

BLOCK = re.compile(r"^```(sh|console|)\n(.*?)^```", re.DOTALL | re.MULTILINE)

#: Pages whose blocks a test of their own follows in order.
SESSIONS = {"README.md": "tests/docs/test_readme.py", "cli.md": "tests/docs/test_cli.py"}

#: Commands that need more than the broker of these tests, each with the test that runs it.
ELSEWHERE = {
    "start": "tests/cli/programs/test_start.py",
    "stop": "tests/cli/test_node_commands.py, because a command does not stop the broker of another program",
    "shutdown": "tests/cli/operating/test_operating.py, for the same reason",
    "stop_app": "tests/cluster_system/test_apps.py, for the same reason",
    "store verify": "tests/cli/programs/test_store.py, with the directory of a broker that has ended",
    "simulate": "tests/cli/programs/test_simulate.py, and below those of the pages with fewer schedules",
    "perf-test": "tests/perf_test, and below those of the pages for a shorter time",
    "pipeline": "tests/spark/test_in_spark.py, because its commands need Spark",
}

#: A section of commands that need other nodes, which the tests of the cluster run.
CLUSTER = "Cluster"

#: Other numbers for command lines that would take long.
SHORTER = {
    "--schedules 2000": "--schedules 5 --seed 1",
    "--schedules 10": "--schedules 3",
    "simulate --nodes 3": "simulate --nodes 3 --seed 1 --schedules 3",
    "-z 5 ": "-z 1 ",
    "-z 30": "-z 1",
    "-C 20000": "-C 200",
}

#: Values for the arguments in the table of docs/cli.md. A command has values of its own where the common ones do not
#: fit.
VALUES = {
    "feature_flag": "all",
    "username": "ann",
    "password": "secret-of-ann",
    "name": "thing",
    "vhost": "/",
    "queue": "orders",
    "connection": "<warren@localhost.nobody>",
    "explanation": "maintenance",
    "pattern": "^x",
    "definition": '{"max-length":5}',
    "conf": ".*",
    "write": ".*",
    "read": ".*",
    "exchange": "amq.topic",
    "tag": "monitoring",
    "rate": "600/m",
    "level": "info",
    "value": "{}",
    "command": "list_queues",
    "limit": "all",
    "path": "definitions.json",
    "protocol": "amqp",
    "position": "1",
    "member": "warren@localhost",
}
OWN_VALUES = {
    "add_user": {"username": "bob"},
    "set_user_limits": {"definition": '{"max-connections":5}'},
    "set_vhost_limits": {"definition": '{"max-queues":500}'},
    "set_parameter": {"component_name": "vhost-limits", "name": "limits", "value": '{"max-queues":500}'},
    "clear_parameter": {"component_name": "vhost-limits", "name": "limits"},
    "set_vm_memory_high_watermark": {"limit": "0.4"},
    "set_disk_free_limit": {"limit": "50MB"},
    "peek": {"queue": "QUEUE"},
    "reclaim_quorum_memory": {"queue": "QUEUE"},
    "decode_message_id": {"message_id": "C0A8000A00002A9F00000000075BCD15"},
}
#: Options without which a command cannot run or would not end.
NEEDED_OPTIONS = {
    "query_message": ["--queue", "orders", "--key", "order-4711"],
    "consume_event_stream": ["--duration", "0"],
    "log_tail_stream": ["--duration", "0"],
    "observer": ["--interval", "0.1"],
    "runtime_thread_stats": ["--sample-interval", "0.01"],
}
#: Commands that a single embedded broker without TLS refuses, with their exit code and a part of the reason.
#: tests/cluster_system runs those of mirrored queues.
REFUSED = {
    "cancel_sync_queue": (69, "not_mirrored"),
    "promote": (69, "not_mirrored"),
    "rings": (69, "not_mirrored"),
    "show_ring": (69, "not_mirrored"),
    "sync_queue": (69, "not_mirrored"),
    "log_tail": (69, "writes its log to its standard error"),
    "reload_certificates": (69, "does not listen for TLS"),
    "top": (64, "top needs a terminal"),
}


def blocks_of(page):
    """The command lines of `warren` in the blocks of a page, without prompts and comments.

    A line that runs in the background is run together with the next one, at whose end it is stopped.
    """
    lines = [line for block in BLOCK.finditer(PAGES[page]) for line in block[2].splitlines()]
    found = [re.sub(r"^\$ |  +#.*$", "", line.strip()).removeprefix("env/bin/") for line in lines]
    text = "\n".join(line for line in found if line.startswith("warren "))
    return re.sub(r" &\n(.*)", r" & \1; code=$?; kill $!; exit $code", text).splitlines()


def in_sentences(page):
    """The command lines inside sentences that are more than a command's name; they may go over the end of a line."""
    text = BLOCK.sub("", PAGES[page])
    if page == "cli.md":
        text = text.partition("## Commands")[0]
    found = [" ".join(line.split()) for line in re.findall(r"`(warren [^`]*)`", text)]
    names = {name.replace("-", "_") for name in root.every_command()}
    found = [line for line in found if not line.startswith("warren pipeline ")]
    return [line for line in found if line.removeprefix("warren ").replace("-", "_") not in names]


IN_BLOCKS = [(page, line) for page in PAGES if page not in SESSIONS for line in blocks_of(page)]
IN_BLOCKS = [(page, line) for page, line in IN_BLOCKS if not line.startswith("warren pipeline ")]
IN_SENTENCES = [(page, line) for page in PAGES for line in in_sentences(page)]
USAGES = re.findall(r"^\| `warren ([\w-]+)([^`]*)` \|", CLI_PAGE.partition("## Commands")[2], re.MULTILINE)


def runs_alone(command):
    """Whether a command can run with one broker inside this program."""
    return command not in ELSEWHERE and getattr(root.get_command(None, command), "section", "") != CLUSTER


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    with Broker(port=0, control_dir=str(folder / "control"), data_dir=str(folder)) as broker:
        yield broker


@pytest.fixture
def folder(broker, tmp_path, monkeypatch):
    """A home for the commands, whose node is the broker of these tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "WARREN_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WARREN_DATA_DIR", str(broker.settings.data_dir))
    return tmp_path


@pytest.fixture
def run(monkeypatch, capfd):
    """`run(words)` runs a command in this process, and returns its exit code and its error text."""

    def run(words):
        monkeypatch.setattr(sys, "argv", ["warren", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capfd.readouterr().err

    return run


def test_there_are_command_lines():
    assert len(IN_BLOCKS) >= 9 and len(IN_SENTENCES) >= 3 and len(USAGES) >= 80


# -- in blocks and in sentences ---


@pytest.mark.parametrize(("page", "line"), [*IN_BLOCKS, *IN_SENTENCES])
def test_a_command_line_of_a_page_runs(broker, folder, page, line):
    """The command line runs in a shell. A load test and `warren start` get the port of a broker, or a free one."""
    declare_queues(broker)
    broker.publish(b"", "orders", headers={"x-keys": "order-4711 shop-9"}, message_id="m-17")
    (folder / "aliases").write_text("qs = list_queues name messages consumers state\n")
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    line = line.replace("warren perf-test ", f"warren perf-test -h {broker.url} ")
    if line.startswith("warren start"):
        line = background(line.partition(" --port")[0], folder)
    elif line == "warren clear_pace mail":
        line = f"warren set_pace mail 5 && {line}"
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    result = subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=folder,
        env={**os.environ, "PATH": path, "WARREN_CLI_ALIASES_FILE": "aliases"},
    )
    assert (result.returncode, result.stderr) == (0, ""), f"{line}\n{result.stdout}"


def declare_queues(broker):
    """A queue, and a quorum queue with a message."""
    broker.declare_queue("orders")
    broker.declare_queue("QUEUE", durable=True, arguments={"x-queue-type": "quorum"})
    broker.publish(b"first", "QUEUE")


def background(line, folder):
    """The line started in the background, with a configuration file if it names none, followed by the stop of that
    broker.
    """
    line = line.replace(" --background", "")
    if line.endswith("--config"):
        (folder / "warren.toml").write_text('log_level = "warning"\n')
        line += " warren.toml"
    place = "" if "--in-memory" in line else f" --data-dir {shlex.quote(str(folder / 'other'))}"
    return f"export WARREN_DATA_DIR=; {line} --background --port 0{place} && warren stop{place}"


# -- the usage of each command ---


@pytest.mark.parametrize(("command", "arguments"), [(one, rest) for one, rest in USAGES if runs_alone(one)])
def test_the_usage_of_a_command_runs(broker, folder, run, command, arguments):
    """The command runs with a value for each argument, and without options that it does not need."""
    prepare(broker, run)
    words = [value_of(command, name, broker) for name in re.findall(r"<([\w-]+)>", arguments) if name != "column"]
    code, err = run([command, *words, *NEEDED_OPTIONS.get(command, [])])
    wanted, reason = REFUSED.get(command, (0, ""))
    assert code == wanted, err
    assert reason in err


def prepare(broker, run):
    """Create one of each thing that the commands show, change and remove."""
    for user in ("ann", "bob"):
        if run(["add_user", user, "secret-of-ann"])[0]:
            assert run(["change_password", user, "secret-of-ann"]) == (0, "")
    assert run(["delete_user", "bob"]) == (0, "")
    declare_queues(broker)
    for words in (
        ["add_vhost", "thing"],
        ["set_permissions", "ann", ".*", ".*", ".*"],
        ["set_topic_permissions", "ann", "amq.topic", ".*", ".*"],
        ["set_policy", "thing", "^x", '{"max-length":5}'],
        ["set_operator_policy", "thing", "^x", '{"max-length":5}'],
        ["set_pace", "orders", "5"],
        ["set_vhost_limits", '{"max-queues":500}'],
        ["set_global_parameter", "thing", "{}"],
        ["export_definitions", "definitions.json"],
    ):
        assert run(words) == (0, "")


def value_of(command, argument, broker):
    if argument == "port":
        return str(broker.port)
    if argument == "pidfile":  # the node is this process
        Path("warren.pid").write_text(str(os.getpid()))
        return "warren.pid"
    return {**VALUES, **OWN_VALUES.get(command, {})}[argument]


def test_every_usage_line_names_its_arguments_as_the_command_does():
    """The arguments in the table's usage lines are those that each command takes, so the values above fit them."""
    commands = {name: rest for name, rest in USAGES}
    on_other_pages = {"start", "simulate", "perf-test", "pipeline"}
    assert {name for name in ELSEWHERE if " " not in name} <= commands.keys() | on_other_pages
    for name in commands:
        assert name.replace("-", "_") in root.every_command() or name in root.every_command()
