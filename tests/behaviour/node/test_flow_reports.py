"""What the broker reports by itself about flow control: bottlenecks and, if asked, each block (FC-46, FC-67)."""

import logging

import pytest

from .test_events import Watch


@pytest.fixture
def watched(own_broker):
    return own_broker(
        event_exchange_vhost="/",
        credit_flow_default_credit=(1, 1),
        credit_flow_tracing=True,
        flow_report_interval=50,
        # Later than any test ends, so that a connection that was blocked once stays in the state `flow`.
        flow_hold_connection=600_000,
        channel_operation_timeout=60_000,
    )


def test_each_block_and_its_end_are_traced(watched, connect, name):
    """The event names the actor, the peer and the time."""
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
    """The report comes in the log and as an event. It is of `connection.flow`, and its end has no bottleneck."""
    caplog.set_level(logging.INFO, "warren.flow")
    events = Watch(connect(to=watched.url).channel(), "amq.rabbitmq.event", "connection.flow")
    client = connect(to=watched.url)
    channel = client.channel()
    queue = channel.queue(name)
    for number in range(200):
        channel.publish(str(number), queue)
    report = events.one("connection.flow")
    assert report["bottleneck"] in ("channel", "queue", "message store") and report["connections"] == 1
    assert report["subject"] and report["connection"].split(" ->")[0].startswith("127.0.0.1:")
    client.close()
    while report["bottleneck"]:
        report = events.one("connection.flow")
    lines = [record.getMessage() for record in caplog.records if record.name == "warren.flow"]
    assert any("holds back connection 127.0.0.1:" in line for line in lines)
    assert any(line == f"{report['subject']} holds no connection back any more" for line in lines)
