"""The control socket of a running node: who gets in, and what a hostile client can do to it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import socket
import stat
import struct
import threading
import time

import msgpack
import pytest

from warren import Broker, StartError
from warren.actors.control import place, session
from warren.actors.control.frames import FRAME_MAX, UNPROVED_MAX, frame
from warren.actors.control.listener import SESSIONS_MAX
from warren.cli.failure import CommandFailure
from warren.cli.node_client import NodeClient, NodeFailure, Target, Unreachable

SECRET = "correct horse battery staple"


@pytest.fixture
def broker(tmp_path):
    with Broker(control_dir=str(tmp_path / "control")) as broker:
        yield broker


def target_of(broker):
    """The broker as the commands find it."""
    return Target(broker.settings.node_name, data_dir=os.path.dirname(broker.settings.control_dir))


def connected(broker):
    """A raw connection to the control socket, behind the node's greeting."""
    sock = place.connect(place.read_run_file(broker.settings.control_dir), 30)
    assert received(sock)["hello"] == 1
    return sock


def received(sock):
    """The next message; None at the end of the connection."""
    head = exactly(sock, 4)
    return None if head is None else msgpack.unpackb(exactly(sock, struct.unpack(">I", head)[0]))


def exactly(sock, size):
    data = b""
    while len(data) < size:
        try:
            piece = sock.recv(size - len(data))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return data


def assert_works(broker):
    with NodeClient(target_of(broker), 30) as client:
        assert client.call("ping") is True


# -- the place ---


def test_only_the_owner_may_use_the_socket(broker):
    """Only the owner of the node may connect to its control socket (CM-14)."""
    directory = broker.settings.control_dir
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(os.path.join(directory, "socket")).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.join(directory, "node.json")).st_mode) == 0o600


def test_nothing_is_left_when_the_node_has_ended(tmp_path):
    with Broker(control_dir=str(tmp_path / "control")) as broker:
        assert_works(broker)
    assert not (tmp_path / "control").exists()
    with pytest.raises(Unreachable, match="no node runs there"):
        NodeClient(Target("warren@localhost", data_dir=str(tmp_path)))


def test_a_path_that_is_too_long_for_a_socket(tmp_path):
    """If the path of the control socket is too long (Linux takes 107 bytes, macOS 103), the socket is in another
    directory, which only the owner may use.
    """
    directory = tmp_path / ("long" * 30) / "control"
    with Broker(control_dir=str(directory)) as broker:
        run_file = place.read_run_file(str(directory))
        assert len(run_file.socket) < place.SOCKET_PATH_MAX
        assert stat.S_IMODE(os.stat(os.path.dirname(run_file.socket)).st_mode) == 0o700
        assert_works(broker)
    assert not os.path.exists(os.path.dirname(run_file.socket))


def test_a_socket_that_a_killed_node_left_is_replaced(tmp_path):
    directory = str(tmp_path / "control")
    path = place.prepare(directory)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(path)
    place.publish(directory, place.new_run_file("warren@localhost", socket=path))
    with Broker(control_dir=directory) as broker:
        assert_works(broker)


def test_a_place_that_another_node_uses_is_refused(broker):
    with pytest.raises(StartError, match=rf"in use by node warren@localhost \(process {os.getpid()}\)"):
        Broker(control_dir=broker.settings.control_dir).start()
    assert_works(broker)


@pytest.fixture
def flooded(tmp_path):
    """A place whose node accepts no connections at present and has no room for another one in its backlog."""
    directory = str(tmp_path / "control")
    path = place.prepare(directory)
    with contextlib.ExitStack() as sockets:
        listening = sockets.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(path)
        listening.listen(1)
        place.publish(directory, place.new_run_file("warren@localhost", socket=path))
        with pytest.raises(BlockingIOError):
            while True:
                client = sockets.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(path)
        yield directory, listening


def test_a_client_waits_for_a_place_in_the_backlog(flooded):
    directory, listening = flooded
    run_file = place.read_run_file(directory)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        connecting = threads.submit(place.connect, run_file, 60)
        # Those before it are accepted first, so the last of these is its connection.
        accepted = [listening.accept()[0]]
        with connecting.result(60) as client:
            client.sendall(b"x")
            listening.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    accepted.append(listening.accept()[0])
            assert accepted[-1].recv(1) == b"x"
            assert client.gettimeout() == 60
    for one in accepted:
        one.close()


