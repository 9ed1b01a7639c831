"""`warren alerts` and `warren dashboard` use only metrics that a node has (CM-378)."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from warren import Broker
from warren.cli.observing.prometheus_commands import ALERTS, PANELS, board, rules
from warren.tests.management.conftest import Api, ports, until

METRIC = re.compile(r"\b(?:warren|rabbitmq|erlang)_[a-z_0-9]+")


@pytest.fixture(scope="module")
def known():
    """The names of all series of both paths that Prometheus scrapes; those of histograms have their endings."""
    with Broker(management=True, management_port=0, prometheus_port=0, management_interval=100) as broker:
        broker.declare_queue("q")
        client = Api(ports(broker)["http/prometheus"], user=None)
        detailed = "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count"
        until(lambda: b"queue_consumers{" in client.raw("GET", detailed)[1])
        text = "".join(client.raw("GET", path)[1].decode() for path in ("/metrics", detailed))
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + ending for ending in endings}
    return names


EXPRESSIONS = [alert.expression for alert in ALERTS] + [text for panel in PANELS for text, _ in panel.targets]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_metrics_of_an_expression_exist(known, expression):
    named = set(METRIC.findall(expression))
    assert named <= known
    assert named or expression.startswith("up{")
    assert all(expression.count(opening) == expression.count(closing) for opening, closing in ("()", "[]", "{}"))


def test_what_rises_for_ever_is_only_used_as_a_rate():
    for expression in EXPRESSIONS:
        for name in METRIC.findall(expression):
            if name.endswith(("_total", "_bucket", "_sum", "_count")):
                assert f"rate({name}[" in expression, expression


def printed(command):
    found = subprocess.run([sys.executable, "-P", "-m", "warren", command], capture_output=True, text=True, check=True)
    return found.stdout


def test_the_alerts_are_printed():
    text = printed("alerts")
    assert text == rules() + "\n"
    assert re.findall(r"^      - alert: (\w+)$", text, re.MULTILINE) == [alert.name for alert in ALERTS]
    assert [json.loads(each) for each in re.findall(r"^        expr: (.+)$", text, re.MULTILINE)] == [
        alert.expression for alert in ALERTS
    ]


def test_the_dashboard_is_printed_and_its_panels_do_not_overlap():
    found = json.loads(printed("dashboard"))
    assert found == board()
    taken = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and all(x < 24 for x, _ in cells)
        taken |= cells
    assert len({panel["id"] for panel in found["panels"]}) == len(PANELS)
