"""Nodes as processes of the operating system: `warren start`, or RabbitMQ's server to check the tests against.

Every wait has a time limit, and its error says what it waited for and shows the end of the node's log.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from warren.tests.behaviour.wire import Client, Refused

from .link_proxy import LinkProxies, free_ports

#: Seconds that a node may take to serve clients, or a cluster to be whole again; on an idle machine both take a few.
READY_SECONDS = 300.0
STOP_SECONDS = 300.0
#: Seconds between two checks of a condition that can only be polled.
LOOK_SECONDS = 0.05

#: `warren`, after some Python code that makes the node faulty.
_PROGRAM = """
import sys
fault = sys.argv.pop(1)
exec(fault)
from warren.cli import main
sys.argv[0] = "warren"
main()
"""


class Waited(AssertionError):
    """Something did not happen in time."""


def wait_for(what: str, is_so: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
    """Wait until `is_so`; raise Waited, which names `what`, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise Waited(f"waited {seconds:.0f} s for {what}")
        time.sleep(LOOK_SECONDS)


class Node:
    """One node: a process that is started, killed, paused, stopped and started again on the same directory."""

    def __init__(self, name: str, directory: Path, port: int, command: Sequence[str], **environment: str) -> None:
        self.name = name
        self.directory = directory
        self.port = port
        self.log = directory / "log"
        self.data_dir = directory / "data"
        self.is_paused = False
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"<Node {self.name}>"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the node's process."""
        return {**os.environ, **self._environment}

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    def start(self) -> None:
        """Start the process. It serves clients later: see `wait_ready`."""
        assert self._process is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self.environment,
                start_new_session=True,  # RabbitMQ's script leaves the server in a process of its own
            )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until a client can connect."""

        def is_ready() -> bool:
            code = self.process.poll()
            if code is not None:
                raise Waited(f"{self.name} ended with exit code {code} before it served clients\n{self.log_end()}")
            return self.serves()

        try:
            wait_for(f"{self.name} to serve clients", is_ready, seconds)
        except Waited as waited:
            waited.add_note(self.log_end())
            raise

    def serves(self) -> bool:
        """Whether the node lets a client connect now."""
        try:
            client = Client(self.url, timeout=60.0)
        except (OSError, Refused, AssertionError):
            return False
        client.abort()
        return True

    def log_end(self, size: int = 4_000) -> str:
        data = self.log.read_bytes() if self.log.exists() else b""
        return f"--- the end of the log of {self.name} ---\n{data[-size:].decode(errors='replace')}"

    def kill(self) -> None:
        """SIGKILL, if the process has not ended by itself."""
        with suppress(ProcessLookupError):
            self._signal(signal.SIGKILL)
        self._ended()

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT, if the node is paused."""
        if self.is_paused:
            self._signal(signal.SIGCONT)
            self.is_paused = False

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """SIGTERM, and wait until the process has ended. Raises Waited if it does not, or ends with an error."""
        self._signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Waited(f"waited {seconds:.0f} s for {self.name} to stop\n{self.log_end()}") from None
        self._ended()
        if code:
            raise Waited(f"{self.name} stopped with exit code {code}\n{self.log_end()}")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `warren` with these arguments for this node, which is one of warren's."""
        command = [sys.executable, "-m", "warren", "--data-dir", str(self.data_dir), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, cwd="/", timeout=300)

    def wipe(self) -> None:
        """Delete the data directory of a node that does not run."""
        assert self._process is None, f"{self.name} runs"
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def _signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def _ended(self) -> None:
        self.process.wait()
        with suppress(ProcessLookupError):
            # Kill also the processes that the node has started and left behind.
            os.killpg(self.process.pid, signal.SIGKILL)
        self._process = None
        self.is_paused = False


