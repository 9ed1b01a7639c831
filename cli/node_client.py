"""`NodeClient`: the command's side of the control protocol (`actors/control/frames.py`), and how a node is found.

A node is looked for in this order:

    --address HOST:PORT      a TCP port, with the secret in --cookie-file, $WARREN_COOKIE or ~/.warren.cookie
    --data-dir DIR           the run file in DIR/control; $WARREN_DATA_DIR is the same
    --node NAME              the run file in the default data directory of that name, or in the place of a node of that
                             name that keeps everything in memory; $WARREN_NODENAME is the same
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..actors.control import place
from ..actors.control.frames import FRAME_MAX, PROTOCOL, ControlFrameError, FrameBuffer, frame
from ..actors.control.proof import CHALLENGE_BYTES, SecretError, is_proof, proof, read_secret
from .failure import (
    EX_CONFIG,
    EX_DATAERR,
    EX_NOUSER,
    EX_SOFTWARE,
    EX_TEMPFAIL,
    EX_UNAVAILABLE,
    EX_USAGE,
    CommandFailure,
)

#: Seconds in which a node must accept the connection, and then greet, whatever time limit the command has (CM-23).
CONNECT_SECONDS = 5.0

#: The exit code for each kind of error that a node answers with.
EXIT_CODES = {
    "usage": EX_USAGE,
    "data": EX_DATAERR,
    "no_user": EX_NOUSER,
    "unavailable": EX_UNAVAILABLE,
    "software": EX_SOFTWARE,
    "timeout": EX_TEMPFAIL,
}


class NodeFailure(CommandFailure):
    """The node refused the operation; `kind` and `text` are the node's."""

    def __init__(self, kind: str, text: str, details: list[str]) -> None:
        super().__init__("\n".join([text, *details]), EXIT_CODES.get(kind, EX_UNAVAILABLE))
        self.kind = kind

    def show(self, file: Any = None) -> None:
        """Print the error as rabbitmqctl does, with the text on lines of its own (CM-22)."""
        click.echo(f"Error:\n{self.message}", err=True)


class Unreachable(CommandFailure):
    """The node cannot be reached; the text has what was tried, what was found, and what to do."""

    def __init__(self, target: Target, found: str) -> None:
        where = f"'{target.node}'" if target.is_named else target.phrase
        start = "warren start" if target.data_dir is None else f"warren start --data-dir {target.data_dir}"
        lines = [
            (
                f"unable to perform an operation on node {where}. Please see diagnostics information and suggestions"
                " below."
            ),
            "",
            "Most common reasons for this are:",
            "",
            f" * The node is not running: `{start}` starts one",
            " * The node has another data directory or name than this command looks for: --data-dir DIR, --node NAME",
            " * The node belongs to another user",
            "",
            "DIAGNOSTICS",
            "===========",
            "",
            f"attempted to contact: [{target.place}]",
            "",
            f" * {found}",
        ]
        super().__init__("\n".join(lines), EX_UNAVAILABLE)


@dataclass(frozen=True)
class Target:
    """The node that a command asks, and the means to find it."""

    node: str
    #: `host:port`; None for a node of this machine.
    address: str | None = None
    data_dir: str | None = None
    cookie_file: str | None = None
    #: The directory of its run file, if that is known.
    control_dir: str | None = None

    @property
    def place(self) -> str:
        """By what the command looks for the node: its address, its data directory, or its name."""
        return self.address or self.data_dir or self.node

    @property
    def is_named(self) -> bool:
        """Whether the node is looked for by its name. Otherwise the name is unknown until the node answers."""
        return self.address is None and self.data_dir is None

    @property
    def phrase(self) -> str:
        """The node in a text for people: by its name, or by where it is looked for."""
        if self.address is not None:
            return f"at {self.address}"
        return self.node if self.data_dir is None else f"in '{self.data_dir}'"

    def directories(self) -> list[str]:
        """Where the node's run file may be."""
        if self.control_dir is not None:
            return [self.control_dir]
        if self.data_dir is not None:
            return [os.path.join(self.data_dir, "control")]
        return [str(default_data_dir(self.node) / "control"), *place.memory_places(self.node)]


