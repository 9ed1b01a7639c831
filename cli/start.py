"""`warren start`: a broker in the foreground."""

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import click

from ..settings import DEFAULT_PORT, Settings, SettingsError
from .failure import EX_CONFIG, EX_SOFTWARE, CommandFailure

LOG_LEVELS = ["debug", "info", "warning", "error"]
WAY_OUT = "--data-dir DIR, or --in-memory to keep nothing"


@click.command()
@click.option("--port", type=int, help=f"TCP port to listen on; 0 takes a free one.  [default: {DEFAULT_PORT}]")
@click.option("--host", help="Address to listen on; 0.0.0.0 for all of this machine's.  [default: 127.0.0.1]")
@click.option(
    "--config",
    metavar="FILE.toml",
    type=click.Path(dir_okay=False),
    help="Settings, one `name = value` a line; options win over it.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Directory for what is durable, made if there is none.  [default: ~/.local/share/warren/NODE_NAME]",
)
@click.option("--in-memory", is_flag=True, help="Keep nothing on disk: all is lost when the broker stops.")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="Least level of what is logged on standard error.",
)
def start(
    port: int | None, host: str | None, config: str | None, data_dir: str | None, in_memory: bool, log_level: str
) -> None:
    """Start a broker in the foreground.

    It runs until Ctrl-C or SIGTERM, which close all connections properly; a second signal ends it at once.
    Exit codes: 0 after a clean stop, 70 when it cannot start (a taken port), 78 for wrong settings or a data directory that cannot be used.
    """
    if in_memory and data_dir is not None:
        raise click.UsageError("--in-memory and --data-dir say the opposite of each other; leave one out")
    given = {"port": port, "host": host, "data_dir": False if in_memory else data_dir}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        settings = Settings.from_toml(config, **options) if config else Settings.of(**options)
        if "data_dir" not in options and not _names_data_dir(config):
            options["data_dir"] = str(default_data_dir(settings.node_name))
            settings = Settings.from_toml(config, **options) if config else Settings.of(**options)
    except SettingsError as error:
        raise CommandFailure(str(error), EX_CONFIG) from error
    except OSError as error:
        raise CommandFailure(f"cannot read {config}: {error.strerror}", EX_CONFIG) from error
    # Here, not above: help texts and wrong settings need no broker loaded.
    from ..running_node import DataDirUnusable, StartError
    from ..server import ServerDied, configure_logging, serve
    from .recovery_bar import recovery_progress

    configure_logging(log_level)
    try:
        with recovery_progress(sys.stderr) as progress:
            serve(settings, lambda report: click.echo(report), progress)
    except DataDirUnusable as error:
        raise CommandFailure(f"{error}. On the command line: {WAY_OUT}", EX_CONFIG) from error
    except StartError as error:
        raise CommandFailure(str(error), EX_SOFTWARE) from error
    except ServerDied as error:
        raise CommandFailure(str(error), EX_SOFTWARE) from error


def default_data_dir(node_name: str) -> Path:
    """Where a broker of that name keeps what is durable unless it is told otherwise: with the user's other data (XDG base directories)."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not base.is_absolute():  # the rule for a variable that is unset, empty or relative is one
        try:
            base = Path.home() / ".local" / "share"
        except RuntimeError as error:
            raise CommandFailure(
                f"this user has no home directory to keep data in. Say where: {WAY_OUT}", EX_CONFIG
            ) from error
    return base / "warren" / node_name.replace(os.sep, "_")


def _names_data_dir(config: str | None) -> bool:
    """Whether the file, which could be read, sets it; `false` means in memory."""
    return config is not None and "data_dir" in tomllib.loads(Path(config).read_text(encoding="utf-8"))