def test_a_client_does_not_wait_for_ever(flooded):
    with pytest.raises(TimeoutError, match="within 0.05 s, because many other clients wait"):
        place.connect(place.read_run_file(flooded[0]), 0.05)


def test_a_node_that_is_flooded_keeps_its_place(flooded, monkeypatch):
    monkeypatch.setattr(place, "PROBE_SECONDS", 0.05)
    with pytest.raises(place.PlaceError, match="in use by node warren@localhost"):
        place.prepare(flooded[0])
    assert place.read_run_file(flooded[0]).pid == os.getpid()


def test_without_unix_sockets_a_port_and_a_secret_are_used(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "has_unix_sockets", lambda: False)
    with Broker(control_dir=str(tmp_path / "control")) as broker:
        run_file = place.read_run_file(broker.settings.control_dir)
        assert (run_file.socket, run_file.host) == (None, "127.0.0.1")
        assert stat.S_IMODE(os.stat(tmp_path / "control" / "cookie").st_mode) == 0o400
        assert_works(broker)


# -- TCP ---


@pytest.fixture
def cookie(tmp_path):
    path = tmp_path / "cookie"
    path.write_text(SECRET + "\n")
    path.chmod(0o400)
    return path


@pytest.fixture
def port(tmp_path, cookie, caplog):
    """The control port of a broker that has no socket."""
    caplog.set_level("INFO", "warren.control")
    with Broker(control_port=0, control_cookie_file=str(cookie)):
        yield int(re.search(r"listens for commands on 127.0.0.1:(\d+)", caplog.text)[1])


def test_a_command_with_the_secret_gets_in(port, cookie):
    """A command that knows the secret may use the control port (CM-14)."""
    with NodeClient(Target("warren@localhost", f"127.0.0.1:{port}", cookie_file=str(cookie)), 30) as client:
        assert client.call("ping") is True


def test_the_secret_is_never_sent(port, cookie, monkeypatch):
    sent = []
    send = socket.socket.sendall
    monkeypatch.setattr(socket.socket, "sendall", lambda sock, data: (sent.append(bytes(data)), send(sock, data))[1])
    with NodeClient(Target("warren@localhost", f"127.0.0.1:{port}", cookie_file=str(cookie)), 30) as client:
        client.call("ping")
    assert len(sent) == 2
    assert SECRET.encode() not in b"".join(sent)


def test_a_wrong_secret_is_refused_and_named(port, tmp_path):
    """A command with a wrong secret is refused, and the refusal says so (CM-23)."""
    wrong = tmp_path / "wrong"
    wrong.write_text("another secret than that")
    wrong.chmod(0o400)
    with pytest.raises(Unreachable, match="another secret") as refusal:
        NodeClient(Target("warren@localhost", f"127.0.0.1:{port}", cookie_file=str(wrong)), 30)
    assert refusal.value.code == 69


def test_a_secret_that_others_can_read_is_not_used(port, cookie):
    """A secret that others can read is not used (CM-14, CM-18)."""
    cookie.chmod(0o444)
    with pytest.raises(CommandFailure, match="readable by its owner only") as refusal:
        NodeClient(Target("warren@localhost", f"127.0.0.1:{port}", cookie_file=str(cookie)))
    assert refusal.value.code == 78


def test_a_request_without_a_proof_is_refused(port):
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        assert len(received(sock)["challenge"]) == 32
        sock.sendall(frame({"operation": "ping", "arguments": {}}))
        assert received(sock)["error"]["kind"] == "usage"
        assert received(sock) is None


def test_a_stranger_can_make_the_node_keep_little(port):
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        received(sock)
        sock.sendall(struct.pack(">I", UNPROVED_MAX + 1))
        assert "longer than" in received(sock)["error"]["text"]
        assert received(sock) is None


def test_the_proof_of_one_connection_is_useless_for_another(port, cookie, monkeypatch):
    sent = []
    send = socket.socket.sendall
    monkeypatch.setattr(socket.socket, "sendall", lambda sock, data: (sent.append(bytes(data)), send(sock, data))[1])
    with NodeClient(Target("warren@localhost", f"127.0.0.1:{port}", cookie_file=str(cookie)), 30):
        pass
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        received(sock)
        send(sock, sent[0])
        assert "secret is not the one" in received(sock)["error"]["text"]
        assert received(sock) is None


