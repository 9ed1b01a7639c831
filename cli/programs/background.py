"""`warren start --background`: starts the broker in a process of its own, and waits until it accepts clients."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ...actors.control.place import memory_place
from ...settings import Settings
from ...settings.management_urls import management_urls
from ..failure import EX_CONFIG, EX_SOFTWARE, EX_USAGE, CommandFailure
from ..node_client import NodeClient, NodeFailure, Target, Unreachable, default_data_dir
from ..observing.status_lines import alarm_lines

#: Lines of the log that are shown if the broker cannot start.
SHOWN_LINES = 20

#: Seconds between two checks whether the new process answers.
CHECK_SECONDS = 0.05

#: The words of the command line that ask for the background.
_SWITCHES = {"--background", "--detached"}


def start_in_background(settings: Settings) -> None:
    """Return when the broker accepts connections. Raises CommandFailure with the end of its log if it cannot start."""
    if settings.control_dir is None:
        raise CommandFailure("--background needs a control socket, which control_dir = false forbids", EX_USAGE)
    path = Path(settings.log_file) if settings.log_file else _default_log(settings.node_name)
    arguments = [word for word in sys.argv[1:] if word not in _SWITCHES]
    if settings.log_file is None:
        arguments += ["--log-file", str(path)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = open(path, "ab")
    except OSError as error:
        raise CommandFailure(f"the log cannot be written to '{path}': {error.strerror}", EX_CONFIG) from error
    with log:
        begin = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "warren", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # The current folder may have a folder `warren` that is not the package.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
    control_dir = settings.control_dir
    if settings.data_dir is None and control_dir == memory_place(settings.node_name, os.getpid()):
        control_dir = memory_place(settings.node_name, process.pid)
    target = Target(settings.node_name, control_dir=control_dir)
    while not _has_started(target, process.pid):
        if process.poll() is not None:
            raise CommandFailure(_why(path, begin), process.returncode or EX_SOFTWARE)
        time.sleep(CHECK_SECONDS)
    click.echo(f"{settings.node_name} runs in the background as process {process.pid}; its log is {path}")
    with suppress(Unreachable, NodeFailure), NodeClient(target) as client:  # it may have ended meanwhile
        _show(client.call("status"), settings)


def _show(facts: dict[str, Any], settings: Settings) -> None:
    """Print the addresses for clients, where the messages are, the command that stops the node, and a warning for each
    alarm that blocks publishers.
    """
    listeners = [each for each in facts["listeners"] if each["protocol"].startswith("amqp")]
    lines = [(each["purpose"], f"{each['interface']}:{each['port']}") for each in listeners]
    lines += management_urls(settings)
    lines += [("messages", settings.data_dir or "in memory: they are lost when the broker stops")]
    lines += [("stop", " ".join(["warren stop", *_options(settings)]))]
    for name, value in lines:
        click.echo(f"  {name:12}  {value}")
    for line in alarm_lines(facts):
        text = f"{line}: publishers are blocked. 'warren status' shows what is in use, and the limit"
        click.secho(f"Warning: {text}", err=True, fg="yellow")


def _options(settings: Settings) -> list[str]:
    """The options by which commands find this node."""
    name = [] if settings.node_name == Settings().node_name else ["--node", settings.node_name]
    if settings.data_dir is None or Path(settings.data_dir) == default_data_dir(settings.node_name):
        return name
    return ["--data-dir", shlex.quote(settings.data_dir)]


def _has_started(target: Target, pid: int) -> bool:
    """Whether the node of this process has started. If it answers already, waits until it accepts clients."""
    try:
        with NodeClient(target) as client:
            if client.call("status")["pid"] != pid:
                return False
            client.call("await_startup", timeout=float("inf"))
            return True
    except (Unreachable, NodeFailure):
        return False  # the node does not listen yet, or ends while it answers


def _default_log(node_name: str) -> Path:
    """The path of the log if no file is given (XDG base directories)."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".local" / "state"
        except RuntimeError as error:
            raise CommandFailure("this user has no home directory: use --log-file FILE", EX_CONFIG) from error
    return base / "warren" / f"{node_name.replace(os.sep, '_')}.log"


def _why(path: Path, begin: int) -> str:
    """An error text with the end of the log of a broker that could not start."""
    try:
        with open(path, "rb") as log:
            log.seek(begin)
            lines = log.read().decode("utf-8", "replace").strip().splitlines()[-SHOWN_LINES:]
    except OSError:
        lines = []
    return "\n".join(["the broker could not start; the end of its log is:", *lines])
