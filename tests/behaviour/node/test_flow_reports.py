"""What the broker reports about flow control without being asked, which are bottlenecks, and on demand each block and a
sample each second (FC-46, FC-67, SP-99).
"""

import json
import logging
import queue as queue_module
from contextlib import suppress

import pytest

from warren.actors.context.events import Events
from warren.actors.node import flow_sampler

from .test_events import Watch


@pytest.fixture
def watched(own_broker):
    return own_broker(
        event_exchange_vhost="/",
        credit_flow_default_credit=(1, 1),
        credit_flow_tracing=True,
        flow_report_interval=50,
        # This is longer than a test takes, so that a connection that was blocked once stays in the state `flow`.
        flow_hold_connection=600_000,
        channel_operation_timeout=60_000,
    )


def test_each_block_and_its_end_are_traced(watched, connect, name):
    """With tracing on, each block and its end are events that name the actor, the peer and the time."""
    events = Watch(connect(to=watched.url).channel(), "amq.rabbitmq.event", "credit.*")
    client = connect(to=watched.url)
    channel = client.channel()
    queue = channel.queue(name)
    for number in range(20):
        channel.publish(str(number), queue)
    found = {key: events.one(key) for key in ("credit.blocked", "credit.unblocked")}
    for fields in found.values():
        assert fields["node"].startswith("warren@") and fields["timestamp_in_ms"] > 0
        assert fields["actor"].split()[0] in ("connection", "channel", "queue") and fields["peer"]


def test_a_bottleneck_is_reported_once_for_its_subject_and_so_is_its_end(watched, connect, name, caplog):
    """A bottleneck and its end are reported once for each subject, in the log and as the event `flow.verdict`; the one
    for the end names no bottleneck.
    """
    caplog.set_level(logging.INFO, "warren.flow")
    events = Watch(connect(to=watched.url).channel(), "amq.rabbitmq.event", "flow.verdict")
    client = connect(to=watched.url)
    channel = client.channel()
    queue = channel.queue(name)
    for number in range(200):
        channel.publish(str(number), queue)
    report = events.one("flow.verdict")
    assert report["bottleneck"] in ("channel", "queue", "message store") and report["connections"] == 1
    assert report["subject"] and report["connection"].split(" ->")[0].startswith("127.0.0.1:")
    client.close()
    while report["bottleneck"]:
        report = events.one("flow.verdict")
    lines = [record.getMessage() for record in caplog.records if record.name == "warren.flow"]
    assert any("holds back connection 127.0.0.1:" in line for line in lines)
    assert any(line == f"{report['subject']} holds no connection back any more" for line in lines)


@pytest.fixture
def sampled(own_broker, monkeypatch):
    """A broker that samples twenty times a second, so that tests need not wait for seconds."""
    monkeypatch.setattr(flow_sampler, "INTERVAL", 0.05)
    return own_broker(event_exchange_vhost="/", credit_flow_default_credit=(1, 1), flow_hold_connection=600_000)


def samples_until(channel, is_last):
    """Wait for a sample for which `is_last` is true, and return all samples that the consumer got until then."""
    found = []
    while not found or not is_last(found[-1]):
        delivery = channel.delivery()
        assert delivery.method.routing_key == "flow.sample" and delivery.properties.content_type == "application/json"
        found.append(json.loads(delivery.body))
    return found


def test_samples_add_up_to_what_was_counted_since_somebody_watched(sampled, connect, name):
    """Samples contain what is counted after the first of them, each count once, and nothing from before somebody
    watched.
    """
    channel = connect(to=sampled.url).channel()
    queue = channel.queue(name)
    channel.confirm()
    for number in range(7):
        channel.publish(str(number), queue)
    channel.confirms(1, 7)
    watcher = Watch(connect(to=sampled.url).channel(), "amq.rabbitmq.event", "flow.*").channel
    samples_until(watcher, lambda sample: True)
    for number in range(20):
        channel.publish(str(number), queue)
    channel.confirms(8, 27)
    assert channel.get(queue).body == b"0"
    samples, queues = [], []
    while sum(sample["confirmed"] for sample in samples) < 20 or sum(each["out"] for each in queues) < 1:
        samples += samples_until(watcher, lambda sample: True)
        queues = [each for sample in samples for each in sample["objects"] if each["name"] == queue]
    assert sum(sample["published"] for sample in samples) == sum(sample["confirmed"] for sample in samples) == 20
    assert sum(each["in"] for each in queues) == 20 and {each["stage"] for each in queues} == {"queue"}
    assert queues[-1]["ready"] == 26 and samples[-1]["ready"] >= 26 and samples[-1]["node"] == "warren@localhost"
    assert all(sample["seconds"] > 0 and sample["alarms"] == [] for sample in samples)
    assert sum(sample["bytes_in"] for sample in samples) > 20 * 20


def test_a_sample_has_what_holds_connections_back(sampled, connect, name):
    watcher = Watch(connect(to=sampled.url).channel(), "amq.rabbitmq.event", "flow.sample").channel
    channel = connect(to=sampled.url).channel()
    queue = channel.queue(name)
    for number in range(500):
        channel.publish(str(number), queue)
    (verdict,) = samples_until(watcher, lambda sample: sample["verdicts"])[-1]["verdicts"]
    assert verdict["bottleneck"] in ("channel", "queue", "message store") and verdict["connections"] == 1
    assert verdict["subject"] and verdict["evidence"] and verdict["advice"] and 0 <= verdict["share"] <= 1


def test_only_a_pattern_for_flow_causes_samples(sampled, connect, monkeypatch):
    """A queue that collects all events, such as an audit log, does not get a sample each second: only bindings that
    name flow cause samples.
    """
    looks = queue_module.SimpleQueue()
    is_wanted = Events.are_samples_wanted

    def look(events):
        answer = is_wanted(events)
        looks.put(answer)
        return answer

    def looked(*wanted):
        """Wait until the sampler has seen this binding."""
        return [looks.get(timeout=300) for _ in wanted] == list(wanted)

    everything = Watch(connect(to=sampled.url).channel(), "amq.rabbitmq.event", "#")
    monkeypatch.setattr(Events, "are_samples_wanted", look)
    assert looked(False, False, False)
    channel = connect(to=sampled.url).channel()
    queue = channel.queue(exclusive=True)
    channel.bind(queue, "amq.rabbitmq.event", "flow.*")
    everything.one("flow.sample")
    channel.delete(queue)
    with suppress(queue_module.Empty):
        while True:  # Some samples are from before the queue was bound.
            looks.get_nowait()
    while looks.get(timeout=300):
        pass
    assert looked(False, False, False)
    first = channel.queue(exclusive=True)
    assert looked(False, False, False)
    last = channel.queue(exclusive=True)
    created = []
    while not created or created[-1] != last:
        events = everything.until("queue.created")
        created.append(events[-1][1]["name"])
        if created[-1] == last:
            assert [key for key, _ in events] == ["queue.created"]
    assert created[-2] == first
