"""The management process starts and ends with its broker, and is restarted when it dies."""

import http.client
import os
import signal
import socket
import ssl
import subprocess

import trustme

from warren import Broker

from .conftest import Api, ports, until


def children():
    """The process ids of the management processes that brokers in this process have started."""
    text = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in text.splitlines() if "warren.management" in line]


def test_it_is_started_again_when_it_dies_and_the_broker_goes_on():
    with Broker(management=True, management_port=0, prometheus_port=None) as broker:
        api = Api(ports(broker)["http"])
        broker.declare_queue("stays")
        assert api.get("/api/queues/%2F/stays")["name"] == "stays"
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        until(lambda: children(), lambda pids: pids and pids != [pid])
        assert broker.publish(b"x", "stays")
        api = Api(ports(broker)["http"])
        assert api.get("/api/queues/%2F/stays")["messages"] == 1
    until(lambda: children(), lambda pids: not pids)


def test_a_port_in_use_does_not_stop_the_broker(caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Broker(management=True, management_port=port, prometheus_port=None) as broker:
            until(lambda: "Free the port, or choose another management_port" in caplog.text)
            broker.declare_queue("works")
            assert broker.publish(b"x", "works")


def test_the_api_is_served_with_tls(tmp_path):
    authority = trustme.CA()
    file = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    tls = {"tls_cert_file": file, "management_tls_port": 0}
    with Broker(management=True, management_port=None, prometheus_port=None, **tls) as broker:
        client = http.client.HTTPSConnection("127.0.0.1", ports(broker)["https"], context=trusting, timeout=300)
        client.request("POST", "/api/login", "username=guest&password=guest")
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b'"ok"')
        assert "; Secure" in answer.getheader("set-cookie")


def test_a_certificate_that_cannot_be_used_does_not_stop_the_broker(tmp_path, caplog):
    file = tmp_path / "server.pem"
    file.write_text("no certificate")
    tls = {"tls_cert_file": file, "management_tls_port": 0}
    with Broker(management=True, management_port=None, prometheus_port=None, **tls) as broker:
        until(lambda: "management cannot use the certificate in" in caplog.text)
        broker.declare_queue("works")


def test_a_broker_has_none_unless_it_is_asked_to():
    with Broker() as broker:
        assert not children()
        assert broker.queues() == []
