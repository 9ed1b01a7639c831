"""The metrics, as text that Prometheus reads, under the names that dashboards for RabbitMQ use."""

import asyncio
import gzip
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pika
import pytest

from warren import Broker
from warren.actors.node.operations.observing.bottlenecks import ADVICE
from warren.management.answers.families import COPY_FAMILIES
from warren.management.answers.prometheus import Metrics
from warren.management.copy.node_link import NodeUnreachable

from ..conftest import Api, parsed, ports, until

RECORDED = Path(__file__).parents[2] / "testdata" / "management" / "rabbitmq-3.10.8-metrics.txt"
UNITS = ("bytes", "packets")

#: Families of RabbitMQ's metrics that warren lacks, and why (docs/management.md).
ABSENT = {
    "rabbitmq_channel_process_reductions_total": "reductions are Erlang's",
    "rabbitmq_connection_process_reductions_total": "reductions are Erlang's",
    "rabbitmq_erlang_gc_reclaimed_bytes_total": "Python does not count them",
    "rabbitmq_global_messages_dead_lettered_confirmed_total": "dead letters are not confirmed",
    "rabbitmq_queue_head_message_timestamp": "as in RabbitMQ, the metrics of single queues alone have it",
}
#: A part of the names of further families that warren lacks: those of RabbitMQ's Raft log, of which a quorum queue has
#: none.
NOT_COUNTED = re.compile("_raft_")

#: Labels of RabbitMQ's later versions, which its latest dashboards need.
LATER_LABELS = {"rabbitmq_identity_info": "rabbitmq_endpoint"}

#: RabbitMQ's exporter declares the families with this prefix as untyped; warren declares them as gauges.
GAUGES = "rabbitmq_alarms_"


