"""`/recent-events`: what has happened to the cluster, the latest first (CM-268, CM-390)."""

from warren.management.copy.recent_events import KEPT, RecentEvents

from .conftest import until


def texts(api, count=""):
    return [row["text"] for row in api.get(f"/api/recent-events{count}")]


def test_policies_and_alarms_are_noted(api, broker):
    """The start of the node, each change of a policy, and the begin and end of an alarm are events."""
    node = broker.settings.node_name
    assert texts(api)[-1] == f"node '{node}' has started"
    phrase = "policy 'p' in virtual host '/'"
    broker.set_policy("p", "^none$", {"max-length": 1}, apply_to="queues")
    until(lambda: texts(api)[0] == f"{phrase} was added")
    broker.set_policy("p", "^none$", {"max-length": 2}, apply_to="queues")
    until(lambda: texts(api)[0] == f"{phrase} was changed")
    broker.clear_policy("p")
    until(lambda: texts(api)[0] == f"{phrase} was deleted")
    broker.set_policy("p", "^none$", {"max-length": 1}, operator=True, apply_to="queues")
    until(lambda: texts(api)[0] == f"operator {phrase} was added")
    broker.set_alarm("memory", True)
    try:
        until(lambda: texts(api)[0] == f"the alarm of the memory of node '{node}' began: publishers are blocked")
    finally:
        broker.set_alarm("memory", False)
    until(lambda: texts(api)[0] == f"the alarm of the memory of node '{node}' ended")
    assert texts(api, "?count=2") == texts(api)[:2]
    assert texts(api, "?count=0") == []
    assert api("GET", "/api/recent-events?count=x")[0] == 400


def test_only_who_monitors_sees_events(user):
    assert user("management")("GET", "/api/recent-events")[0] == 401


def node(members, alarms=(), time=2.0):
    rows = [
        {"name": name, "is_running": is_running, "maintenance": maintenance, "role": "data"}
        for name, is_running, maintenance in members
    ]
    return {"name": "a", "time": time, "started_at": 1.0, "members": rows, "alarms": list(alarms)}


def test_members_come_and_go():
    """Members that join, leave, stop, start, and begin and end a maintenance are events with the time of the node."""
    events = RecentEvents()
    events.note_members(node([("a", True, False), ("b", True, False)]))
    events.note_members(node([("a", True, False), ("b", False, True), ("c", True, False)], time=3.0))
    events.note_members(node([("a", True, False), ("b", True, False)], time=4.0))
    assert [(each["time"], each["text"]) for each in events.newest(KEPT)] == [
        (4000, "node 'b' is no longer under maintenance"),
        (4000, "node 'b' runs"),
        (4000, "node 'c' has left the cluster"),
        (3000, "node 'c' has joined the cluster"),
        (3000, "node 'b' is under maintenance"),
        (3000, "node 'b' does not run any more"),
        (1000, "node 'a' has started"),
    ]


def test_the_oldest_events_are_forgotten():
    events = RecentEvents()
    for number in range(KEPT + 5):
        events.add(number, "node", str(number))
    assert [each["text"] for each in events.newest(2)] == [str(KEPT + 4), str(KEPT + 3)]
    assert len(events.newest(10 * KEPT)) == KEPT
