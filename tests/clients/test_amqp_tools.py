"""The command-line tools of rabbitmq-c (Debian package amqp-tools), used as in a shell script."""

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("amqp-publish") is None, reason="amqp-tools is not installed (Debian: amqp-tools)"
)


@pytest.fixture
def tool(broker_url):
    def run(command, *arguments, stdin=b"", check=True):
        result = subprocess.run(
            [f"amqp-{command}", f"--url={broker_url}", *arguments], input=stdin, capture_output=True, timeout=300
        )
        if check:
            assert result.returncode == 0, result.stderr
        return result

    return run


def test_publish_and_get(tool, name):
    assert tool("declare-queue", "-q", name).stdout.decode().strip() == name
    tool("publish", "-r", name, "-b", "hello")
    assert tool("get", "-q", name).stdout == b"hello"
    assert tool("get", "-q", name, check=False).returncode == 2
    assert tool("delete-queue", "-q", name).stdout.decode().strip() == "0"


def test_a_body_from_standard_input(tool, name):
    tool("declare-queue", "-q", name)
    body = bytes(range(256)) * 2_000
    tool("publish", "-r", name, stdin=body)
    assert tool("get", "-q", name).stdout == body
    tool("delete-queue", "-q", name)


def test_consume_pipes_each_message_to_a_command(tool, name):
    tool("declare-queue", "-q", name)
    for word in ("one", "two", "three"):
        tool("publish", "-r", name, "-b", word)
    assert tool("consume", "-q", name, "-c", "3", "cat").stdout == b"onetwothree"
    tool("delete-queue", "-q", name)


def test_an_exchange_by_name(tool, name):
    tool("declare-queue", "-q", name)
    tool("publish", "-e", "amq.direct", "-r", name, "-b", "to nobody")
    assert tool("get", "-q", name, check=False).returncode == 2
    tool("delete-queue", "-q", name)


def test_an_error_is_shown_with_its_text(tool, name):
    result = tool("get", "-q", name, check=False)
    assert result.returncode == 1
    assert f"NOT_FOUND - no queue '{name}' in vhost '/'" in result.stderr.decode()
