"""`warren observer` (CM-207)."""

from __future__ import annotations

import json

import pytest

from warren import Broker
from warren.cli.main import root
from warren.cli.observing.observer_command import screen


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("observed") / "data")


@pytest.fixture(scope="module")
def broker(data_dir):
    with Broker(data_dir=data_dir, port=0, control_dir=f"{data_dir}/control") as broker:
        yield broker


@pytest.fixture
def rows(broker, data_dir, capfd):
    def observe(*words):
        root.main(
            ["--data-dir", data_dir, "observer", "--interval", "0.1", "--formatter", "json", *words],
            prog_name="warren",
            standalone_mode=False,
        )
        out, err = capfd.readouterr()
        assert not err
        return json.loads(out)

    return observe


def test_rows_name_what_is_busy(rows):
    found = rows()
    assert any(row["process"].startswith("ControlSession-") for row in found), "the command's own session"
    assert all(row["turns"] > 0 or row["mailbox"] > 0 for row in found)
    assert all(row["busy"] >= 0 for row in found)
    assert [row["busy"] for row in found] == sorted((row["busy"] for row in found), reverse=True)


def test_the_node_is_not_measured_any_more(broker, rows):
    rows()
    broker.wait_idle()
    assert not {"turn", "descriptor_turn"} & vars(broker._running._base).keys()


def test_screen_is_as_wide_as_the_terminal():
    row = {"process": "Queue-7", "name": "queue 'x' " * 20, "mailbox": 3, "message_rate": 1.5, "turns": 4, "busy": 12.5}
    head, empty, names, line = screen("warren@localhost", 5.0, [row], 40)
    assert head == "warren@localhost: 1 processes were busy in"[:40]
    assert (empty, line[:10]) == ("", "Queue-7  q")
    assert len(line) == 40
    assert names.startswith("\x1b[1mprocess  name") and names.endswith("\x1b[0m")


@pytest.mark.parametrize(("most", "reason"), [(0, "must be from 1 to 1000: 0"), (5000, "must be from 1 to 1000: 5000")])
def test_odd_numbers_of_processes_are_refused(broker, most, reason):
    with pytest.raises(Exception, match=reason):
        broker._node.operate("processes", most=most)
