"""The place where a node can be reached by commands on its own machine: a directory with a socket and a run file.

    node.json     who runs: process id, node name, start time, and the address to connect to
    socket        the control socket, of mode 0600 in a directory of mode 0700, so that only the owner connects
    cookie        where there are no Unix sockets: the secret for a TCP port on the loopback address

The path of a Unix socket has a maximal length, about a hundred bytes. A longer one is replaced by a new directory
below the one for temporary files, also of mode 0700, and the run file names it.

A place outside a data directory has no lock. So a node takes the place only if nobody answers at the address that an
earlier run file names.

All functions wait for the disk: a process calls them in another thread.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import stat
import struct
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .proof import make_secret

#: Bytes of a path with which every system can bind a Unix socket; macOS takes 103.
SOCKET_PATH_MAX = 100

#: Seconds that a node waits for an answer at the address of an earlier run file.
PROBE_SECONDS = 1.0

RUN_FILE, SOCKET, COOKIE = "node.json", "socket", "cookie"


class PlaceError(Exception):
    """The directory cannot be used, or has no run file. The text names the directory, the reason and the way out."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """What `node.json` has. Either `socket` is the path of the Unix socket, or `host` and `port` are an address."""

    node: str
    pid: int
    started: float
    socket: str | None = None
    host: str | None = None
    port: int | None = None


def has_unix_sockets() -> bool:
    """Whether this system has Unix sockets, and its Python can use them."""
    return hasattr(socket, "AF_UNIX")


def prepare(directory: str) -> str:
    """Make the directory ready for a new node. Returns the path for its Unix socket. Raises PlaceError."""
    try:
        if os.path.dirname(os.path.dirname(directory)) == _memory_root():
            _own(_memory_root())
        _own(directory)
        _check_free(directory)
        path = os.path.join(directory, SOCKET)
        if len(os.fsencode(path)) > SOCKET_PATH_MAX:
            path = os.path.join(tempfile.mkdtemp(prefix="warren-"), SOCKET)
        with suppress(FileNotFoundError):
            os.unlink(path)
        return path
    except OSError as error:
        raise PlaceError(
            f"control directory '{directory}' cannot be used: {error.strerror or error}. Choose another control_dir"
        ) from None


def _own(directory: str) -> None:
    """Make the directory, for this user alone."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if os.name == "posix":
        found = os.lstat(directory)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PlaceError(f"control directory '{directory}' belongs to somebody else; choose another control_dir")
        os.chmod(directory, 0o700)


def _check_free(directory: str) -> None:
    try:
        before = read_run_file(directory)
    except PlaceError:
        return
    try:
        connect(before, PROBE_SECONDS).close()
    except TimeoutError:
        pass  # The node is alive, but slow or flooded with clients.
    except OSError:
        _remove(before)
        return
    raise PlaceError(
        f"control directory '{directory}' is in use by node {before.node} (process {before.pid}); give this node "
        "another node_name or control_dir"
    )


def cookie(directory: str) -> bytes:
    """The secret of a node whose place has no Unix socket. Raises SecretError."""
    return make_secret(os.path.join(directory, COOKIE))


def publish(directory: str, run_file: RunFile) -> None:
    """Write the run file of a node that listens already; readers see it whole or not at all. Raises OSError."""
    if run_file.socket is not None:
        os.chmod(run_file.socket, 0o600)
    temporary = os.path.join(directory, f"{RUN_FILE}.new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(asdict(run_file), file)
    os.replace(temporary, os.path.join(directory, RUN_FILE))


def withdraw(directory: str, run_file: RunFile) -> None:
    """Remove run file and socket of a node that ends, unless another node has taken the place."""
    with suppress(PlaceError, OSError):
        if read_run_file(directory) == run_file:
            _remove(run_file)
            os.unlink(os.path.join(directory, RUN_FILE))
            os.rmdir(directory)


def memory_place(node: str, pid: int) -> str:
    """The directory for a node without a data directory, in the process `pid`. Several nodes may have one name."""
    return os.path.join(_memory_root(), node.replace(os.sep, "_"), str(pid))


def memory_places(node: str) -> list[str]:
    """The directories of nodes of this name that have no data directory."""
    root = _memory_root()
    try:
        found = os.lstat(root)
        # In the directory for temporary files another user may have made this directory.
        if not stat.S_ISDIR(found.st_mode) or os.name == "posix" and found.st_uid != os.geteuid():
            return []
        directory = os.path.join(root, node.replace(os.sep, "_"))
        return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    except OSError:
        return []


def _memory_root() -> str:
    """The directory of this user's nodes without a data directory. Its contents need not survive a restart."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        return os.path.join(runtime, "warren")
    user = str(os.geteuid()) if hasattr(os, "geteuid") else getpass.getuser()
    return os.path.join(tempfile.gettempdir(), f"warren-{user}")


def _remove(run_file: RunFile) -> None:
    if run_file.socket is None:
        return
    with suppress(OSError):
        os.unlink(run_file.socket)
    parent = Path(run_file.socket).parent
    if parent.name.startswith("warren-"):
        with suppress(OSError):
            parent.rmdir()


def read_run_file(directory: str) -> RunFile:
    """The run file in a directory. Raises PlaceError if there is none that can be read."""
    path = os.path.join(directory, RUN_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return RunFile(**json.load(file))
    except FileNotFoundError:
        raise PlaceError(f"no node runs there: '{path}' does not exist") from None
    except PermissionError as error:
        raise PlaceError(f"'{path}' cannot be read: {error.strerror}{_owner_hint(directory)}") from None
    except OSError as error:
        raise PlaceError(f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise PlaceError(f"'{path}' is no run file of warren") from None


def _owner_hint(directory: str) -> str:
    """Who owns the nearest folder of `directory` that this user can see, as the end of an error text."""
    try:
        import pwd
    except ImportError:
        return ""  # Windows has no owners of this kind
    path = os.path.abspath(directory)
    while (parent := os.path.dirname(path)) != path:
        try:
            owner = os.stat(path).st_uid
        except OSError:
            path = parent
            continue
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = str(owner)
        return f"; '{path}' belongs to user {name}, who alone can operate this node from here"
    return ""


def connect(run_file: RunFile, timeout: float | None) -> socket.socket:
    """Connect to the node that the run file describes, and return the socket. Raises OSError."""
    if run_file.socket is None:
        return socket.create_connection((run_file.host or "127.0.0.1", run_file.port or 0), timeout)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect_unix(connected, run_file.socket, timeout)
        connected.settimeout(timeout)
    except BaseException:
        connected.close()
        raise
    return connected


def _connect_unix(connected: socket.socket, path: str, timeout: float | None) -> None:
    """Connect, and wait for a place in the backlog of the node if other clients fill it. Raises TimeoutError.

    A socket with a timeout of Python's does not wait for that: it is in non-blocking mode, and the system refuses it.
    """
    seconds, fraction = divmod(timeout or 0, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(fraction * 1e6)))
    try:
        connected.connect(path)
    except BlockingIOError:
        raise TimeoutError(f"it accepted no connection within {timeout} s, because many other clients wait") from None
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))


def new_run_file(node: str, socket: str | None = None, host: str | None = None, port: int | None = None) -> RunFile:
    """The run file of this process."""
    return RunFile(node, os.getpid(), time.time(), socket, host, port)
