"""`serve`: the management process, from its sockets to its end.

The process writes lines of JSON to its standard output, which the node reads: `{"ready": {protocol: port}}` once,
`{"log": [level, text]}` for its log, and `{"failed": text}` if it cannot listen. It ends when its standard input is
closed, because that is how it detects that the node has ended, even by `kill -9`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from ..actors.management.config import Config
from .answers.prometheus import Metrics
from .app import application
from .bounded_connection import BoundedConnection
from .copy.follower import StatisticsFollower
from .copy.node_link import NodeLink
from .copy.node_state import NodeState

log = logging.getLogger("warren.management")

#: Connections that may wait in the operating system to be accepted.
BACKLOG = 1_024

#: Connections that are served at the same time; requests beyond them are answered 503.
CLIENTS_MAX = 2_000

#: Bytes of a request line with its headers.
HEAD_MAX = 64 * 1024


class CannotListen(Exception):
    """A port cannot be used. The text names it, the reason and the way out."""


class ToNodeLog(logging.Handler):
    """Sends the lines of the log to the node, which writes them to its own log."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record) if record.exc_info else record.getMessage()
        report(log=[record.levelname.lower(), text])


def report(**message: Any) -> None:
    """Write one line for the node. Does nothing if the node has ended."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A listening socket. Raises CannotListen."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=False)
    except OSError as error:
        raise CannotListen(
            f"management cannot listen on {host}:{port}: {error.strerror}. Free the port, or choose another {setting}"
        ) from None


class _Server(uvicorn.Server):
    """A server that installs no signal handlers, because several servers share the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: ASGIApp, config: Config, tls: bool = False) -> _Server:
    """A server for this application. Raises CannotListen for a certificate that cannot be used."""
    found = uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=config.idle_timeout,
        timeout_graceful_shutdown=1,
        limit_concurrency=CLIENTS_MAX,
        h11_max_incomplete_event_size=HEAD_MAX,
        backlog=BACKLOG,
        ssl_certfile=config.tls_cert_file if tls else None,
        ssl_keyfile=config.tls_key_file if tls else None,
    )
    try:
        found.load()
    except (OSError, ssl.SSLError) as error:
        raise CannotListen(
            f"management cannot use the certificate in '{config.tls_cert_file}': {error}. Correct tls_cert_file and"
            " tls_key_file, or set management_tls_port to false"
        ) from None
    return _Server(found)


async def serve(config: Config) -> None:
    """Serve until the standard input ends. Raises CannotListen."""
    state = NodeState(config.node_name)
    link = NodeLink(config.control_dir)
    follower = StatisticsFollower(link, state, config.interval / 1000)
    app = application(config, state, link, follower)
    wanted: list[tuple[str, int | None, ASGIApp, str]] = [
        ("http", config.port, app, "management_port"),
        ("https", config.tls_port, app, "management_tls_port"),
        ("http/prometheus", config.prometheus_port, Metrics(config, state, follower), "prometheus_port"),
    ]
    ports: dict[str, int] = {}
    servers = []
    for protocol, port, target, setting in wanted:
        if port is not None:
            server = _server(target, config, protocol == "https")
            sock = listen(config.host, port, setting)
            ports[protocol] = sock.getsockname()[1]
            servers.append((server, sock))
    app.state.ports = ports
    following = asyncio.create_task(follower.run())
    serving = [asyncio.create_task(server.serve(sockets=[sock])) for server, sock in servers]
    report(ready=ports)
    try:
        await _end_of_any(following, *serving)
    finally:
        following.cancel()
        for server, _ in servers:
            server.should_exit = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.gather(*serving, return_exceptions=True)


async def _end_of_any(*tasks: asyncio.Task[None]) -> None:
    """Return when the standard input is closed or a task ends; raises the exception that ended the task."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    end = asyncio.create_task(reader.read())
    done, _ = await asyncio.wait({end, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task in done:
            end.cancel()
            task.result()
