"""`warren start`: a broker in the foreground."""

import click

from ..settings import DEFAULT_PORT, Settings, SettingsError
from .failure import EX_CONFIG, EX_SOFTWARE, Failure

LOG_LEVELS = ["debug", "info", "warning", "error"]


@click.command()
@click.option("--port", type=int, help=f"TCP port to listen on; 0 takes a free one.  [default: {DEFAULT_PORT}]")
@click.option("--host", help="Address to listen on; 0.0.0.0 for all of this machine's.  [default: 127.0.0.1]")
@click.option("--config", metavar="FILE.toml", type=click.Path(dir_okay=False), help="Settings, one `name = value` a line; options win over it.")
@click.option("--data-dir", metavar="DIR", help="Directory for durable data. Not in this build, which keeps messages in memory.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True, help="Least level of what is logged on standard error.")
def start(port: int | None, host: str | None, config: str | None, data_dir: str | None, log_level: str) -> None:
    """Start a broker in the foreground.

    It runs until Ctrl-C or SIGTERM, which close all connections properly; a second signal ends it at once.
    Exit codes: 0 after a clean stop, 70 when it cannot start (a taken port), 78 for wrong settings.
    """
    given = {"port": port, "host": host, "data_dir": data_dir}
    options = {name: value for name, value in given.items() if value is not None}
    try:
        settings = Settings.from_toml(config, **options) if config else Settings.of(**options)
    except SettingsError as error:
        raise Failure(str(error), EX_CONFIG) from error
    except OSError as error:
        raise Failure(f"cannot read {config}: {error.strerror}", EX_CONFIG) from error
    # Here, not above: help texts and wrong settings need no broker loaded.
    from ..running_node import StartError
    from ..server import ServerDied, configure_logging, serve

    configure_logging(log_level)
    try:
        serve(settings, on_ready=lambda report: click.echo(report))
    except StartError as error:
        raise Failure(str(error), EX_CONFIG if settings.data_dir else EX_SOFTWARE) from error
    except ServerDied as error:
        raise Failure(str(error), EX_SOFTWARE) from error
