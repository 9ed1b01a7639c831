"""What a command says about a node that it cannot reach, and where it finds the secret for a node (CM-12, CM-14)."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time

import pytest

from warren import Broker
from warren.actors.control import place
from warren.actors.control.frames import PROTOCOL, FrameBuffer, frame
from warren.cli import node_client
from warren.cli.main import main

SECRET = "a secret that is long enough for this"
OTHER = "another secret that is long enough, too"


@pytest.fixture
def run(monkeypatch, capfd):
    """`run(*words)` runs a command in this process; returns its exit code and its error text."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["warren", "-q", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capfd.readouterr().err

    return run


@pytest.fixture
def cookie(monkeypatch):
    """`cookie(text)` makes this text the secret that commands use."""
    return lambda text: monkeypatch.setenv("WARREN_COOKIE", text)


@pytest.fixture
def answering():
    """`answering(data)` listens on a port, sends the data to the first client, and returns the address."""
    sockets = []

    def answering(data):
        def accept():
            client, _ = server.accept()
            sockets.append(client)
            client.sendall(data)

        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)
        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield answering
    for each in sockets:
        each.close()


def test_something_else_answers(run, cookie, answering):
    """If something other than a node answers, the error says so (CM-22, CM-23)."""
    cookie(SECRET)
    code, err = run("ping", "--address", answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert code == 69 and "DIAGNOSTICS" in err and "something else than a node of warren answers there" in err


def test_a_port_that_accepts_and_says_nothing(run, cookie, answering, monkeypatch):
    """If a port accepts a connection and sends nothing, the command gives up after seconds, whatever its time limit
    (CM-23). `ping` has one of a minute, and `status` has none.
    """
    monkeypatch.setattr(node_client, "CONNECT_SECONDS", 0.1)
    cookie(SECRET)
    began = time.monotonic()
    for words in (["ping"], ["status"], ["ping", "--timeout", "3600"]):
        code, err = run(*words, "--address", answering(b""))
        assert code == 69 and "a connection was accepted, but nothing that is a node answered" in err
    assert time.monotonic() - began < 50


def test_a_server_that_asks_for_no_secret(run, cookie, answering):
    """A server that does not ask for the secret is no node: a node that listens on a port always does (CM-23)."""
    cookie(SECRET)
    greeting = frame({"hello": PROTOCOL, "node": "warren@localhost", "challenge": None})
    code, err = run("ping", "--address", answering(greeting + frame({"result": {}})))
    assert code == 69 and "it does not ask for the secret" in err


def test_the_secret_is_that_of_the_variable_or_of_the_users_file(run, cookie, home, tmp_path, caplog, monkeypatch):
    """The secret comes from the variable, or from the user's file. If it is not the node's, the error says so and shows
    neither (CM-14, CM-23).
    """
    caplog.set_level("INFO", "warren.control")
    file = tmp_path / "node's"
    file.write_text(SECRET)
    file.chmod(0o400)
    with Broker(control_port=0, control_cookie_file=str(file)):
        address = re.search(r"listens for commands on (127.0.0.1:\d+)", caplog.text)[1]
        cookie(SECRET)
        assert run("ping", "--address", address) == (0, "")
        cookie(OTHER)
        code, err = run("ping", "--address", address)
        assert code == 69 and "the node has another secret" in err and SECRET not in err and OTHER not in err
        monkeypatch.delenv("WARREN_COOKIE")
        home.mkdir()
        own = home / ".warren.cookie"
        own.write_text(SECRET)
        own.chmod(0o600)
        assert run("ping", "--address", address) == (0, "")
        own.chmod(0o644)
        code, err = run("ping", "--address", address)
        assert code == 78 and "readable by its owner only" in err


def test_the_variable_names_the_node(run, monkeypatch):
    """The variable WARREN_NODENAME names the node, unless `--node` does (CM-12)."""
    monkeypatch.delenv("WARREN_DATA_DIR", raising=False)
    monkeypatch.setenv("WARREN_NODENAME", "hare")
    assert "attempted to contact: [hare@localhost]" in run("ping")[1]
    assert "attempted to contact: [fox@localhost]" in run("ping", "--node", "fox")[1]


def test_a_node_may_read_a_long_request_later_than_it_greets(run, tmp_path, monkeypatch):
    """The time limit of the greeting is none for a request, which would be cut off in the middle."""
    monkeypatch.setattr(node_client, "CONNECT_SECONDS", 0.2)
    directory = tmp_path / "control"
    directory.mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(directory / "socket"))
    server.listen()
    place.publish(str(directory), place.new_run_file("warren@localhost", socket=str(directory / "socket")))
    taken = []

    def serve():
        client, _ = server.accept()
        client.sendall(frame({"hello": PROTOCOL, "node": "warren@localhost", "challenge": None}))
        threading.Event().wait(1)  # the node is busy
        client.settimeout(10)
        buffer = FrameBuffer(1 << 30)
        with client:
            while (request := buffer.next()) is None:
                buffer.feed(client.recv(1 << 20))
            taken.append(request)
            client.sendall(frame({"result": {"left_out": []}}))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"global_parameters": [{"name": "n", "value": "v" * 3_000_000}]}))
    assert run("--data-dir", str(tmp_path), "import_definitions", str(file)) == (0, "")
    thread.join(30)
    server.close()
    assert taken[0]["operation"] == "import_definitions"
