"""The job `flow` inside Spark, reading from a broker that publishes given samples, and as a command."""

import itertools
import json
import threading
import time
from collections import defaultdict

import pytest
from click.testing import CliRunner

from warren import Broker
from warren.actors.node import flow_sampler
from warren.cli.failure import CommandFailure
from warren.cli.main import root
from warren.spark.errors import SparkSourceError
from warren.spark.jobs import flow as flow_module
from warren.spark.jobs.flow import flow
from warren.spark.jobs.flow_table import read_flow
from warren.spark.jobs.flow_windows import LEAST_SHARE, bottleneck

# The first query of a session starts Python workers, which may take long on a busy machine.
pytestmark = pytest.mark.timeout(900)

QUEUE = "queue 'orders' in vhost '/'"


@pytest.fixture(scope="module")
def broker():
    with Broker(port=0, event_exchange_vhost="/") as running:
        yield running


@pytest.fixture
def seeded(monkeypatch):
    """`seeded(samples)` has the broker publish these samples instead of its own, and the job wait for all of them."""

    def seed(samples):
        left, are_out = iter(samples), threading.Event()

        def sample(self, node):
            found = next(left, None)
            if found is None:
                are_out.set()
                return {"v": 1}  # a sample in a version that the job skips
            return found

        unbind = flow_module._Samples.unbind

        def unbind_later(samples):
            assert are_out.wait(300)
            unbind(samples)

        monkeypatch.setattr(flow_sampler, "INTERVAL", 0.01)
        monkeypatch.setattr(flow_sampler.FlowSamples, "sample", sample)
        monkeypatch.setattr(flow_module._Samples, "unbind", unbind_later)

    return seed


def sample(at, node="a@a", *, channel=0.0, queue=0.0, verdicts=(), published=0):
    objects = [
        {"stage": "channel", "name": "x (1)", "vhost": "/", "state": "flow", "blocked": channel, "in": 1, "out": 0},
        {"stage": "queue", "name": "orders", "vhost": "/", "state": "flow", "blocked": queue, "in": 1, "out": 0},
    ]
    counts = dict.fromkeys(("confirmed", "delivered", "acked"), 0)
    return {"v": 1, "at": int(at * 1000), "node": node, "seconds": 1.0, "published": published, **counts} | {
        **{"bytes_in": 0, "bytes_out": 0, "ready": 0, "unacked": 0, "memory": 1, "memory_limit": 2, "alarms": []},
        **{"objects": objects, "verdicts": list(verdicts)},
    }


def cause(stage, subject, share, connections=1):
    return {"bottleneck": stage, "subject": subject, "share": share, "connections": connections} | {
        **{"evidence": f"for {share:.0%}", "advice": f"mend {subject}"},
    }


def minute():
    """Samples of one minute from two nodes. On one of them, first a slow queue for 20 s, then a slow disk for 20 s, and
    then one slow second; the other one is never blocked. The samples of a node come up to 3 s late.
    """
    began = int(time.time()) // 60 * 60 - 120
    found = []
    for second in range(60):
        at = began + second + 1
        if second < 20:
            found.append(sample(at, channel=0.8, verdicts=[cause("queue", QUEUE, 0.8, 3)], published=100))
        elif second < 40:
            disk = cause("message store", "the disk of vhost '/'", 0.5)
            found.append(sample(at, channel=0.6, queue=0.5, verdicts=[disk], published=10))
        elif second == 45:
            found.append(sample(at, channel=0.3, verdicts=[cause("queue", QUEUE, LEAST_SHARE)]))
        else:
            found.append(sample(at))
        if second > 2:
            found.append(sample(at - 3, "b@b", published=7))
    return found


