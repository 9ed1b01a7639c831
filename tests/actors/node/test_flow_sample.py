"""The content of a sample of flow control, which is made from the statistics of the node's processes (SP-99)."""

import pytest

from warren.actors.node.flow_sample import MOST_OBJECTS, FlowSamples
from warren.actors.statistics.counts import MESSAGE_COUNTERS


def counts(**values):
    return [values.get(name, 0) for name in MESSAGE_COUNTERS]


def connection(**items):
    usual = {"name": "a -> b", "user": "guest", "vhost": "/", "state": "running", "alarms": [], "pauses": []}
    return {**usual, "blocked_by": [], "blocked_share": 0.0, "blocked_seconds": 0.0} | {
        **{"recv_oct": 0, "send_oct": 0},
        **items,
    }


def channel(**items):
    usual = {"name": "a -> b (1)", "number": 1, "vhost": "/", "connection": "c1", "state": "running", "blocked_by": []}
    usual |= {"blocked_share": 0.0, "blocked_seconds": 0.0, "messages_unconfirmed": 0, "backlog": 0}
    return {**usual, "counts": counts(), **items}


def queue(name="orders", **items):
    usual = {"name": name, "vhost": "/", "state": "running", "blocked_by": [], "blocked_share": 0.0}
    usual |= {"blocked_seconds": 0.0, "blocked_seconds_by": {}, "messages_ready": 0, "messages_unacknowledged": 0}
    usual["consumers"] = 0
    return {**usual, "counts": counts(), **items}


def node(**values):
    usual = {"node": "warren@a", "at": 1000, "seconds": 1.0, "counts": counts(), "memory": 5, "memory_limit": 10}
    return {**usual, "alarms": [], **values}


def test_a_sample_has_the_differences():
    samples = FlowSamples(counts(publish=100, deliver=50), ["q1"])
    samples.read("queue", "q1", queue(counts=counts(publish=100), messages_ready=40))
    sample = samples.sample(node(counts=counts(publish=110, deliver=52, get_no_ack=3, ack=4, confirm=9)))
    assert [sample[name] for name in ("published", "confirmed", "delivered", "acked")] == [10, 9, 5, 4]
    assert (sample["ready"], sample["unacked"], sample["objects"]) == (40, 0, [])
    samples.read("queue", "q1", queue(counts=counts(publish=107, deliver=2), messages_ready=45, blocked_seconds=0.25))
    # A new queue is counted from its beginning.
    samples.read("queue", "q2", queue("new", counts=counts(publish=3), messages_unacknowledged=3))
    sample = samples.sample(node(counts=counts(publish=120, deliver=52, get_no_ack=3, ack=4, confirm=9)))
    assert [sample[name] for name in ("published", "confirmed", "ready", "unacked")] == [10, 0, 45, 3]
    assert [(each["name"], each["in"], each["out"], each["blocked"]) for each in sample["objects"]] == [
        ("orders", 7, 2, 0.25),
        ("new", 3, 0, 0.0),
    ]
    assert [(each["acked"], each["consumers"]) for each in sample["objects"]] == [(0, 0), (0, 0)]
    acked = queue(counts=counts(publish=107, deliver=2, ack=2), messages_unacknowledged=5, consumers=3)
    samples.read("queue", "q1", acked)
    (row,) = samples.sample(node(counts=counts(publish=120)))["objects"]
    assert (row["acked"], row["consumers"], row["unacked"]) == (2, 3, 5)
    samples.end("q1")
    assert samples.sample(node(counts=counts(publish=120)))["ready"] == 0


def test_seconds_are_told_by_the_stage_that_blocks():
    samples = FlowSamples(counts(), [])
    by = {"store": 0.5, "journal": 0.1}
    samples.read("queue", "q", queue(blocked_seconds=0.6, blocked_seconds_by=by, blocked_by=["journal"]))
    assert samples.sample(node())["objects"][0]["blocked_by"] == {"journal": 0.1, "store": 0.5}
    samples.read("queue", "q", queue(blocked_seconds=0.9, blocked_seconds_by={**by, "store": 0.8}))
    assert samples.sample(node())["objects"][0]["blocked_by"] == {"store": 0.3}


def test_the_most_blocked_and_then_the_busiest_are_shown():
    samples = FlowSamples(counts(), [])
    for number in range(2 * MOST_OBJECTS):
        samples.read("queue", f"q{number}", queue(str(number), counts=counts(publish=number + 1)))
    samples.read("queue", "slow", queue("slow", blocked_seconds=0.1))
    samples.read("queue", "idle", queue("idle"))
    shown = [each["name"] for each in samples.sample(node())["objects"]]
    assert shown[:2] == ["slow", str(2 * MOST_OBJECTS - 1)] and len(shown) == MOST_OBJECTS and "idle" not in shown


def test_connections_with_one_cause_are_one_verdict():
    samples = FlowSamples(counts(), [])
    for number, share in ((1, 0.2), (2, 0.8)):
        items = {"blocked_by": ["channel 1"], "blocked_share": share}
        samples.read("connection", f"c{number}", connection(state="flow", name=f"c{number}", **items))
        samples.read("channel", f"h{number}", channel(connection=f"c{number}", **{**items, "blocked_by": ["orders"]}))
    samples.read("connection", "c3", connection(state="running", pauses=["output"]))
    verdicts = samples.sample(node())["verdicts"]
    assert [(each["bottleneck"], each["subject"], each["connections"], each["share"]) for each in verdicts] == [
        ("queue", "queue 'orders' in vhost '/'", 2, 0.8),
        ("client", "the client of connection a -> b", 1, 1.0),
    ]
    assert verdicts[0]["evidence"] == "blocked channel 1 for 80% of 5 s"
    # A process that was blocked is no longer named when it is read again and not blocked, or has ended.
    samples.read("connection", "c1", connection())
    samples.read("connection", "c3", connection())
    samples.end("c2")
    assert samples.sample(node())["verdicts"] == []


@pytest.mark.parametrize("state", ["closing", "closed"])
def test_a_connection_that_ends_is_held_back_by_nobody(state):
    samples = FlowSamples(counts(), [])
    samples.read("connection", "c", connection(state=state, pauses=["output"]))
    assert samples.sample(node())["verdicts"] == []