def test_families_are_those_of_rabbitmq(scrape):
    """All of RabbitMQ's families are there, with the same names, types and labels, except for those that warren lacks;
    no other family has RabbitMQ's prefix (CM-331, CM-336, CM-340 to CM-368, CM-370).
    """
    text = scrape.client.raw("GET", "/metrics")[1].decode()
    types = dict(re.findall("^# TYPE (.*) (.*)$", text, re.MULTILINE))
    assert types.keys() == set(re.findall("^# HELP ([^ ]+) .", text, re.MULTILINE))
    labels = {name: ",".join(sorted(key for key, _ in found)) or "-" for name, found in parsed(text)}
    recorded = [line.split() for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    for name, kind, keys in recorded:
        if name in ABSENT or NOT_COUNTED.search(name):
            assert name not in types, f"{name} is there"
            continue
        assert types[name] == ("gauge" if name.startswith(GAUGES) else kind), name
        wanted = {*keys.split(","), *LATER_LABELS.get(name, "").split()}
        assert set(labels[name].split(",")) == wanted, name
    ours = {name for name in types if name.startswith("rabbitmq_")} - {name for name, _, _ in recorded}
    assert ours == set(), "RabbitMQ's prefix is for RabbitMQ's names"


def test_a_node_is_identified(scrape, broker):
    """`rabbitmq_identity_info` names node and cluster: dashboards join every other metric with it (CM-334)."""
    ((_, labels),) = [key for key in scrape() if key[0] == "rabbitmq_identity_info"]
    found = dict(labels)
    assert (found["rabbitmq_node"], found["rabbitmq_cluster"]) == (broker.settings.node_name,) * 2
    assert found["rabbitmq_cluster_permanent_id"].startswith("warren-cluster-id-")


def test_dead_letters_of_a_deleted_queue_stay_counted(scrape, broker):
    """The dead letters of a queue stay counted when the queue is deleted (CM-358, CM-376)."""
    labels = (("queue_type", "rabbit_classic_queue"), ("dead_letter_strategy", "at_most_once"))
    key = "rabbitmq_global_messages_dead_lettered_maxlen_total", labels
    before = scrape()[key]
    broker.declare_queue("short", arguments={"x-max-length": 1, "x-dead-letter-exchange": "amq.fanout"})
    for _ in range(3):
        broker.publish(b"x", "short")
    until(lambda: scrape()[key] == before + 2)
    queue = "rabbitmq_queue_messages", (("vhost", "/"), ("queue", "short"))
    broker.delete_queue("short")
    until(lambda: queue not in scrape("/metrics/per-object"))
    assert scrape()[key] == before + 2


def of_family(found, name):
    """The values of a family by the labels, without their names."""
    return {tuple(value for _, value in labels): value for (each, labels), value in found.items() if each == name}


def test_dead_letters_are_counted_by_type_of_queue_and_strategy(scrape, broker):
    """Messages that die are counted for the type of their queue, as `disabled` where no exchange gets dead letters, and
    as `at_most_once` elsewhere. RabbitMQ has the same series from its start on, and `at_least_once` besides (CM-358).
    """
    classic, quorum = "rabbit_classic_queue", "rabbit_quorum_queue"
    series = [(kind, strategy) for kind in (classic, quorum) for strategy in ("disabled", "at_most_once")]
    family = "rabbitmq_global_messages_dead_lettered_{}_total".format
    before = scrape()
    for reason in ("expired", "rejected", "maxlen"):
        assert list(of_family(before, family(reason))) == series
    assert list(of_family(before, family("delivery_limit"))) == series[2:]
    for number, (kind, strategy) in enumerate(series, 1):
        arguments = {"x-queue-type": "quorum" if kind == quorum else "classic", "x-max-length": 1}
        if strategy == "at_most_once":
            arguments["x-dead-letter-exchange"] = "amq.fanout"
        elif kind == quorum:
            arguments["x-dead-letter-exchange"] = "nosuch"  # an exchange that does not exist gets nothing
        name = f"{kind} {strategy}"
        broker.declare_queue(name, durable=True, arguments=arguments)
        for _ in range(1 + number):
            broker.publish(b"x", name)
    then = of_family(before, family("maxlen"))
    wanted = {key: then[key] + number for number, key in enumerate(series, 1)}
    until(lambda: of_family(scrape(), family("maxlen")), wanted.__eq__)
    for kind, strategy in series:
        broker.delete_queue(f"{kind} {strategy}")
    until(lambda: scrape()["rabbitmq_queues", ()] == before["rabbitmq_queues", ()])
    assert of_family(scrape(), family("maxlen")) == wanted


def test_deliveries_are_counted_by_type_of_queue(scrape, broker):
    """Deliveries, fetches and acknowledgements are counted for the type of their queue (CM-356, CM-357)."""
    names = {"classic": "rabbit_classic_queue", "quorum": "rabbit_quorum_queue", "stream": "rabbit_stream_queue"}
    families = {
        "consume_manual_ack": "rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "get_auto_ack": "rabbitmq_global_messages_delivered_get_auto_ack_total",
        "get_empty": "rabbitmq_global_messages_get_empty_total",
        "acknowledged": "rabbitmq_global_messages_acknowledged_total",
        "all": "rabbitmq_global_messages_delivered_total",
    }

    def counted():
        found = scrape()
        return {short: of_family(found, name) for short, name in families.items()}

    before = counted()
    assert list(before["all"]) == [("amqp091", name) for name in names.values()]
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        for number, kind in enumerate(names, 1):
            channel.queue_declare(kind, durable=True, arguments={"x-queue-type": kind})
            for _ in range(number):
                channel.basic_publish("", kind, b"x")
            start = {"x-stream-offset": "first"} if kind == "stream" else {}
            for _ in range(number):
                method, _, _ = next(channel.consume(kind, inactivity_timeout=60, arguments=start))
                channel.basic_ack(method.delivery_tag)
            channel.cancel()
            if kind != "stream":
                channel.basic_publish("", kind, b"x")
                assert channel.basic_get(kind, auto_ack=True)[2] == b"x"
                assert channel.basic_get(kind, auto_ack=True)[0] is None
    one = {"classic": 1, "quorum": 1, "stream": 0}
    several = {"classic": 1, "quorum": 2, "stream": 3}
    by = {
        "consume_manual_ack": several,
        "get_auto_ack": one,
        "get_empty": one,
        "acknowledged": several,
        "all": {kind: one[kind] + several[kind] for kind in names},
    }
    wanted = {
        short: {key: before[short][key] + by[short][kind] for kind, name in names.items() if (key := ("amqp091", name))}
        for short in families
    }
    until(counted, wanted.__eq__)
    for kind in names:
        broker.delete_queue(kind)


def test_what_a_closed_connection_has_counted_stays(scrape, broker):
    """The bytes of a connection stay counted when it is lost, and its consumers are no longer counted (CM-359, CM-363,
    CM-376, CM-377).
    """
    protocol = (("protocol", "amqp091"),)
    bytes_names = [f"rabbitmq_connection_{way}_{unit}_total" for way in ("incoming", "outgoing") for unit in UNITS]
    before = scrape()
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("left", exclusive=True)
    channel.basic_consume("left", lambda *delivery: None)
    until(lambda: scrape()["rabbitmq_global_consumers", protocol] == 1)
    connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    # The queue forgets its consumer a moment after the connection is gone.
    gone = ("rabbitmq_global_consumers", protocol), ("rabbitmq_consumers", ())
    after = until(scrape, lambda found: not any(found[name] for name in gone))
    assert after["rabbitmq_connections", ()] == before["rabbitmq_connections", ()]
    for name in bytes_names:
        assert after[name, ()] > before[name, ()], name


def test_counters_count_and_gauges_show_what_is(scrape, broker, api):
    """Publishes, gets and deletions change counters and gauges by the right amounts, and no counter falls when a queue
    is deleted (CM-341, CM-343, CM-348, CM-350, CM-353, CM-354, CM-360, CM-376).
    """
    before = scrape()
    broker.declare_queue("metered")
    for _ in range(5):
        broker.publish(b"abc", "metered")
    broker.get("metered")

    def seen():
        now = scrape()
        return now if now[("rabbitmq_queue_messages", ())] == before[("rabbitmq_queue_messages", ())] + 4 else None

    now = until(seen)
    for name, by in (
        (("rabbitmq_queues", ()), 1),
        (("rabbitmq_queues_created_total", ()), 1),
        (("rabbitmq_queue_messages_bytes", ()), 12),
        (("rabbitmq_queue_messages_published_total", ()), 5),
        (("rabbitmq_global_messages_received_total", (("protocol", "amqp091"),)), 5),
        (("rabbitmq_channel_messages_published_total", ()), 5),
    ):
        assert now[name] == before[name] + by, name
    broker.delete_queue("metered")
    until(lambda: scrape()[("rabbitmq_queues_deleted_total", ())] == before[("rabbitmq_queues_deleted_total", ())] + 1)
    after = scrape()
    fallen = [key for key, value in after.items() if key[0].endswith("_total") and value < now.get(key, 0)]
    assert fallen == [], "a counter never falls"


def test_objects_have_labels(scrape, broker):
    """`/metrics/per-object` has a series for each queue, its name escaped in the label; `/metrics` has only sums
    (CM-330, CM-333).
    """
    name = 'odd "name"\\'
    broker.declare_queue(name)
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    key = "rabbitmq_queue_messages", (("vhost", "/"), ("queue", escaped))
    until(lambda: key in scrape("/metrics/per-object"))
    assert key not in scrape()
    broker.delete_queue(name)


def test_answers_are_compressed_for_who_takes_that(scrape):
    """An answer is compressed with gzip if the client accepts that (CM-331)."""
    status, body = scrape.client.raw("GET", "/metrics", headers={"accept-encoding": "gzip"})
    assert status == 200 and parsed(gzip.decompress(body).decode())


def test_other_paths_and_methods_are_refused(scrape):
    """A path other than the metrics is 404, and a method other than GET 405 (CM-330)."""
    assert scrape.client.raw("GET", "/other")[0] == 404
    assert scrape.client.raw("POST", "/metrics")[0] == 405


def test_connections_are_counted_by_what_holds_them_back(scrape, broker):
    """`warren_bottleneck_connections` counts the connections that a resource alarm blocks, until the alarm ends (FC-67
    (c)).
    """

    def held_back():
        name = "warren_bottleneck_connections"
        return {dict(labels)["bottleneck"]: value for (each, labels), value in scrape().items() if each == name}

    nothing = dict.fromkeys(ADVICE, 0)
    until(held_back, nothing.__eq__)
    broker.set_alarm("memory", True)
    try:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            # A connection is blocked from its first publish on, so one that has not published is not counted.
            connection.channel().basic_publish("", "nowhere", b"x")
            until(held_back, {**nothing, "resource alarm": 1}.__eq__)
            broker.set_alarm("memory", False)
            connection.process_data_events(0)
            until(held_back, nothing.__eq__)
    finally:
        broker.set_alarm("memory", False)


def buckets(found, name):
    """The number of values up to each bound of a histogram. It asserts that bounds and numbers rise and agree with the
    count.
    """
    series = {dict(labels)["le"]: value for (each, labels), value in found.items() if each == f"{name}_bucket"}
    bounds = [float(bound) for bound in series]
    assert bounds == sorted(bounds) and bounds[-1] == float("inf")
    values = list(series.values())
    assert values == sorted(values) and values[-1] == found[f"{name}_count", ()]
    return dict(zip(bounds, values))


def test_histograms_show_commits_confirms_and_deliveries(tmp_path):
    """Histograms count commits of the journal, confirms, deliveries and changes of metadata (CM-375)."""
    ports_and_interval = {"management_port": 0, "prometheus_port": 0, "management_interval": 100}
    with Broker(data_dir=tmp_path, management=True, **ports_and_interval) as broker:
        client = Api(ports(broker)["http/prometheus"], user=None)

        def scrape():
            return parsed(client.raw("GET", "/metrics")[1].decode())

        before = until(scrape)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("timed", durable=True)
            channel.confirm_delivery()
            for number in range(20):
                channel.basic_publish("", "timed", b"%d" % number, pika.BasicProperties(delivery_mode=2))
            assert channel.basic_get("timed", auto_ack=True)[2] == b"0"
        # Wait for the delivery, because statistics that were sent while the client was still publishing lack later
        # values.
        last = "warren_publish_to_deliver_seconds_count", ()
        found = until(scrape, lambda found: found[last] > before[last])

    for name, least in {
        "warren_journal_sync_seconds": 20,
        "warren_journal_sync_messages": 20,
        "warren_publish_to_confirm_seconds": 1,
        "warren_publish_to_deliver_seconds": 1,
        "warren_raft_commit_seconds": 1,
    }.items():
        counted = buckets(found, name)
        assert counted[float("inf")] - before[f"{name}_count", ()] >= least, name
    assert found["warren_journal_sync_messages_sum", ()] == 20, "each message is in one commit"
    # A publish less than 1 ms after the last timed one is not timed itself, but counted with the next one that is
    # timed.
    assert 1 <= found["warren_publish_to_confirm_seconds_count", ()] <= 20


def test_messages_that_a_pace_refuses_are_counted(scrape, broker):
    """Messages that a pace drops stay counted when the queue is no longer paced, and when it is deleted (CM-375,
    CM-376).
    """
    name, outcome = "warren_pace_refused_total", ("outcome", "drop")
    before = scrape()[name, (outcome,)]
    pace = {"pace-rate": 1, "pace-period-ms": 3_600_000, "pace-max-wait-ms": 0, "pace-overflow": "drop"}
    broker.set_policy("paced", "^paced$", pace, apply_to="queues")
    broker.declare_queue("paced")
    for _ in range(3):
        broker.publish(b"x", "paced")
    until(lambda: scrape()[name, (outcome,)] == before + 3)
    labels = ("vhost", "/"), ("queue", "paced"), outcome
    assert scrape("/metrics/per-object")[name, labels] == 3
    broker.clear_policy("paced")
    until(lambda: (name, labels) not in scrape("/metrics/per-object"))
    assert scrape()[name, (outcome,)] == before + 3
    broker.delete_queue("paced")
    until(lambda: ("rabbitmq_queue_messages", labels[:2]) not in scrape("/metrics/per-object"))
    assert scrape()[name, (outcome,)] == before + 3


def test_messages_that_wait_for_groups_of_consumers_are_counted(scrape, broker):
    """A queue with a pace for each group of its consumers counts its waiting messages as every paced queue does
    (QP-108).
    """
    pace = {"pace-rate": 1, "pace-period-ms": 3_600_000, "pace-scope": "group"}
    broker.set_policy("grouped", "^grouped$", pace, apply_to="queues")
    broker.declare_queue("grouped")
    for _ in range(3):
        broker.publish(b"x", "grouped")
    labels = ("vhost", "/"), ("queue", "grouped")
    until(lambda: scrape("/metrics/per-object").get(("warren_pace_waiting", labels)) == 3)
    assert scrape("/metrics/per-object")["warren_pace_held_total", labels] == 2, "the first one waits for no other"
    broker.delete_queue("grouped")
    broker.clear_policy("grouped")


def test_the_copies_of_a_queue_are_added_up():
    """Replicas that wait do not copy, and those without an estimate count as lacking nothing (CL-90)."""
    copies = [
        {"stage": "copying", "left": 5, "bytes_per_second": 200},
        {"stage": "comparing", "left": None, "bytes_per_second": 100},
        {"stage": "waiting", "left": None, "bytes_per_second": 0},
    ]
    assert [family.value({"synchronisation": copies}) for family in COPY_FAMILIES] == [2, 5, 300]


def test_a_node_that_is_alone_leads(scrape):
    found = scrape()
    assert found["warren_raft_leader", ()] == 1 and found["warren_members_down", ()] == 0


def test_the_commits_of_the_journal_have_a_history(tmp_path):
    with Broker(
        data_dir=tmp_path, management=True, management_port=0, prometheus_port=0, management_interval=100
    ) as broker:
        api = Api(ports(broker)["http"])
        path = f"/api/nodes/{broker.settings.node_name}?node_stats_age=60&node_stats_incr=5"
        assert until(lambda: api("GET", path)[1]).get("journal_commits") == 0
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("timed", durable=True)
            channel.confirm_delivery()
            for _ in range(3):
                channel.basic_publish("", "timed", b"x", pika.BasicProperties(delivery_mode=2))
        found = until(lambda: api.get(path), lambda found: found["journal_commit_messages"] == 3)
        assert found["journal_commits"] >= 3 and found["journal_commit_seconds"] > 0
        mean = found["journal_commit_seconds"] / found["journal_commits"]
        assert found["io_sync_count"] == found["journal_commits"]
        assert found["io_sync_avg_time"] == pytest.approx(1000 * mean)
        assert found["io_write_count"] >= found["journal_commits"] and found["io_write_avg_time"] > 0
        assert found["mnesia_disk_tx_count"] >= 1, "the queue was declared"
        until(lambda: any(each["sample"] >= 3 for each in api.get(path)["journal_commits_details"].get("samples", ())))


def test_mailboxes_have_lengths(scrape):
    """Connections, channels and queues have series, and so has each other kind of process that waits (CM-375)."""
    found = scrape()
    kinds = {labels[0][1] for name, labels in found if name == "warren_mailbox_length"}
    assert {"connection", "channel", "queue"} <= kinds
    for kind in kinds:
        labels = (("kind", kind),)
        assert 0 <= found["warren_mailbox_length_max", labels] <= found["warren_mailbox_length", labels]


def test_the_message_index_has_metrics(tmp_path):
    """Indexed queues show how many messages the index lacks, and searches are counted (CM-375)."""
    settings = {"management_port": 0, "prometheus_port": 0, "management_interval": 100}
    with Broker(data_dir=tmp_path, management=True, **settings) as broker:
        client = Api(ports(broker)["http/prometheus"], user=None)

        def scrape():
            return parsed(client.raw("GET", "/metrics")[1].decode())

        assert not any(name == "warren_index_lag_messages" for name, _ in scrape())
        broker.set_policy("indexed", "^indexed", {"message-index": "key"}, apply_to="queues")
        broker.declare_queue("indexed", durable=True)
        broker.publish(b"x", "indexed", message_id="m-1")
        lag = "warren_index_lag_messages", (("vhost", "/"),)
        until(scrape, lambda found: found.get(lag) == 0 and found["rabbitmq_queue_messages", ()] == 1)
        assert until(lambda: broker.query(queue="indexed", key="m-1"))
        assert until(scrape, lambda found: found["warren_index_queries_total", ()] > 0)


def test_the_metrics_of_all_queues_are_the_sums_of_those_of_each(scrape, broker):
    """Also where queues that have the same in memory and on the disk are counted together (CM-335, CM-348 to CM-353).
    The shares of consumers are the mean of the queues with consumers.
    """
    for number, count in enumerate((0, 0, 1, 1, 3)):
        broker.declare_queue(f"summed {number}")
        for _ in range(count):
            broker.publish(b"12345", f"summed {number}")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().basic_consume("summed 0", lambda *delivery: None)
        key = "rabbitmq_queue_consumer_utilisation", (("vhost", "/"), ("queue", "summed 0"))
        until(lambda: scrape("/metrics/per-object").get(key) == 1.0)
        each, totals = scrape("/metrics/per-object"), scrape()
    families = {name for name, labels in each if dict(labels).get("queue") and not name.startswith("warren_")}
    families -= {"rabbitmq_queue_head_message_timestamp"}
    assert len(families) > 15
    for family in families:
        values = [value for (name, _), value in each.items() if name == family]
        if family.endswith(("_utilisation", "_capacity")):
            assert totals[family, ()] == 1.0
        elif not family.endswith("_total"):  # those of deleted queues count in the sums of counters
            assert totals[family, ()] == sum(values), family
    for number in range(5):
        broker.delete_queue(f"summed {number}")


def test_a_scrape_fails_while_the_node_does_not_answer():
    """Prometheus then shows the node as down, and the last numbers do not count as those of now."""
    sent = []

    async def send(message):
        sent.append(message)

    class Silent:
        def check_answers(self):
            raise NodeUnreachable("it has not answered for 99 s")

    metrics = Metrics(SimpleNamespace(per_object_metrics=False), SimpleNamespace(node={"name": "n"}), Silent())
    scope = {"path": "/metrics", "query_string": b"", "method": "GET", "headers": []}
    asyncio.run(metrics(scope, None, send))
    assert sent[0]["status"] == 503 and sent[1]["body"] == b"the node does not answer: it has not answered for 99 s\n"
