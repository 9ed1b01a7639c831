"""The README's blocks, followed as a newcomer does: in order, in a folder with nothing but the clone.

A `python` or `toml` block is the file whose name, such as `first.py`, is in the paragraph before it; an `sh` block is
run. The comment beside a `print` is its expected output. All ports are free ones instead of those of the page. `warren
start` runs in the background, as the process that the page calls 12345; 12346 is the first node of the cluster. `~` is
a folder of the test.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from warren.tests.cluster_system.link_proxy import free_ports

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
#: The section about Spark has its test in tests/spark, because its packages take long to install.
_BEFORE, _, _SPARK = README.partition("\n## Five minutes with Spark\n")
README = _BEFORE + "\n## " + _SPARK.partition("\n## ")[2]

# The README creates an environment and installs packages from PyPI, which may answer slowly.
pytestmark = pytest.mark.timeout(1200)

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
FILE_NAME = re.compile(r"`(\w+\.(?:py|toml))`")
#: The ports of the broker, and those of the nodes of the cluster for each other.
PORT = re.compile(r"\b(?:567[234]|2567[234])\b")


def blocks():
    """(preceding paragraph, language, code) of every block, in order."""
    found, end = [], 0
    for match in BLOCK.finditer(README):
        found.append((README[end : match.start()].strip().rpartition("\n\n")[2], match[1], match[2]))
        end = match.end()
    return found


def expected_output(code):
    return re.findall(r"^\s*print\(.*\)  # (.*)$", code, re.MULTILINE)


class Newcomer:
    """A shell in a folder with nothing but the clone."""

    def __init__(self, folder):
        self.folder = folder
        written = sorted(set(PORT.findall(README)))
        self.ports = dict(zip(written, map(str, free_ports(len(written))), strict=True))
        self.port = self.ports["5672"]
        self.server = None
        names = ("PYTHON", "VIRTUAL_ENV", "PIP_")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(names)} | {
            "C_FORCE_ROOT": "1",
            # pip would compile everything that it installs, of which little is imported.
            "PIP_COMPILE": "no",
        }
        # pip keeps the cache and the index settings of the user who runs the tests.
        kept = {
            name: os.environ.get(name, str(Path.home() / folder))
            for name, folder in (("XDG_CACHE_HOME", ".cache"), ("XDG_CONFIG_HOME", ".config"))
        }
        self.environment |= {"HOME": str(folder / "home"), **kept}
        self.environment.pop("XDG_DATA_HOME", None)

    def with_ports(self, text):
        return PORT.sub(lambda found: self.ports[found[0]], text)

    def run(self, code):
        command = self.with_ports(code.strip()).replace("--schedules 100", "--schedules 10")
        self.environment |= dict(re.findall(r"^([A-Z]+)=(.*)$", command, re.MULTILINE))
        if command == "python3 -m venv env":
            return self.make_environment()
        if "12345" in command:
            os.kill(self.server.pid, signal.SIGKILL)
            assert command == "kill -9 12345" and self.server.wait(60) == -signal.SIGKILL
            return ""
        if "12346" in command:
            command = command.replace("12346", str(self.node_process("node1")))
        if "store verify" in command:
            self.stop()
        if command.endswith("warren start"):
            self.server = subprocess.Popen(
                ["bash", "-c", f"exec {command} --port {self.port}"],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            wait_for_port(self.port)
            return ""
        result = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def make_environment(self):
        """Make an environment with the pip of the tests, because installing and compiling another one takes seconds."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "env"], cwd=self.folder, check=True)
        pip = self.folder / "env" / "bin" / "pip"
        python = pip.with_name("python")
        pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{python}" "$@"\n')
        pip.chmod(0o755)
        return ""

    def node_process(self, name):
        return json.loads((self.folder / name / "control" / "node.json").read_text())["pid"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in ("node1", "node2", "node3"):
            with suppress(OSError, ValueError):
                os.kill(self.node_process(name), signal.SIGKILL)
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self.server.stdout.close()

    def stop(self):
        """Send Ctrl-C to the background process."""
        self.server.send_signal(signal.SIGINT)
        assert self.server.wait(60) == 0


def wait_for_port(port):
    deadline = time.monotonic() + 300
    while True:
        try:
            return socket.create_connection(("127.0.0.1", int(port))).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.skipif(shutil.which("amqp-publish") is None, reason="amqp-tools is not installed (Debian: amqp-tools)")
def test_the_first_five_minutes(tmp_path):
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "*.egg-info", "__pycache__", "node_modules", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, tmp_path / "warren", ignore=ignored)
    with Newcomer(tmp_path) as newcomer:
        follow(newcomer)


def follow(newcomer):
    written, seen, promised = set(), [], []
    for paragraph, language, code in blocks():
        if language in ("python", "toml"):
            # The first file name in the paragraph that no earlier block has used.
            name = next(name for name in FILE_NAME.findall(paragraph) if name not in written)
            written.add(name)
            # A node that stands still for a moment, because the machine is busy, must not count as lost, nor a Celery
            # worker that starts slowly.
            start = "net_ticktime = 20.0\n" if language == "toml" else ""
            patient = code.replace("timeout=30", "timeout=300")
            # tests/docs/test_simulation.py tries many schedules.
            patient = patient.replace("schedules=50", "schedules=10")
            patient = patient.replace("check(nothing_is_lost)", "check(nothing_is_lost, schedules=50)")
            (newcomer.folder / name).write_text(start + newcomer.with_ports(patient))
            promised += [] if name.startswith("test_") else expected_output(code)
        else:
            seen += newcomer.run(code).splitlines()
    programs = {"first.py", "second.py", "tasks.py", "shop.py", "order.py", "cluster.toml"}
    assert programs | {"test_orders.py", "test_billing.py", "test_failover.py"} == written
    promised.append("confirmed")  # order.py runs again, on the cluster
    assert [line for line in seen if line in promised] == promised
    assert "\n".join(seen).count("1 passed") == 3
    assert any(line.startswith("10 schedules from seed") for line in seen)
    assert "hello" in seen and "from the shell" in seen
    assert seen.count("a lamp") == 2
    assert "Fine: nothing found." in seen
