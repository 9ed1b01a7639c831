"""Benchmark: what idle clients cost. Run it with `python -m warren.bench.idle [connections]`, on Linux.

It starts `warren start` as a process of its own, opens connections with one channel each over the loopback interface,
and prints the resident memory of a broker without clients, KiB per idle connection, connections opened per second, and
the broker's CPU time over three idle seconds, without and with the connections.
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

from ..amqp import methods
from ..amqp.fields import Table
from ..amqp.frames import method_frame
from .load.broker import memory, processor_seconds

#: Seconds over which CPU time is measured.
IDLE_SECONDS = 3.0

_OPEN_OK = methods.ChannelOpenOk(b"").encode()

_HELLO = b"AMQP\0\0\x09\x01" + b"".join(
    [
        method_frame(0, methods.ConnectionStartOk(Table(), "PLAIN", b"\0guest\0guest", "en_US")),
        method_frame(0, methods.ConnectionTuneOk(2047, 131072, 60)),
        method_frame(0, methods.ConnectionOpen("/", "", False)),
        method_frame(1, methods.ChannelOpen("")),
    ]
)


def resident_kib(pid: int) -> float:
    """Resident memory of a process in KiB."""
    return memory(pid)["VmRSS"] / 1024


def idle_cpu(pid: int) -> float:
    """CPU time used over the next `IDLE_SECONDS`, in percent of one core."""
    before = processor_seconds(pid)
    time.sleep(IDLE_SECONDS)
    return (processor_seconds(pid) - before) / IDLE_SECONDS * 100


def open_connections(port: int, count: int) -> list[socket.socket]:
    """`count` connections with an open channel each."""
    sockets = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(_HELLO)
        sockets.append(client)
    for client in sockets:
        answer = b""
        while _OPEN_OK not in answer:
            answer += client.recv(4096)
    return sockets


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + 1000), most))
    broker = subprocess.Popen(
        [Path(sys.executable).parent / "warren", "start", "--in-memory", "--port", "0", "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        address = next(line for line in broker.stdout if "listening" in line).split()[1]
        port = int(address.rpartition(":")[2])
        fresh = resident_kib(broker.pid)
        print(f"nobody connected: {fresh / 1024:.1f} MiB resident, {idle_cpu(broker.pid):.1f} % CPU")
        started = time.monotonic()
        clients = open_connections(port, count)
        seconds = time.monotonic() - started
        print(
            f"{count} connections with a channel each: opened {count / seconds:.0f} a second, "
            f"{(resident_kib(broker.pid) - fresh) / count:.1f} KiB each, {idle_cpu(broker.pid):.1f} % CPU"
        )
        for client in clients:
            client.close()
    finally:
        broker.terminate()
        broker.wait()


if __name__ == "__main__":
    main()
