"""`warren perf-test` against a broker."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from warren import Broker
from warren.cli.failure import CommandFailure
from warren.cli.programs.perf_test import perf_test


@pytest.fixture(scope="module")
def broker():
    with Broker(port=0) as broker:
        yield broker


def run(broker, *arguments):
    """The JSON result, and the report."""
    result = CliRunner().invoke(
        perf_test, ["-h", broker.url, "--json", "-", *map(str, arguments)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def failure(broker, *arguments):
    with pytest.raises(CommandFailure) as caught:
        CliRunner().invoke(
            perf_test, ["-h", broker.url, *map(str, arguments)], catch_exceptions=False, standalone_mode=False
        )
    return caught.value.code, caught.value.message


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-c", 50, "-s", 1000, "-q", 100, "-A", 10],
        ["-s", 300_000, "-q", 3, "-c", 1, "-f", "persistent"],
        ["-a", "-X", 3, "-Y", 2],
        ["-x", 2, "-y", 2, "-Q", 7, "-e", "amq.fanout", "-t", "fanout", "-y", 1],
        ["-e", "", "-u", "named", "-L", 10],
        ["-u", "one", "-u", "two", "-e", "", "-y", 2],
    ],
)
def test_every_message_arrives(broker, arguments):
    found, report = run(broker, "-C", 200, *arguments)
    expected = 200 * (2 if "-x" in arguments else 1)
    assert found["sent"] == found["received"] == expected
    assert found["confirmed"] == (expected if "-c" in arguments else 0)
    assert found["consumer_latency"]["count"] == expected
    assert (
        0 <= found["consumer_latency"]["min"] <= found["consumer_latency"]["median"] <= found["consumer_latency"]["max"]
    )
    assert "receiving rate avg:" in report and "perf-test used" in report


def test_messages_that_reach_no_queue_are_returned(broker):
    found, _ = run(broker, "-C", 20, "-y", 0, "-f", "mandatory", "-p", "-e", "amq.direct", "-k", "nowhere", "-c", 5)
    assert (found["sent"], found["returned"], found["confirmed"]) == (20, 20, 20)


def test_a_rate_and_a_time(broker):
    found, report = run(broker, "-r", 200, "-z", 0.5, "-i", 0.1)
    assert 50 <= found["sent"] <= 101
    assert report.count("time 0.") >= 3


def test_a_full_queue_refuses(broker):
    found, _ = run(broker, "-C", 10, "-c", 1, "-y", 0, "-u", "full", "-qa", "x-max-length=3,x-overflow=reject-publish")
    assert (found["confirmed"], found["nacked"]) == (3, 7)


def test_a_quorum_queue(broker):
    found, _ = run(broker, "-C", 10, "-u", "quorum", "-qq")
    assert found["received"] == 10 and broker.queue("quorum") is not None


def test_its_own_queue_is_gone_afterwards(broker):
    before = {queue.name for queue in broker.queues()}
    run(broker, "-C", 5, "-y", 0)
    broker.wait_idle()
    assert {queue.name for queue in broker.queues()} == before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["-x", 0, "-y", 0], 64, "there is nothing to do"),
        (["-p"], 64, "need the name of a queue"),
        (["-qq"], 64, "a quorum queue needs a name"),
        (["-qa", "x-max-length"], 64, "'x-max-length' is not of the form name=value"),
        (["-h", "http://127.0.0.1"], 64, "must begin with amqp:// or amqps://"),
        (["-p", "-u", "missing", "-x", 0], 69, "404 NOT_FOUND - no queue 'missing' in vhost '/'"),
        (["-e", "amq.direct", "-u", "q", "-qa", "x-max-length=-1"], 69, "{value_negative,-1}"),
    ],
)
def test_errors(broker, arguments, code, text):
    found = failure(broker, *arguments)
    assert found[0] == code and text in found[1]


def test_a_broker_that_is_not_there():
    with pytest.raises(CommandFailure) as caught:
        CliRunner().invoke(perf_test, ["-h", "amqp://127.0.0.1:1"], catch_exceptions=False, standalone_mode=False)
    assert caught.value.code == 69 and "cannot connect to 127.0.0.1:1" in caught.value.message
