"""The metrics that the Grafana dashboards of RabbitMQ query: those of version 3.10 and the latest ones."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from ..conftest import Api, parsed, ports, until

QUERIED = Path(__file__).parents[2] / "testdata" / "management" / "rabbitmq-dashboards.txt"

NO_RAFT_LOG = "a quorum queue has no Raft log of its own; `warren_raft_term` and the like are the cluster's log"
NO_STREAM_PROTOCOL = "clients read streams over AMQP, and the broker does not speak the stream protocol"
NO_PORT_OR_PROCESS = "a link has no Erlang port and processes; `warren_link_inflight` has what waits in its lanes"

#: Metrics that dashboards query and warren cannot have, by the beginnings of their names, with the reason
#: (docs/management.md).
WITHOUT_MEANING = {
    "rabbitmq_raft_": NO_RAFT_LOG,
    "rabbitmq_global_stream_error_": NO_STREAM_PROTOCOL,
    "erlang_vm_dist_port_": NO_PORT_OR_PROCESS,
    "erlang_vm_dist_proc_": NO_PORT_OR_PROCESS,
    "rabbitmq_message_size_bytes_": "the sizes of single messages are not looked at while messages travel as runs",
}


class Query(NamedTuple):
    dashboard: str
    metric: str
    labels: frozenset[str]


def queries():
    rows = [line.split() for line in QUERIED.read_text().splitlines() if not line.startswith("#")]
    return [Query(board, metric, frozenset(labels.split(",")) - {"-"}) for board, metric, labels, _ in rows]


@pytest.fixture(scope="module")
def pages(broker):
    client = Api(ports(broker)["http/prometheus"], user=None)

    def page(path):
        return client.raw("GET", path)[1].decode()

    return page


def families(text):
    return set(re.findall("^# TYPE (.*) .*$", text, re.MULTILINE))


def has_no_meaning(metric):
    return any(metric.startswith(prefix) for prefix in WITHOUT_MEANING)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object"])
def test_every_panel_has_its_metrics(pages, path):
    """Each metric that a dashboard queries is there, in the sums and for each object, except for those that mean
    nothing here (CM-334, CM-340 to CM-370).
    """
    there = families(pages(path))
    missing = {query.metric for query in queries()} - there
    assert {metric for metric in missing if not has_no_meaning(metric)} == set()


def test_no_reason_is_out_of_date(pages):
    """What is listed as without a meaning is queried by a dashboard and is not there."""
    queried, there = {query.metric for query in queries()}, families(pages("/metrics"))
    for prefix in WITHOUT_MEANING:
        assert any(metric.startswith(prefix) for metric in queried), prefix
        assert not any(metric.startswith(prefix) for metric in there), prefix


def test_series_have_the_labels_by_which_panels_choose_them(pages):
    """A panel chooses series by labels, and every panel joins its series with those of `rabbitmq_identity_info`
    (CM-334, CM-354 to CM-359).
    """
    labels = {}
    for name, pairs in parsed(pages("/metrics")):
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    checked = [query for query in queries() if query.labels and query.metric in labels]
    assert len({query.metric for query in checked}) >= 6
    for query in checked:
        assert query.labels <= labels[query.metric], query


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/metrics", "aggregated"),
        ("/metrics/per-object", "per-object"),
        ("/metrics/detailed?family=queue_coarse_metrics", "detailed"),
    ],
)
def test_dashboards_choose_an_endpoint(pages, path, endpoint):
    """The latest dashboards choose one of the paths by the label `rabbitmq_endpoint`, so that a Prometheus that scrapes
    several does not count twice.
    """
    found = [dict(labels) for name, labels in parsed(pages(path)) if name == "rabbitmq_identity_info"]
    assert [labels["rabbitmq_endpoint"] for labels in found] == [endpoint]


def test_each_object_has_series_on_request(pages, broker):
    """`/metrics/per-object` has each of the queried metrics of queues with the labels of the queue (CM-330, CM-333)."""
    broker.declare_queue("on a panel")
    key = (("vhost", "/"), ("queue", "on a panel"))
    queue_metrics = {query.metric for query in queries() if query.metric.startswith("rabbitmq_queue_messages")}
    until(lambda: queue_metrics <= {name for name, labels in parsed(pages("/metrics/per-object")) if labels == key})
    broker.delete_queue("on a panel")
