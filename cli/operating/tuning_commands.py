"""The commands for a node's limits and settings while it runs (CM-74, CM-180 to CM-183)."""

from __future__ import annotations

import re

import click

from ...settings.limits import shown_size
from ..node_command import BadArguments, Call, node_command, one_of

SECTION = "Configuration and environment"

#: The log levels that shell completion proposes.
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency", "none")

#: A size as rabbitmqctl accepts it, and its units (CM-181).
_SIZE = re.compile(r"(\d+)([A-Za-z]*)", re.ASCII)
_UNITS = {"", "k", "kiB", "M", "MiB", "G", "GiB", "kB", "MB", "GB"}


@node_command(SECTION)
@click.argument("limit", nargs=-1)
def set_vm_memory_high_watermark(call: Call, limit: tuple[str, ...]) -> None:
    """Set the memory above which publishers are blocked, until the node ends.

    LIMIT is a fraction from 0.0 to 1.0, or the word `absolute` and a size such as 2GB.
    """
    if not limit or limit == ("absolute",):
        raise BadArguments("not enough arguments.")
    is_absolute = limit[0] == "absolute"
    if len(limit) > 1 + is_absolute:
        raise BadArguments("too many arguments.")
    value: float | str
    if is_absolute:
        value = _checked_size(limit[1])
        shown = f"{value} bytes"
    else:
        value = _number(limit[0])
        if not 0.0 <= value <= 1.0:
            raise BadArguments("Bad argument: The threshold should be a fraction between 0.0 and 1.0", is_data=True)
        shown = limit[0]
    call.banner(f"Setting memory threshold on {call.node_name} to {shown} ...")
    status = call.ask("set_vm_memory_high_watermark", value=value)
    call.remark(
        f"Publishers are blocked while more than {shown_size(status['limit'])} of memory are in use. This limit is in "
        "force until the node ends; the setting vm_memory_high_watermark makes it permanent."
    )
    call.done()


@node_command(SECTION)
@click.argument("limit", nargs=-1)
def set_disk_free_limit(call: Call, limit: tuple[str, ...]) -> None:
    """Set the free disk space below which publishers are blocked, until the node ends.

    LIMIT is a size such as 2GB, or the word `mem_relative` and a multiple of the memory such as 1.5.
    """
    if not limit or limit == ("mem_relative",):
        raise BadArguments("not enough arguments.")
    is_relative = limit[0] == "mem_relative"
    if len(limit) > 1 + is_relative:
        raise BadArguments("too many arguments.")
    value: float | str
    if is_relative:
        value = _number(limit[1])
        if not 0.0 <= value < float("inf"):
            raise BadArguments("Bad argument.", is_data=True)
        banner = f"Setting disk free limit on {call.node_name} to {limit[1]} times the total RAM ..."
    else:
        found = _SIZE.fullmatch(limit[0])
        if found is None or found[2] not in _UNITS:
            raise BadArguments(f"Bad argument: '{limit[0]}' is no size such as 50MB, 2GiB or 1000000", is_data=True)
        value = limit[0]
        banner = f"Setting disk free limit on {call.node_name} to {value} bytes ..."
    call.banner(banner)
    status = call.ask("set_disk_free_limit", value=value)
    call.remark(
        f"Publishers are blocked while less than {shown_size(status['limit'])} of disk space are free. This limit is "
        "in force until the node ends; the setting disk_free_limit makes it permanent."
    )
    call.done()


def _checked_size(text: str) -> str:
    """The same size. Raises BadArguments, with rabbitmqctl's texts, if it is none."""
    found = _SIZE.fullmatch(text)
    if found is None:
        is_fraction = re.match(r"\d+\.\d", text, re.ASCII)
        wrong = f": '{text}' is no size such as 50MB, 2GiB or 1000000"
        detail = ": The threshold should be an integer." if is_fraction else wrong
        raise BadArguments(f"Bad argument{detail}", is_data=True)
    if found[2] not in _UNITS:
        raise BadArguments("Bad argument: Invalid units.", is_data=True)
    return text


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadArguments(f"Bad argument: '{text}' is no number", is_data=True) from None


@node_command(SECTION, "Application environment of node {node} ...", timeout=60.0)
def environment(call: Call) -> None:
    """Show every setting of the node, its value, and whether it is the default. Secrets are blanked."""
    call.list(("key", "value", "origin"), call.node.rows("environment"))


@node_command(SECTION, "Reopening the log files of node {node} ...")
def rotate_logs(call: Call) -> None:
    """Reopen the log files, after they were renamed. A node that logs to its standard error has none."""
    count = call.ask("rotate_logs")
    call.remark(f"Reopened {count} log file{'' if count == 1 else 's'}.")
    call.done()


@node_command(SECTION, "Reloading the certificates of node {node} ...")
def reload_certificates(call: Call) -> None:
    """Read the files of the certificates for TLS again, after they were renewed. SIGHUP does the same."""
    call.ask("reload_certificates")
    call.remark("Clients that connect from now on get it; open connections go on as they are.")
    call.done()


@node_command(SECTION)
@click.argument("level", shell_complete=one_of(*LEVELS))
@click.option("--category", help="Only for lines of this name, such as connection for warren.connection.")
def set_log_level(call: Call, level: str, category: str | None) -> None:
    """Set the LEVEL from which on lines are logged, until the node ends: debug, info, notice, warning, error, critical,
    alert, emergency or none.
    """
    of_category = f' for category "{category}"' if category is not None else ""
    call.banner(f'Setting log level{of_category} to "{level}" ...')
    call.ask("set_log_level", level=level, category=category)
    call.done()


@node_command(SECTION, "Setting cluster name to {name} ...")
@click.argument("name")
def set_cluster_name(call: Call, name: str) -> None:
    """Give the cluster the name NAME, which clients receive when they connect; it survives a restart."""
    if not name:
        raise BadArguments("Bad argument: the cluster name cannot be an empty string", is_data=True)
    call.ask("set_cluster_name", name=name)
    call.done()


COMMANDS = (
    set_vm_memory_high_watermark,
    set_disk_free_limit,
    environment,
    rotate_logs,
    reload_certificates,
    set_log_level,
    set_cluster_name,
)