def by_hand(samples, width):
    """The rows that the job must write, computed in plain Python: for each window and node the bottleneck, its stage,
    and the greatest share of the window in which the channel was blocked.
    """
    windows = defaultdict(list)
    for each in samples:
        windows[int(each["at"] / 1000 - each["seconds"] / 2) // width * width, each["node"]].append(each)
    found = {}
    for key, some in windows.items():
        shares = defaultdict(float)
        for verdict in itertools.chain.from_iterable(each["verdicts"] for each in some):
            shares[verdict["subject"], verdict["bottleneck"]] += verdict["share"] / len(some)
        best = max(shares, key=shares.get, default=None)
        seconds = sum(each["seconds"] for each in some)
        found[key] = (
            best if best is not None and shares[best] >= LEAST_SHARE else None,
            pytest.approx(sum(each["objects"][0]["blocked"] for each in some) / seconds, abs=0.001),
            pytest.approx(sum(each["published"] for each in some) / seconds),
        )
    return found


def test_windows_are_what_plain_python_makes_of_the_samples(spark, broker, seeded, tmp_path):
    """The job names each bottleneck in its windows, and none in the windows without one (SP-99)."""
    samples, folder = minute(), tmp_path / "flow"
    seeded(samples)
    shown, report = [], tmp_path / "made" / "flow.html"
    result = flow(spark, window=5, last=1, to=str(folder), report=str(report), on_window=shown.append, url=broker.url)
    rows = defaultdict(list)
    for row in read_flow(str(folder)):
        rows[int(row.start.timestamp()), row.node].append(row)
    found = {}
    for key, some in rows.items():
        slow = bottleneck(some)
        channel = next(row for row in some if row.stage == "channel")
        found[key] = (slow and (slow.object, slow.stage), channel.blocked_share, channel.published)
    assert found == by_hand(samples, 5)
    assert [(each.object, each.stage, each.windows, each.connections) for each in result.bottlenecks] == [
        (QUEUE, "queue", 4, 3),
        ("the disk of vhost '/'", "message store", 4, 1),
    ]
    assert (result.windows, result.quiet, result.is_interrupted) == (24, 16, False)
    assert result.bottlenecks[0].advice == f"mend {QUEUE}" and result.bottlenecks[0].evidence == "for 80%"
    assert [(int(some[0].start.timestamp()), some[0].node) for some in shown] == sorted(rows)
    assert "8 windows" not in report.read_text() and "24 windows of 5 s on 2 nodes" in report.read_text()
    # The job leaves no queue behind in the broker.
    assert [queue.name for queue in broker.queues() if "flow" in queue.name or "lease" in queue.name] == []
    # A second run that writes into this folder goes on with later windows.
    seeded(later := [sample(samples[-1]["at"] / 1000 + 10 + second) for second in range(10)])
    assert flow(spark, window=5, last=1, to=str(folder), url=broker.url).windows == len(by_hand(later, 5))
    assert len(read_flow(str(folder))) == (24 + len(by_hand(later, 5))) * len(next(iter(rows.values())))


def test_the_command(own_session, broker, seeded):
    seeded(minute())
    base = ["pipeline", "flow", "--url", broker.url, "--window", "20s", "--for", "1s"]
    shown = CliRunner().invoke(root, base)
    assert shown.exit_code == 0, (shown.output, shown.exception)
    lines = shown.stdout.splitlines()
    assert f"{QUEUE} holds back 3 connections (for 80%); 100 published/s, 0 delivered/s" in lines[0]
    assert "b@b: nothing holds connections back; 7 published/s" in lines[1]
    assert lines[6] == "6 windows, nothing held connections back in 4 of them."
    assert lines[7].startswith(f"{QUEUE} on a@a held back 3 connections in 1 windows from ")
    seeded(minute())
    answer = json.loads(CliRunner().invoke(root, [*base, "--formatter", "json", "--quiet"]).stdout)
    assert (answer["windows"], len(answer["bottlenecks"])) == (6, 2)


def test_ctrl_c_ends_the_command_with_its_report(own_session, broker, tmp_path, interrupt_when):
    """Ctrl-C ends the command with its report. The queues that the job declared are gone, and the exit code is that of
    an interrupted program (SP-90).
    """

    def is_watching():
        return any(queue.name.startswith("spark.flow.") and queue.messages == 0 for queue in broker.queues())

    report = tmp_path / "flow.html"
    with interrupt_when(is_watching):
        ended = CliRunner().invoke(root, ["pipeline", "flow", "--url", broker.url, "--report", str(report)])
    assert ended.exit_code == 130, (ended.output, ended.exception)
    assert ended.stdout.endswith(f"The report is {report}\n") and "<html" in report.read_text()
    assert [queue.name for queue in broker.queues() if "flow" in queue.name or "lease" in queue.name] == []


def test_a_broker_without_samples_is_named(spark, own_session):
    with Broker(port=0) as plain:
        with pytest.raises(SparkSourceError, match="publishes no samples.*vhost '/'.*event_exchange_vhost") as raised:
            flow(spark, last=1, url=plain.url)
        assert raised.value.code == "E5" and plain.queues() == []
        failed = CliRunner().invoke(root, ["pipeline", "flow", "--url", plain.url], standalone_mode=False).exception
        assert isinstance(failed, CommandFailure) and failed.code == 69
        url = plain.url
    with pytest.raises(SparkSourceError, match="refused connections"):
        flow(spark, last=1, url=url)
    with pytest.raises(SparkSourceError, match="'window' of format 'warren' cannot be '0.5s'"):
        flow(spark, window=0.5, url=url)
