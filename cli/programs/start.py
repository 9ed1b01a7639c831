"""`warren start`: runs a broker in the foreground."""

import logging
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import click

from ...actors.control.place import memory_place
from ...settings import DEFAULT_PORT, Settings, SettingsError
from ..failure import EX_CONFIG, EX_SOFTWARE, EX_UNAVAILABLE, CommandFailure
from ..importing import without_collector
from ..node_client import default_data_dir, full_name
from ..node_command import close_output_quietly
from .background import start_in_background

log = logging.getLogger("warren.server")

LOG_LEVELS = ["debug", "info", "warning", "error"]
#: The end of an error text about the data directory.
WAY_OUT = "use --data-dir DIR, or --in-memory to keep nothing"


#: The environment variables for the first user, and the settings that they stand for. With them a container need not
#: have the default password.
FIRST_USER = {
    "WARREN_DEFAULT_USER": "default_user",
    "WARREN_DEFAULT_PASS": "default_pass",
    "WARREN_DEFAULT_PASS_FILE": "default_pass_file",
}


#: The environment variables that identify a node, here and in the commands that ask it, and their settings.
PLACE = {"WARREN_DATA_DIR": "data_dir", "WARREN_NODENAME": "node_name"}


@click.command()
@click.option("--port", type=int, help=f"TCP port to listen on; 0 chooses a free one.  [default: {DEFAULT_PORT}]")
@click.option("--host", help="Address to listen on; 0.0.0.0 means all addresses of this machine.  [default: 127.0.0.1]")
@click.option(
    "--config",
    metavar="FILE.toml",
    type=click.Path(dir_okay=False),
    help="File with settings, one `name = value` on each line. Command line options override them.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Directory for durable queues and messages; created if missing.  [default: ~/.local/share/warren/NODE_NAME]",
)
@click.option("--in-memory", is_flag=True, help="Keep nothing on disk: everything is lost when the broker stops.")
@click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), help="Lowest level of the lines in the log.  [default: info]"
)
@click.option("--log-file", metavar="FILE", help="Append the log to this file, not to standard error.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Form of a line of the log; json is one object on each line.  [default: text]",
)
@click.option("--log-rotation-size", metavar="SIZE", help="Rename the log file above this size, such as 10MB.")
@click.option(
    "--log-rotation-period",
    type=click.Choice(["never", "hourly", "daily"]),
    help="When else the log file is renamed.  [default: never]",
)
@click.option("--log-rotation-count", type=int, help="Older log files that are kept.  [default: 5]")
@click.option("--node", metavar="NAME", help="The broker's name, such as warren@localhost.")
@click.option(
    "--found",
    is_flag=True,
    help="Found a cluster without asking the other nodes of cluster_formation, if this node belongs to none.",
)
@click.option(
    "--witness", is_flag=True, help="Join the cluster as a witness: the node votes, and has neither queues nor clients."
)
@click.option(
    "--management/--no-management",
    default=None,
    help="Serve the HTTP API and metrics from a process beside the broker.  [default: --management]",
)
@click.option(
    "--background/--foreground",
    "--detached/--attached",
    help="Start the broker in the background, and return when it accepts connections.",
)
def start(
    port: int | None,
    host: str | None,
    config: str | None,
    data_dir: str | None,
    in_memory: bool,
    log_level: str | None,
    log_file: str | None,
    log_format: str | None,
    log_rotation_size: str | None,
    log_rotation_period: str | None,
    log_rotation_count: int | None,
    node: str | None,
    found: bool,
    witness: bool,
    management: bool | None,
    background: bool,
) -> None:
    """Start a broker, in the foreground unless --background is given.

    Ctrl-C or SIGTERM closes all connections and stops the broker; a second one ends it at once. SIGHUP stops a broker
    in the foreground of a terminal, and has one in the background reopen its log file.

    Exit codes: 0 after a clean stop, 69 if the broker cannot become a member of its cluster, 70 if it cannot start (for
    example, because the port is taken), 78 if settings are wrong or the data directory cannot be used.

    The environment variable WARREN_DEFAULT_USER names the first user of a new node; WARREN_DEFAULT_PASS has the
    password, or WARREN_DEFAULT_PASS_FILE the path of a file with it. WARREN_DATA_DIR and WARREN_NODENAME stand for
    --data-dir and --node, here as in all other commands, if neither an option nor the config file has these.
    WARREN_MANAGEMENT=off stands for --no-management.
    """
    if in_memory and data_dir is not None:
        raise click.UsageError("--in-memory and --data-dir contradict each other; use only one of them")
    given = {
        "port": port,
        "host": host,
        "data_dir": False if in_memory else data_dir,
        "node_name": node and full_name(node),
        "log_level": log_level,
        "log_file": log_file,
        "log_format": log_format,
        "cluster_role": "witness" if witness else None,
        "log_rotation_size": log_rotation_size,
        "log_rotation_period": log_rotation_period,
        "log_rotation_count": log_rotation_count,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options |= {name: os.environ[variable] for variable, name in FIRST_USER.items() if variable in os.environ}
    if "default_pass" in options and "default_pass_file" in options:
        raise click.UsageError("WARREN_DEFAULT_PASS and WARREN_DEFAULT_PASS_FILE contradict each other; set only one")
    try:
        settings = Settings.from_toml(config, **options) if config else Settings.of(**options)
        place = _place(config, options)
        if place:
            options |= place
            settings = Settings.from_toml(config, **options) if config else Settings.of(**options)
        if "data_dir" not in options and not _names(config, "data_dir"):
            options["data_dir"] = settings_dir = str(default_data_dir(settings.node_name, WAY_OUT))
        else:
            settings_dir = settings.data_dir or ""
        if management is not None or not _names(config, "management"):
            options["management"] = management if management is not None else _wants_management()
        if not _names(config, "control_dir"):
            options["control_dir"] = _control_dir(settings.node_name, settings_dir)
        settings = Settings.from_toml(config, **options) if config else Settings.of(**options)
    except SettingsError as error:
        raise CommandFailure(str(error), EX_CONFIG) from error
    except OSError as error:
        raise CommandFailure(f"--config: cannot read '{config}': {error.strerror}", EX_CONFIG) from error
    if background:
        start_in_background(settings)
        return
    # These imports are here because `--help` and wrong settings do not need them.
    with without_collector():
        from ...running_node import ClusterUnreachable, DataDirUnusable, StartError
        from ...server import ServerDied, configure_logging, serve
        from .recovery_bar import recovery_progress

    try:
        configure_logging(settings)
    except OSError as error:
        text = f"log_file: cannot write '{settings.log_file}': {error.strerror}"
        raise CommandFailure(text, EX_CONFIG) from error
    try:
        with recovery_progress(sys.stderr) as progress:
            serve(settings, _print_report, progress, is_founder=found)
    except DataDirUnusable as error:
        raise CommandFailure(f"{error}. On the command line, {WAY_OUT}", EX_CONFIG) from error
    except ClusterUnreachable as error:
        raise CommandFailure(str(error), EX_UNAVAILABLE) from error
    except StartError as error:
        raise CommandFailure(str(error), EX_SOFTWARE) from error
    except ServerDied as error:
        raise CommandFailure(str(error), EX_SOFTWARE) from error


def _print_report(report: str) -> None:
    """Print the start-up report. A broker that runs goes on if nobody can read it, because the disk of the standard
    output is full or the program behind the pipe has ended.
    """
    try:
        click.echo(report)
    except OSError as error:
        log.warning("the start-up report cannot be written to the standard output: %s", error.strerror)
        close_output_quietly()


def _wants_management() -> bool:
    """Whether WARREN_MANAGEMENT leaves the management process on."""
    return os.environ.get("WARREN_MANAGEMENT", "").lower() not in ("off", "false", "0", "no")


def _control_dir(node_name: str, data_dir: str) -> str:
    """The directory of the control socket, by which commands reach this node."""
    return os.path.join(data_dir, "control") if data_dir else memory_place(node_name, os.getpid())


def _place(config: str | None, options: dict[str, Any]) -> dict[str, str]:
    """The settings from the environment variables in `PLACE` that neither the options nor the config file have."""
    found = {name: os.environ.get(variable, "") for variable, name in PLACE.items()}
    if found["node_name"]:
        found["node_name"] = full_name(found["node_name"])
    return {name: value for name, value in found.items() if value and name not in options and not _names(config, name)}


def _names(config: str | None, key: str) -> bool:
    """Whether the config file, which was parsed without error before, has this key, even with the value `false`."""
    return config is not None and key in tomllib.loads(Path(config).read_text(encoding="utf-8"))
