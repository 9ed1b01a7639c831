"""Operations on a node's settings while it runs: limits on memory and disk, the settings themselves, and the log."""

from __future__ import annotations

import logging
from dataclasses import fields

from .....runtime.log_file import reopen_log_files
from .....runtime.log_format import ROOT
from .....settings import Settings
from ....contracts.metadata import to_metadata
from ....contracts.node import to_node
from ....contracts.resources import to_memory_monitor
from ..registry import OperationError, Operator, Rows, check_vhost, operation

#: Parts of the names of settings whose values are secret, besides those that are declared so (CM-75).
SECRET_WORDS = ("pass", "secret", "token")

#: RabbitMQ's names of levels, and Python's levels.
LOG_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}


@operation()
async def set_vm_memory_high_watermark(operator: Operator, *, value: float | str) -> dict[str, object]:
    """Use another memory watermark until the node ends: a share of the memory, or a size as text (CM-180)."""
    wanted = value if isinstance(value, str) else float(value)
    return {**await operator.process.ask(operator.context.memory_monitor, to_memory_monitor.set_watermark(wanted))}


@operation()
async def set_disk_free_limit(operator: Operator, *, value: float | str) -> dict[str, object]:
    """Use another limit of free disk space until the node ends: a multiple of the memory, or a size (CM-182)."""
    wanted = value if isinstance(value, str) else float(value)
    return {**await operator.process.ask(operator.node, to_node.set_disk_free_limit(wanted))}


@operation()
async def trace(operator: Operator, *, vhost: str, on: bool) -> None:
    """Send copies of all messages of a virtual host to amq.rabbitmq.trace, or stop that (CM-110)."""
    check_vhost(operator, vhost)
    await operator.process.ask(operator.context.metadata, to_metadata.trace(vhost, on))


@operation(while_booting=True)
async def environment(operator: Operator) -> Rows:
    """Every setting with its value and whether it is the default (CM-74); secrets are blanked."""
    settings, defaults = operator.context.settings, Settings()
    rows = []
    for item in fields(Settings):
        value = getattr(settings, item.name)
        origin = "default" if value == getattr(defaults, item.name) else "set"
        if item.metadata.get("secret") or any(word in item.name for word in SECRET_WORDS):
            value = "***"
        rows.append({"key": item.name, "value": _plain(value), "origin": origin})
    return rows


@operation(while_booting=True)
async def rotate_logs(operator: Operator) -> int:
    """Reopen the log files, which an operator has renamed (CM-55). Returns their number."""
    return reopen_log_files()


@operation()
async def reload_certificates(operator: Operator) -> None:
    """Read the files of certificates again, for clients and nodes that connect from now on."""
    settings = operator.context.settings
    if settings.tls_port is None and settings.cluster_tls_cert_file is None:
        raise OperationError("unavailable", "the node does not listen for TLS; the setting tls_port makes it do so")
    fault = await operator.process.ask(operator.node, to_node.reload_certificates())
    if fault:
        raise OperationError(
            "unavailable", f"the certificate in use stays, because the new one cannot be used: {fault}"
        )


@operation(while_booting=True)
async def set_log_level(operator: Operator, *, level: str, category: str | None = None) -> None:
    """Log from this level on until the node ends, in one category or in all without a level of their own (CM-186)."""
    if level not in LOG_LEVELS:
        raise OperationError("data", f"level {level} is not supported. Try one of {', '.join(LOG_LEVELS)}")
    name = ROOT if category is None else f"{ROOT}.{category}"
    known = sorted(name for name in logging.root.manager.loggerDict if name.startswith(f"{ROOT}."))
    if category is not None and name not in known:
        categories = ", ".join(each.removeprefix(f"{ROOT}.") for each in known)
        raise OperationError("data", f"there is no category '{category}'. Try one of {categories}")
    logging.getLogger(name).setLevel(LOG_LEVELS[level])


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, (str, int, float, dict)) or value is None else str(value)