# -- hostile input ---


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">I", FRAME_MAX + 1),
        struct.pack(">I", 3) + b"\xc1\xc1\xc1",
        struct.pack(">I", 1) + b"\x90",
        struct.pack(">I", 200_000) + b"\x91" * 200_000,
        frame({"operation": 1}),
        frame({"operation": "ping", "arguments": []}),
        frame({}),
        frame({"operation": "ping"}) * 3,
    ],
    ids=["http", "long", "no msgpack", "no map", "deeply nested", "no name", "no arguments", "empty", "three at once"],
)
def test_garbage_ends_its_session_only(broker, data):
    with connected(broker) as sock:
        sock.sendall(data)
        answers = []
        while (answer := received(sock)) is not None:
            answers.append(answer)
        assert answers[-1]["error"]["kind"] == "usage"
    assert_works(broker)


def test_half_a_frame_and_gone(broker):
    for size in (1, 3, 10, 30):
        with connected(broker) as sock:
            sock.sendall(frame({"operation": "list_queues", "arguments": {"vhost": "/"}})[:size])
    assert_works(broker)


def test_an_unknown_operation_or_argument_is_refused_and_the_session_goes_on(broker):
    with NodeClient(target_of(broker), 30) as client:
        with pytest.raises(NodeFailure, match="not found"):
            client.call("os_system", command="true")
        with pytest.raises(NodeFailure, match="cannot be 1"):
            client.call("list_queues", vhost=1)
        assert client.call("ping") is True


def test_a_thousand_connections(broker):
    """Of a thousand connections those above the limit wait in the operating system, and are served when others have
    gone.
    """
    run_file = place.read_run_file(broker.settings.control_dir)
    sockets = []
    for number in range(1000):
        sock = socket.socket(socket.AF_UNIX)
        # The broker accepts `SESSIONS_MAX` of them, so these find a place in the backlog sooner or later.
        sock.setblocking(number <= SESSIONS_MAX)
        try:
            sock.connect(run_file.socket)
        except BlockingIOError:  # the backlog is full
            assert number > SESSIONS_MAX
            sock.close()
            break
        sockets.append(sock)
    assert len(sockets) > SESSIONS_MAX
    assert broker.publish(b"still here", "nowhere") is False
    for sock in sockets:
        sock.close()
    assert_works(broker)


def test_a_client_that_reads_nothing_is_cut_off(broker, monkeypatch):
    """A client that reads nothing is cut off: what waits for it is bounded, whatever it asked for, and others are
    served meanwhile.
    """
    monkeypatch.setattr(session, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(session, "CHECK_SECONDS", 0.1)
    for number in range(2000):
        broker.declare_queue(f"{number:04}" + "x" * 200)
    request = frame({"operation": "list_bindings", "arguments": {"vhost": "/"}})
    with NodeClient(target_of(broker), 30) as client:
        whole = sum(len(frame({"rows": [row]})) for row in client.rows("list_bindings", vhost="/"))
    with connected(broker) as sock:
        sock.sendall(request)
        time.sleep(0.2)
        assert_works(broker)
        # It ends without the client having read a byte.
        deadline = time.monotonic() + 300
        while session_count(broker) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert session_count(broker) == 0
        got = 0
        while data := sock.recv(1 << 16):
            got += len(data)
        assert got < whole


def session_count(broker):
    base = broker._node._base
    actors = base.call(lambda: [getattr(cell, "actor", None) for cell in base.cells.values()])
    return sum(isinstance(actor, session.ControlSession) for actor in actors)


def test_a_client_that_goes_away_takes_its_operation_along(broker):
    for number in range(300):
        broker.declare_queue(str(number))
    for _ in range(20):
        with connected(broker) as sock:
            sock.sendall(frame({"operation": "list_queues", "arguments": {"vhost": "/"}}))
    deadline = time.monotonic() + 300
    while session_count(broker) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert session_count(broker) == 0
    assert_works(broker)


def test_commands_side_by_side(broker):
    failures = []

    def list_often():
        try:
            for _ in range(20):
                with NodeClient(target_of(broker), 30) as client:
                    assert len(client.call("list_exchanges", vhost="/")) == 7
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=list_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_names_with_control_characters_survive(broker):
    name = "\0\t\x1b[31mé漢"
    broker.declare_queue(name)
    with NodeClient(target_of(broker), 30) as client:
        assert client.call("list_queues", vhost="/") == [{"name": name, "messages": 0}]
