"""The commands about mirrored queues, as far as they can be tested without a cluster."""

from __future__ import annotations

import sys

import pytest

from warren import Broker
from warren.cli.main import main
from warren.cli.operating.mirror_commands import ring_lines, sync_bar


def member(node, role, received, stored, **others):
    known = {"stage": "following", "lag": 0, "unstored": 0, "waiting": 0, "messages": 9}
    return {"node": node, "role": role, "received": received, "stored": stored, **known, **others}


def ring(*members, **others):
    facts = {"name": "orders", "vhost": "/", "state": "running", "epoch": 7, "reign": 5, "missing": [], "evicted": []}
    return {**facts, "members": list(members), **others}


def test_the_ring_is_drawn_with_who_lags():
    drawn = ring_lines(
        ring(
            member("a@host", "master", 12, 8),
            member("long@host", "mirror", 12, 10, unstored=2),
            member("b@host", "mirror", 9, 9, lag=3, messages=1),
            member("c@host", "learner", 12, 0, stage="copying"),
            member("f@host", "learner", 12, 0, stage="copying", left=3, bytes_per_second=2 << 20, seconds_left=4),
            member("d@host", "learner", None, None, stage=None, lag=None, unstored=None, messages=None),
            missing=["e@host"],
            evicted=[{"node": "c@host", "reason": "it does not answer"}],
            forced=[{"by": "an operator of a@host", "epoch": 6}],
        )
    )
    assert drawn == [
        "Epoch 7, under this master since epoch 5; the queue is running.",
        "",
        "+-> a@host     master   position 12, all others have stored 8, 9 messages",
        "|     v",
        "|   long@host  mirror   received 12, stored 10, 9 messages  <- lags: 2 not stored yet",
        "|     v",
        "+-- b@host     mirror   received 9, stored 9, 1 message  <- lags: 3 behind the master",
        "",
        "Not in the ring yet, behind its last member:",
        "    c@host     learner  received 12, stored 0, 9 messages, copying",
        "    f@host     learner  received 12, stored 0, 9 messages, copying, 3 left, 2 MiB/s, about 4 s",
        "    d@host     learner  does not answer",
        "",
        "Wanted by the policy as well: e@host",
        "Evicted: c@host: it does not answer",
        "Forced to one replica by an operator of a@host at epoch 6",
    ]


def test_a_master_that_is_alone_has_no_ring_around_it():
    drawn = ring_lines(ring(member("a@host", "master", 12, 0)))
    assert drawn[2:] == ["    a@host  master   position 12, 9 messages"]


def sync_row(**others):
    row = {"node": "b@host", "stage": "copying", "messages": 400, "total": 1000, "is_stopped": False, "compared": 0}
    row |= {"copied": 400, "copied_bytes": 0, "left": None, "bytes_per_second": 0, "seconds_left": None, "alarms": []}
    return {**row, **others}


@pytest.mark.parametrize(
    ("row", "bar"),
    [
        (sync_row(), "b@host [########------------]  40% 400 of 1,000 messages"),
        (sync_row(messages=7, total=None), "b@host [--------------------]   0% 7 messages"),
        (
            sync_row(left=750, bytes_per_second=1_500_000, seconds_left=300),
            "b@host [#####---------------]  25% 250 of 1,000 messages, 1.4 MiB/s, about 5 min",
        ),
        (
            sync_row(stage="comparing", messages=1000, left=900),
            "b@host [##------------------]  10% comparing, 100 of 1,000 messages",
        ),
        (
            sync_row(messages=0, alarms=["disk"]),
            "b@host [--------------------]   0% 0 of 1,000 messages, waits until the disk alarm of its node is cleared",
        ),
        (sync_row(stage=None, messages=None), "b@host does not answer"),
    ],
)
def test_sync_queue_shows_a_bar(row, bar):
    """`sync_queue` shows at a terminal how far each replica is (CL-90, CM-165)."""
    assert sync_bar(row) == bar


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("node")
    with Broker(port=0, control_dir=str(directory / "control"), data_dir=str(directory)) as broker:
        broker.declare_queue("plain", durable=True)
        yield broker


@pytest.fixture
def run(monkeypatch, capfd, broker):
    """`run(*words)` runs a command in this process; returns its exit code, its output and its error text."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["warren", "--data-dir", str(broker.settings.data_dir), *words])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return end.value.code, out, err

    return run


@pytest.mark.parametrize(
    "words", [("show_ring",), ("rings",), ("sync_queue",), ("cancel_sync_queue",), ("promote", "warren")]
)
def test_queues_without_a_ring_are_refused(run, words):
    """On a queue without mirrors these commands fail with the exit code and the text of rabbitmqctl's `sync_queue`
    (CM-165, CM-166).
    """
    for name, text in (("plain", "not_mirrored"), ("nosuch", "not_found")):
        code, _, err = run(words[0], name, *words[1:])
        assert (code, err.splitlines()) == (69, ["Error:", text])
