"""A program that runs a broker forks: the child process has the broker's descriptors, and no broker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import suppress

import pytest

from warren import Broker
from warren.actors.contracts.node import to_node

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

#: Seconds after which a script counts as hanging, as some did before the broker took care of forks.
TIMEOUT = 60

BEGINNING = """
import os, sys, time
from warren import Broker

def forked(work):
    # The child works and then lives until the parent closes the pipe.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        try:
            work()
            os.read(reading, 1)
        except BaseException as error:
            print("child failed:", type(error).__name__, error, flush=True)
        os._exit(0)
    os.close(reading)
    return child, writing
"""


def outcome(script, *arguments):
    """The output of a program that runs `script`."""
    ended = subprocess.run(
        [sys.executable, "-c", BEGINNING + textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd="/",
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_stop_frees_port_and_directory_while_a_child_lives(tmp_path):
    """After a stop another broker can use port and directory at once, although a child process lives, and in between a
    client of the port is refused.
    """
    printed = outcome(
        """
        import socket
        broker = Broker(data_dir=sys.argv[1]).start()
        port = broker.port
        child, pipe = forked(lambda: None)
        broker.stop()
        try:
            socket.create_connection(("127.0.0.1", port), 5)
        except ConnectionRefusedError:
            print("refused")
        with Broker(port, data_dir=sys.argv[1]) as second:
            second.declare_queue("q")
            print("second", second.port == port)
        print("child lives", os.waitpid(child, os.WNOHANG) == (0, 0))
        os.close(pipe)
        os.waitpid(child, 0)
        """,
        tmp_path / "data",
    )
    assert printed == ["refused", "second True", "child lives True"]


@pytest.mark.parametrize("call", ["queues()", "publish(b'x', 'q')", "stop()", "wait_idle()", "create_vhost('v')"])
def test_a_child_cannot_control_the_broker(call):
    """A call in a child process fails at once and says what to do instead, and the parent's broker runs on."""
    printed = outcome(
        """
        with Broker() as broker:
            broker.declare_queue("q")
            def work():
                try:
                    eval("broker." + sys.argv[1])
                except RuntimeError as error:
                    print(error, flush=True)
            child, pipe = forked(work)
            os.close(pipe)
            os.waitpid(child, 0)
            print([queue.name for queue in broker.queues()], os.getpid())
        """,
        call,
    )
    assert "only that process can control it" in printed[0]
    assert printed[1].startswith("['q']")
    assert f"runs in process {printed[1].split()[-1]}," in printed[0]


def test_a_child_may_leave_the_with_block():
    """A child process that leaves the `with` block does not stop the broker."""
    printed = outcome(
        """
        with Broker() as broker:
            child = os.fork()
            if child:
                print(os.waitpid(child, 0)[1], flush=True)
                print(broker.queues())
        if not child:
            os._exit(7)
        """
    )
    assert printed == [str(7 << 8), "[]"]


def test_a_child_connects_as_a_client():
    printed = outcome(
        """
        import pika
        with Broker() as broker:
            def work():
                with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
                    connection.channel().queue_declare("from the child")
            child, pipe = forked(work)
            os.close(pipe)
            os.waitpid(child, 0)
            print([queue.name for queue in broker.queues()])
        """
    )
    assert printed == ["['from the child']"]


def test_a_killed_program_leaves_nothing_open_although_a_child_lives(tmp_path):
    """When the program is killed and a process that it has forked lives on, clients are disconnected, and another
    broker can use the port, the data directory and the ports of the management process.
    """
    data = tmp_path / "data"
    script = """
        import signal
        from warren.actors.contracts.node import to_node
        broker = Broker(data_dir=sys.argv[1], management=True, management_port=0, prometheus_port=None).start()
        while not (ports := broker._running.ask_node(to_node.status())["management"]):
            time.sleep(0.02)
        child, pipe = forked(lambda: print("runs", flush=True))
        print(broker.port, ports["http"], child, flush=True)
        sys.stdin.read(1)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    program = subprocess.Popen(
        [sys.executable, "-c", BEGINNING + textwrap.dedent(script), str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    numbers, _ = sorted(program.stdout.readline() for _ in range(2))
    port, management_port, child = map(int, numbers.split())
    # The child ends when the pipe to the program is closed, unless it is stopped.
    os.kill(child, signal.SIGSTOP)
    try:
        client = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        # The child has the output of the program too, so nobody can wait for its end.
        program.stdin.close()
        program.wait(TIMEOUT)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
        settings = {"data_dir": data, "management": True, "management_port": management_port, "prometheus_port": None}
        with Broker(port, **settings) as second:
            deadline = time.monotonic() + TIMEOUT
            while not second._running.ask_node(to_node.status())["management"]:
                assert time.monotonic() < deadline, "the port of the management process is in use"
                time.sleep(0.02)
    finally:
        os.kill(child, signal.SIGKILL)