def full_name(node: str) -> str:
    """A node's name with its host (CM-12)."""
    name, at, host = node.partition("@")
    if not name or not all(character.isalnum() or character in "_-" for character in name):
        raise CommandFailure(f"'{node}' is no node name; it is like warren@localhost", EX_DATAERR)
    return f"{name}@{host}" if at and host else f"{name}@localhost"


def default_data_dir(node_name: str, way_out: str = "use --data-dir DIR") -> Path:
    """The data directory of a broker of this name if none is set (XDG base directories). Raises CommandFailure."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not base.is_absolute():  # unset, empty and relative values all mean the default
        try:
            base = Path.home() / ".local" / "share"
        except RuntimeError as error:
            raise CommandFailure(
                f"there is no default data directory, because this user has no home directory: {way_out}", EX_CONFIG
            ) from error
    return base / "warren" / node_name.replace(os.sep, "_")


class NodeClient:
    """A connection with a node, for one request after the other. Raises Unreachable if there is no node."""

    def __init__(self, target: Target, timeout: float | None = None) -> None:
        self.target = target
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        #: When the node must have greeted; None once it has.
        self._greeting_ends: float | None = None
        #: The node's name: the expected one, and the one in the node's greeting once that has arrived.
        self.node_name = target.node
        self._input = FrameBuffer(FRAME_MAX)
        #: Called before each wait for the node.
        self.before_wait: Callable[[], None] = lambda: None
        self._socket, secret = self._connect()
        try:
            self._greet(secret)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def allow(self, seconds: float) -> None:
        """Set the time limit, in seconds, that all operations from now on share."""
        self._deadline, self._timeout = time.monotonic() + seconds, seconds

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests ---

    def call(self, operation: str, **arguments: Any) -> Any:
        """Perform an operation and return its result; a listing is returned as one list."""
        rows: list[Any] = []
        is_listing = False
        for message in self._answers(operation, arguments):
            if "rows" in message:
                is_listing = True
                rows += message["rows"]
            elif not is_listing and message["result"] is not None:
                return message["result"]
        return rows

    def rows(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The rows of a listing, as they arrive."""
        for message in self._answers(operation, arguments):
            yield from message.get("rows", ())

    def await_end(self) -> None:
        """Return when the node has closed the connection, which it does when it ends."""
        while self._receive() is not None:
            pass

    def _answers(self, operation: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
        try:
            data = frame({"operation": operation, "arguments": arguments})
            # A node that is busy reads a long request, such as definitions, later than it answers a greeting.
            self._socket.settimeout(self._left())
            self._socket.sendall(data)
        except TimeoutError:
            raise self._timed_out(operation) from None
        except OSError:
            pass  # the node's answer has the reason, if it sent one
        except (ValueError, OverflowError, TypeError) as error:
            raise CommandFailure(f"an argument cannot be sent: {error}", EX_DATAERR) from None
        while True:
            message = self._receive(operation)
            if message is None:
                raise Unreachable(self.target, f"the node closed the connection during {operation}")
            if "error" in message:
                refusal = message["error"]
                raise NodeFailure(refusal["kind"], refusal["text"], refusal["details"])
            yield message
            if "result" in message:
                return

    # -- the connection ---

    def _connect(self) -> tuple[socket.socket, bytes | None]:
        target = self.target
        secret: bytes | None
        if target.address is not None:
            host, _, port = target.address.rpartition(":")
            if not host or not port.isdigit():
                raise CommandFailure(f"--address must be HOST:PORT, not '{target.address}'", EX_USAGE)
            try:
                secret = _own_secret(target.cookie_file)
                return socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS), secret
            except SecretError as error:
                raise CommandFailure(str(error), EX_CONFIG) from None
            except OSError as error:
                raise Unreachable(target, f"{target.address} does not accept connections: {error}") from None
        if target.data_dir is not None and not os.path.isdir(target.data_dir):
            raise Unreachable(target, f"there is no directory '{target.data_dir}'")
        problems = []
        found: list[tuple[socket.socket, bytes | None, place.RunFile]] = []
        directories = target.directories()
        for directory in directories:
            try:
                run_file = place.read_run_file(directory)
                connected = place.connect(run_file, CONNECT_SECONDS)
                found.append((connected, None if run_file.socket is not None else place.cookie(directory), run_file))
            except place.PlaceError as error:
                problems.append(str(error))
            except SecretError as error:
                raise CommandFailure(str(error), EX_CONFIG) from None
            except PermissionError as error:
                problems.append(f"the socket of the node in '{directory}' belongs to another user: {error.strerror}")
            except OSError as error:
                problems.append(
                    f"the node of '{directory}' (process {run_file.pid}) does not answer: {error.strerror or error}"
                )
            if found and directory == directories[0]:
                # The node with the default data directory is asked even if nodes in memory have its name too.
                break
        if len(found) == 1:
            return found[0][:2]
        for connected, _, _ in found:
            connected.close()
        if found:
            processes = ", ".join(str(run_file.pid) for _, _, run_file in found)
            problems = [f"several nodes have this name (processes {processes}): use --data-dir DIR"]
        raise Unreachable(target, "\n * ".join(problems))

    def _greet(self, secret: bytes | None) -> None:
        self._greeting_ends = time.monotonic() + CONNECT_SECONDS
        try:
            hello = self._receive_greeting()
            if hello.get("hello") != PROTOCOL:
                raise Unreachable(self.target, "something else than a node of this version of warren answers there")
            if isinstance(hello.get("node"), str):
                self.node_name = hello["node"]
            theirs = hello.get("challenge")
            if theirs is None and secret is None:
                self._greeting_ends = None
                return
            if secret is None:
                raise Unreachable(self.target, "the node asks for a secret, which this command does not have")
            if not isinstance(theirs, bytes):
                raise Unreachable(
                    self.target, "something else than a node answers there: it does not ask for the secret"
                )
            ours = secrets.token_bytes(CHALLENGE_BYTES)
            self._socket.sendall(frame({"proof": proof(secret, "client", theirs, ours), "challenge": ours}))
            answer = self._receive_greeting()
            if not is_proof(answer.get("proof"), secret, "node", theirs, ours):
                raise Unreachable(
                    self.target, "the node has another secret: give this command the file of its control_cookie_file"
                )
            self._greeting_ends = None
        except OSError as error:
            raise Unreachable(
                self.target, f"a connection was accepted, but nothing that is a node answered: {error}"
            ) from None

    def _receive_greeting(self) -> dict[str, Any]:
        message = self._receive()
        if message is None:
            raise Unreachable(self.target, "the node closed the connection at once")
        return message

    def _receive(self, operation: str = "") -> dict[str, Any] | None:
        """The next message of the node; None if it has closed the connection."""
        try:
            while (message := self._input.next()) is None:
                self.before_wait()
                self._socket.settimeout(self._left())
                try:
                    data = self._socket.recv(1 << 18)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self._input.feed(data)
            return message
        except TimeoutError:
            if not operation or self._timeout is None:
                raise
            raise self._timed_out(operation) from None
        except ControlFrameError as error:
            raise Unreachable(self.target, f"something else than a node of warren answers there: {error}") from None

    def _left(self) -> float | None:
        """The seconds that are left; None without a time limit."""
        ends = [end for end in (self._deadline, self._greeting_ends) if end is not None]
        return max(0.001, min(ends) - time.monotonic()) if ends else None

    def _timed_out(self, operation: str) -> CommandFailure:
        used = round((self._timeout or 0) * 1000)
        return CommandFailure(
            f"operation {operation} on node {self.node_name} timed out. Timeout value used: {used}", EX_TEMPFAIL
        )


def _own_secret(cookie_file: str | None) -> bytes:
    """The secret that this user has for nodes of other machines. Raises SecretError."""
    given = os.environ.get("WARREN_COOKIE")
    if cookie_file is None and given:
        return given.encode()
    default = str(Path.home() / ".warren.cookie")
    if cookie_file is None and not os.path.exists(default):
        raise SecretError(
            f"--address needs the secret of that node, and there is no file '{default}': name the file with "
            "--cookie-file FILE, or set WARREN_COOKIE to the secret"
        )
    return read_secret(cookie_file or default)