class Nodes:
    """Several nodes. Their network can be cut only if there are proxies."""

    def __init__(self, nodes: Sequence[Node], proxies: LinkProxies | None = None) -> None:
        self._nodes = {node.name: node for node in nodes}
        self.proxies = proxies

    @property
    def names(self) -> list[str]:
        return list(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def start(self) -> None:
        """Start all nodes at once, and wait until each serves clients."""
        for node in self:
            self.start_node(node.name)
        self.wait_ready()

    def wait_ready(self) -> None:
        for node in self:
            node.wait_ready()

    def start_node(self, name: str) -> None:
        self[name].start()

    def kill(self, name: str) -> None:
        self[name].kill()

    def stop_node(self, name: str) -> None:
        self[name].stop()

    def heal(self) -> None:
        """Resume paused nodes and end all cuts. Nodes that were killed are not started."""
        for node in self:
            node.resume()
        if self.proxies is not None:
            self.proxies.heal()

    def close(self) -> None:
        """Kill all nodes that run, and close the proxies."""
        for node in self:
            if node.is_running:
                node.kill()
        if self.proxies is not None:
            self.proxies.close()

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def warren_node(name: str, directory: Path, port: int, settings: str = "", fault: str = "", **environment: str) -> Node:
    """A node of warren with these settings, which are lines of TOML. The Python code `fault` runs before it starts."""
    config = directory / "warren.toml"
    node = Node(
        name,
        directory,
        port,
        [sys.executable, "-c", _PROGRAM, fault, "start", "--config", str(config)],
        HOME=str(directory),
        XDG_RUNTIME_DIR=str(directory / "runtime"),
        WARREN_MANAGEMENT="off",
        **environment,
    )
    config.write_text(f'node_name = "{name}"\nport = {port}\ndata_dir = "{node.data_dir}"\n{settings}')
    return node


def single_warren(directory: Path, fault: str = "", settings: str = "") -> Nodes:
    """A broker of one node."""
    return Nodes([warren_node("warren@n1", directory / "n1", *free_ports(1), settings=settings, fault=fault)])


class WarrenNodes(Nodes):
    """A cluster of warren's nodes, which reach each other through proxies."""

    def __init__(self, nodes: Sequence[Node], proxies: LinkProxies, cluster_ports: Mapping[str, int]) -> None:
        super().__init__(nodes, proxies)
        self._cluster_ports = cluster_ports
        self._proxies = proxies

    def start_node(self, name: str) -> None:
        self._proxies.node_up(name, ("127.0.0.1", self._cluster_ports[name]))
        super().start_node(name)

    def kill(self, name: str) -> None:
        super().kill(name)
        self._proxies.node_down(name)

    def stop_node(self, name: str) -> None:
        super().stop_node(name)
        self._proxies.node_down(name)


def warren_cluster(directory: Path, count: int, settings: str = "", fault: str = "") -> WarrenNodes:
    """Nodes with a list of their names, which found a cluster when they are started. None of them runs yet."""
    names = _names(count)
    proxies = LinkProxies(names)
    nodes, cluster_ports = _members(directory, names, settings, fault, lambda ports: proxies.address)
    return WarrenNodes(nodes, proxies, cluster_ports)


def linked_nodes(directory: Path, count: int, settings: str = "", fault: str = "") -> Nodes:
    """As `warren_cluster`, but without proxies, so that their links have the full speed of the loopback network."""
    nodes, _ = _members(
        directory, _names(count), settings, fault, lambda ports: lambda _, other: ("127.0.0.1", ports[other])
    )
    return Nodes(nodes)


def _names(count: int) -> list[str]:
    return [f"warren@n{number + 1}" for number in range(count)]


def _members(
    directory: Path,
    names: Sequence[str],
    settings: str,
    fault: str,
    way: Callable[[Mapping[str, int]], Callable[[str, str], tuple[str, int]]],
) -> tuple[list[Node], dict[str, int]]:
    """The nodes, and their cluster ports by name. `way(cluster ports)` returns a function of two names, which gives the
    address at which the first node reaches the second.
    """
    ports = free_ports(2 * len(names))
    cluster_ports = dict(zip(names, ports[len(names) :], strict=True))
    reach = way(cluster_ports)
    cookie = secrets.token_hex(16)
    nodes = []
    for name, port in zip(names, ports[: len(names)], strict=True):
        addresses = {other: reach(name, other) for other in names if other != name}
        lines = [
            settings,
            f"cluster_port = {cluster_ports[name]}",
            f"cluster_formation.nodes = {names!r}",
            "[cluster_peer_addresses]",
            *(f'"{other}" = "{host}:{reached}"' for other, (host, reached) in addresses.items()),
            "",
        ]
        folder = directory / name.partition("@")[2]
        nodes.append(warren_node(name, folder, port, "\n".join(lines), fault, WARREN_COOKIE=cookie))
    return nodes, cluster_ports
