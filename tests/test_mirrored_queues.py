"""Mirrored queues on real nodes: what clients may rely on when nodes die and come back (CL-74, CL-85, CL-92)."""

from __future__ import annotations

import time

import pytest

from warren import BrokerError, Cluster
from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client, Refused, table

#: Seconds that a test waits, because a busy machine may be slow.
LONG = 120.0


def until(condition, seconds: float = LONG) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes with a policy that mirrors queues whose names begin with `ha`. Each test leaves all nodes running.

    Leases are so long that a pause of the machine ends none; a killed node is noticed at once all the same.
    """
    with Cluster(3, data_dir=tmp_path_factory.mktemp("mirrored"), net_ticktime=20.0) as cluster:
        cluster.set_policy("ha", "^ha", {"ha-mode": "all"})
        yield cluster


def others(cluster, node: str) -> list[str]:
    return [name for name in cluster.nodes if name != node]


def back(cluster, node: str, *queues: str) -> None:
    cluster.start_node(node)
    cluster.wait_healthy(LONG)
    for queue in queues:
        cluster.wait_in_sync(queue, timeout=LONG)


def published(broker, queue: str, bodies) -> list[bytes]:
    """Publish persistent messages one after the other, wait for each confirm, and return their bodies."""
    bodies = list(bodies)
    for body in bodies:
        assert broker.publish(body, queue, delivery_mode=2)
    return bodies


def taken(broker, queue: str) -> list[tuple[bytes, bool]]:
    found = []
    while (message := broker.get(queue)) is not None:
        found.append((message.body, message.redelivered))
    return found


def test_a_new_queue_has_a_replica_on_every_node(cluster):
    cluster.broker(1).declare_queue("ha-new", durable=True)
    for node in range(3):
        found = cluster.broker(node).queue("ha-new")
        assert found.node == "warren2@localhost" and sorted(found.in_sync) == cluster.nodes
        assert sorted(found.mirrors) == others(cluster, "warren2@localhost")
    rows = cluster.broker(0)._node.operate("rebalance")
    led = {row["Node name"]: row["Number of replicated classic queues"] for row in rows}
    assert led == {node: int(node == "warren2@localhost") for node in cluster.nodes}
    cluster.broker(0).delete_queue("ha-new")


def test_rings_are_listed(cluster):
    """Each node lists the rings of a virtual host, not other queues; a member that is down is dead (CM-68)."""
    broker = cluster.broker(0)
    broker.declare_queue("ha-first", durable=True)
    broker.declare_queue("ha-second", durable=True)
    broker.declare_queue("lone", durable=True)
    for queue in ("ha-first", "ha-second"):
        cluster.wait_in_sync(queue, timeout=LONG)
    published(broker, "ha-first", [b"one", b"two"])

    def rings(node, name=None):
        return cluster.broker(node)._node.operate("rings", vhost="/", name=name)

    def is_level():
        return not any(ring["pending_messages"] for ring in rings(0))

    until(is_level)
    for node in range(3):
        found = {ring["queue"]: ring for ring in rings(node)}
        assert {"ha-first", "ha-second"} <= found.keys()
        assert "lone" not in found
        first = found["ha-first"]
        assert first["members"][0] == first["master"] == broker.queue("ha-first").node
        assert sorted(first["members"]) == cluster.nodes
        assert (first["alive"], first["dead"], first["learners"], first["type"]) == (3, [], [], "classic")
    assert [ring["queue"] for ring in rings(1, name="ha-second")] == ["ha-second"]
    away = others(cluster, broker.queue("ha-first").node)[-1]
    asked = next(node for node in range(3) if cluster.nodes[node] != away)
    cluster.kill(away)
    until(lambda: rings(asked, name="ha-first")[0]["dead"] == [away])
    assert rings(asked, name="ha-first")[0]["alive"] == 2
    back(cluster, away, "ha-first", "ha-second")
    for queue in ("ha-first", "ha-second", "lone"):
        cluster.broker(0).delete_queue(queue)


def test_every_node_shows_the_ring_of_a_queue(cluster):
    cluster.broker(1).declare_queue("ha-ring", durable=True)
    published(cluster.broker(0), "ha-ring", [b"one", b"two"])

    def ring(node: int):
        return cluster.broker(node)._node.operate("show_ring", name="ha-ring", vhost="/")

    def is_level(node: int) -> bool:
        members = ring(node)["members"]
        level = {member["received"] for member in members}
        return len(level) == 1 and not any(member["lag"] or member["unstored"] for member in members)

    # The last instruction, which no publisher waits for, may still be in flight.
    until(lambda: all(map(is_level, range(3))))
    for node in range(3):
        found = ring(node)
        assert (found["epoch"], found["reign"], found["missing"], found["evicted"]) == (1, 1, [], [])
        members = found["members"]
        assert [member["node"] for member in members] == list(cluster.queue("ha-ring").in_sync)
        assert [member["role"] for member in members] == ["master", "mirror", "mirror"]
        assert {member["messages"] for member in members} == {2}
        assert members[0]["received"] >= 2
    cluster.broker(0).delete_queue("ha-ring")


def test_what_was_confirmed_is_there_when_the_masters_node_was_killed(cluster):
    home = "warren2@localhost"
    cluster.broker(home).declare_queue("ha-kept", durable=True)
    bodies = published(cluster.broker(0), "ha-kept", (b"%d" % number for number in range(50)))
    assert cluster.broker(2).get("ha-kept").body == bodies[0]
    cluster.kill(home)
    survivor = cluster.broker(0)
    until(lambda: survivor.queue("ha-kept").node != home)
    bodies += published(survivor, "ha-kept", [b"after"])
    assert survivor.queue("ha-kept").messages == 50
    back(cluster, home, "ha-kept")
    found = cluster.queue("ha-kept")
    assert found.in_sync[-1] == home and found.node != home
    assert taken(cluster.broker(home), "ha-kept") == [*((body, True) for body in bodies[1:-1]), (b"after", False)]
    cluster.delete_queue("ha-kept")


def test_a_node_that_came_back_can_be_the_last_one(cluster):
    """A node that came back can serve the queue alone, because its copy is complete."""
    first = "warren1@localhost"
    cluster.broker(first).declare_queue("ha-copied", durable=True)
    bodies = published(cluster.broker(first), "ha-copied", (b"%d" % number * 2000 for number in range(40)))
    second = cluster.queue("ha-copied").in_sync[1]
    cluster.kill(second)
    bodies += published(cluster.broker(first), "ha-copied", [b"while it was away"])
    until(lambda: second not in cluster.queue("ha-copied").in_sync)
    back(cluster, second, "ha-copied")
    bodies += published(cluster.broker(first), "ha-copied", [b"since it is back"])
    third = cluster.queue("ha-copied").in_sync[1]
    # One of three nodes must stay for the majority, so the two others are lost one after the other.
    cluster.kill(third)
    until(lambda: third not in cluster.queue("ha-copied").in_sync)
    back(cluster, third)
    cluster.kill(first)
    until(lambda: cluster.broker(second).queue("ha-copied").node != first)
    assert cluster.broker(second).queue("ha-copied").node == second
    assert [body for body, _ in taken(cluster.broker(second), "ha-copied")] == bodies
    back(cluster, first, "ha-copied")
    cluster.delete_queue("ha-copied")


def test_a_message_that_is_published_again_to_another_master_is_dropped(cluster):
    """A new master drops what is published again, although it was away at the first publish (SP-31)."""
    first, window = "warren1@localhost", {"x-warren-deduplicate": 1000}
    cluster.broker(first).declare_queue("ha-once", durable=True, arguments=window)
    cluster.broker(first).declare_exchange("once", "fanout", durable=True, arguments=window)
    cluster.broker(first).declare_queue("ha-through", durable=True)
    cluster.broker(first).bind("ha-through", "once")
    cluster.wait_in_sync("ha-through", timeout=LONG)
    cluster.wait_in_sync("ha-once", timeout=LONG)
    second, third = cluster.queue("ha-once").in_sync[1:]

    def publish(broker, *ids):
        for number in ids:
            for key, properties in (("ha-once", {}), ("", {"exchange": "once"})):
                assert broker.publish(b"%d" % number, key, delivery_mode=2, message_id=f"order {number}", **properties)

    publish(cluster.broker(first), *range(10))
    cluster.kill(second)
    publish(cluster.broker(first), *range(20))
    bodies = [b"%d" % number for number in range(25)]
    for queue in ("ha-once", "ha-through"):
        assert [cluster.broker(first).get(queue).body for _ in bodies[:15]] == bodies[:15]
    until(lambda: second not in cluster.queue("ha-once").in_sync)
    back(cluster, second, "ha-once", "ha-through")
    cluster.kill(third)
    until(lambda: third not in cluster.queue("ha-once").in_sync)
    back(cluster, third)
    cluster.kill(first)
    until(lambda: first not in [cluster.broker(second).queue(each).node for each in ("ha-once", "ha-through")])
    publish(cluster.broker(third), *range(25))
    for queue in ("ha-once", "ha-through"):
        assert [body for body, _ in taken(cluster.broker(second), queue)] == bodies[15:]
        cluster.delete_queue(queue)
    back(cluster, first)


def test_a_queue_that_deduplicates_goes_on_without_its_mirrors(cluster):
    """A deduplicating queue goes on when a policy ends its mirroring just after a failover."""
    queue, first = "once-for-now", "warren1@localhost"
    cluster.set_policy("now", "^once-for-now", {"ha-mode": "all"})
    cluster.broker(first).declare_queue(queue, durable=True, arguments={"x-warren-deduplicate": 1000})
    cluster.wait_in_sync(queue, timeout=LONG)
    assert cluster.broker(first).publish(b"1", queue, delivery_mode=2, message_id="1")
    cluster.kill(first)
    until(lambda: cluster.broker("warren2@localhost").queue(queue).node != first)
    back(cluster, first)
    cluster.clear_policy("now")
    until(lambda: cluster.queue(queue).mirrors == ())
    for number in (1, 2, 2):
        assert cluster.broker(first).publish(b"%d" % number, queue, delivery_mode=2, message_id=str(number))
    assert [body for body, _ in taken(cluster.broker(first), queue)] == [b"1", b"2"]
    cluster.delete_queue(queue)


def test_a_policy_mirrors_a_queue_that_has_messages_already(cluster):
    cluster.broker(0).declare_queue("later", durable=True)
    bodies = published(cluster.broker(1), "later", (b"%d" % number for number in range(30)))
    cluster.set_policy("later", "^later", {"ha-mode": "exactly", "ha-params": 2})
    until(lambda: len(cluster.queue("later").wanted_nodes) == 2)
    cluster.wait_in_sync("later", timeout=LONG)
    mirror = cluster.queue("later").in_sync[1]
    cluster.clear_policy("later")
    until(lambda: cluster.queue("later").mirrors == ())
    assert cluster.broker(mirror).queue("later").node == "warren1@localhost"
    assert [body for body, _ in taken(cluster.broker(mirror), "later")] == bodies
    cluster.delete_queue("later")


def test_a_queue_moves_to_the_nodes_that_its_policy_names(cluster):
    cluster.broker(0).declare_queue("moved", durable=True)
    bodies = published(cluster.broker(0), "moved", (b"%d" % number for number in range(30)))
    named = ["warren3@localhost", "warren2@localhost"]
    cluster.set_policy("moved", "^moved", {"ha-mode": "nodes", "ha-params": named})
    until(lambda: cluster.queue("moved").node in named)
    until(lambda: sorted(cluster.queue("moved").in_sync) == sorted(named))
    assert [body for body, _ in taken(cluster.broker(0), "moved")] == bodies
    cluster.clear_policy("moved")
    cluster.delete_queue("moved")


def test_priorities_survive_a_failover(cluster):
    home = "warren3@localhost"
    cluster.broker(home).declare_queue("ha-levels", durable=True, arguments={"x-max-priority": 5})
    for number in range(12):
        assert cluster.broker(0).publish(b"%d" % number, "ha-levels", delivery_mode=2, priority=number % 4)
    cluster.kill(home)
    until(lambda: cluster.broker(0).queue("ha-levels").node != home)
    order = [b"%d" % number for level in (3, 2, 1, 0) for number in range(level, 12, 4)]
    back(cluster, home, "ha-levels")
    assert [body for body, _ in taken(cluster.broker(home), "ha-levels")] == order
    cluster.delete_queue("ha-levels")


def test_a_queue_without_messages_on_disks_is_gone_with_its_last_node(cluster):
    """A transient mirrored queue lives as long as one of its members, and is gone with the last one."""
    home = "warren1@localhost"
    cluster.broker(home).declare_queue("ha-transient")
    assert cluster.broker(1).publish(b"m", "ha-transient")
    cluster.kill(home)
    survivor = cluster.broker(1)
    until(lambda: survivor.queue("ha-transient").node != home)
    back(cluster, home, "ha-transient")
    assert taken(survivor, "ha-transient") == [(b"m", True)]
    cluster.delete_queue("ha-transient")


def test_exclusive_queues_are_not_mirrored(cluster):
    client = Client(cluster.urls[0])
    client.channel().queue("ha-mine", exclusive=True)
    found = cluster.queue("ha-mine")
    assert found.mirrors == () and found.wanted_nodes == ()
    client.close()


def test_a_replica_that_gets_nothing_is_evicted_and_the_others_go_on(cluster):
    """Of two mirrors that are cut off from each other, but not from the master, one is evicted (CL-80)."""
    leader = cluster.leader
    master = cluster.broker(leader)
    cluster.set_policy("stalls", "^stalls", {"ha-mode": "all", "ha-ack-timeout": 1000})
    master.declare_queue("stalls", durable=True)
    ring = master.queue("stalls").in_sync
    assert ring[0] == leader and len(ring) == 3
    cluster.partition(ring[1], ring[2])
    published(master, "stalls", [b"waits until one has left", b"goes on"])
    assert master.queue("stalls").in_sync == ring[:2]
    cluster.heal()
    cluster.wait_healthy(LONG)
    cluster.clear_policy("stalls")
    assert [body for body, _ in taken(cluster.broker(ring[1]), "stalls")] == [b"waits until one has left", b"goes on"]
    cluster.delete_queue("stalls")


def test_a_queue_with_too_few_replicas_in_sync_refuses_what_awaits_a_confirm(cluster):
    """A queue with fewer replicas in sync than `ha-min-in-sync` refuses publishes that await a confirm (CL-123)."""

    def ask_for(floor: int) -> None:
        cluster.set_policy("floor", "^floor", {"ha-mode": "all", "ha-min-in-sync": floor})

    def refuses() -> bool:
        try:
            return not cluster.broker(1).publish(b"refused", "floor", delivery_mode=2)
        except BrokerError:
            return True

    ask_for(3)
    lost = "warren3@localhost"
    cluster.broker(0).declare_queue("floor", durable=True)
    published(cluster.broker(1), "floor", [b"with all three"])
    cluster.kill(lost)
    until(lambda: lost not in cluster.queue("floor").in_sync)
    until(lambda: cluster.queue("floor").state == "short")
    assert refuses()
    assert cluster.broker(1)._node.operate("cluster_status")["membership"]["short_queues"] == 1

    client = Client(cluster.urls[1])
    plain, transaction = client.channel(), client.channel()
    plain.publish(b"nobody asks", "floor")
    plain.expect_ready("floor", 2)
    transaction.call(m.TxSelect())
    transaction.publish(b"in a transaction", "floor")
    with pytest.raises(Refused) as refused:
        transaction.call(m.TxCommit())
    assert refused.value.close.reply_code == 541 and b"ha-min-in-sync" in refused.value.close.reply_text.encode()
    assert taken(cluster.broker(1), "floor") == [(b"with all three", False), (b"nobody asks", False)]

    ask_for(2)  # a change of the policy takes effect at once
    until(lambda: cluster.queue("floor").state == "running")
    published(cluster.broker(1), "floor", [b"with two"])
    ask_for(3)
    until(refuses)
    back(cluster, lost, "floor")
    until(lambda: cluster.queue("floor").state == "running")
    published(cluster.broker(1), "floor", [b"with all three again"])
    assert [body for body, _ in taken(cluster.broker(1), "floor")] == [b"with two", b"with all three again"]
    cluster.clear_policy("floor")
    cluster.delete_queue("floor")


@pytest.mark.parametrize("promote", ["always", "when-synced"])
def test_the_policy_says_whether_a_replica_follows_that_has_not_copied_the_queue(cluster, promote):
    """`ha-promote-on-shutdown` decides if a replica that is not in sync succeeds a master that stops in order."""
    home, name = "warren3@localhost", f"shut-{promote}"
    cluster.broker(home).declare_queue(name, durable=True)
    bodies = published(cluster.broker(0), name, [b"only there"])
    policy = {"ha-mode": "nodes", "ha-params": [home, "warren1@localhost"], "ha-sync-mode": "manual"}
    cluster.set_policy("shut", "^shut", {**policy, "ha-promote-on-shutdown": promote})
    until(lambda: cluster.queue(name).mirrors)
    cluster.stop_node(home)
    if promote == "always":
        until(lambda: cluster.broker(0).queue(name).node == "warren1@localhost")
        bodies = published(cluster.broker(1), name, [b"the others are lost"])
    else:
        until(lambda: cluster.broker(0).queue(name).state == "down")
    cluster.start_node(home)
    cluster.wait_healthy(LONG)
    until(lambda: cluster.broker(0).queue(name).state == "running")
    assert [body for body, _ in taken(cluster.broker(0), name)] == bodies
    cluster.clear_policy("shut")
    cluster.delete_queue(name)


def test_a_quorum_queue_goes_on_with_another_member_and_knows_how_often_messages_were_returned(cluster):
    """A quorum queue fails over without a policy, and keeps the counts of returns; new members copy them."""
    home = "warren2@localhost"
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 3}
    cluster.broker(home).declare_queue("quorum", durable=True, arguments=arguments)
    found = cluster.broker(0).queue("quorum")
    assert found.node == home and sorted(found.in_sync) == cluster.nodes
    published(cluster.broker(0), "quorum", [b"poison", b"sound"])
    assert returned(cluster.broker(0), "quorum", 2) == [(b"poison", 0), (b"poison", 1)]
    published(cluster.broker(0), "quorum", [b"behind the returns"])
    cluster.kill(home)
    until(lambda: cluster.broker(0).queue("quorum").node != home)
    second = cluster.broker(0).queue("quorum").node
    published(cluster.broker(0), "quorum", [b"with a majority"])
    assert returned(cluster.broker(0), "quorum", 1) == [(b"poison", 2)]
    back(cluster, home, "quorum")
    third = next(node for node in cluster.nodes if node not in (home, second))
    cluster.kill(third)  # so that the member that has copied the queue becomes the master
    until(lambda: third not in cluster.broker(home).queue("quorum").in_sync)
    back(cluster, third, "quorum")
    cluster.kill(second)
    until(lambda: cluster.broker(home).queue("quorum").node == home)
    assert returned(cluster.broker(home), "quorum", 2) == [(b"poison", 3), (b"sound", 0)], "3 returns are allowed"
    back(cluster, second, "quorum")
    bodies = [b"sound", b"behind the returns", b"with a majority"]
    assert [body for body, _ in taken(cluster.broker(0), "quorum")] == bodies
    cluster.delete_queue("quorum")


def returned(broker, queue: str, times: int) -> list[tuple[bytes, int]]:
    """Get the head and requeue it, `times` times: for each time its body, and how often it had been returned."""
    found = [broker.get(queue, requeue=True) for _ in range(times)]
    return [(message.body, message.headers["x-delivery-count"]) for message in found]


def read(cluster, node: str, queue: str, offset: int | str, count: int) -> list[tuple[int, bytes]]:
    """Read `count` messages of a stream from an offset on."""
    client = Client(cluster.broker(node).url)
    channel = client.channel()
    channel.call(m.BasicQos(prefetch_count=1000))
    channel.call(m.BasicConsume(queue=queue, consumer_tag="reader", arguments=table({"x-stream-offset": offset})))
    found = []
    for _ in range(count):
        event = channel.wait(m.BasicDeliver)
        found.append((event.properties.headers.get("x-stream-offset")[1], event.body))
    client.close()
    return found


def test_a_stream_has_the_same_numbers_after_a_failover(cluster):
    """After a failover readers find the same messages under the same offsets, and new ones behind them."""
    home = "warren2@localhost"
    arguments = {"x-queue-type": "stream", "x-max-length-bytes": 3_000, "x-stream-max-segment-size-bytes": 500}
    cluster.broker(home).declare_queue("stream", durable=True, arguments=arguments)
    assert sorted(cluster.broker(0).queue("stream").in_sync) == cluster.nodes
    bodies = published(cluster.broker(0), "stream", (b"%3d" % number * 30 for number in range(60)))
    client = Client(cluster.urls[0])
    channel = client.channel()
    channel.call(m.BasicQos(prefetch_count=1000))
    channel.call(m.BasicConsume(queue="stream", consumer_tag="reader", arguments=table({"x-stream-offset": "next"})))
    first = cluster.broker(0).queue("stream").first_number
    assert 20 < first < 40, "the oldest segments have gone"
    there = list(enumerate(bodies))[first:]
    assert read(cluster, home, "stream", "first", len(there)) == there

    cluster.kill(home)
    until(lambda: cluster.broker(0).queue("stream").node != home)
    assert channel.wait(m.BasicCancel).method.consumer_tag == "reader", "it would begin at its offset once more"
    client.close()
    second = cluster.broker(0).queue("stream").node
    kept = cluster.broker(0).queue("stream").first_number
    assert kept == first, "a new master drops nothing before the next segment begins"
    there = list(enumerate(bodies))[kept:]
    assert read(cluster, second, "stream", "first", len(there)) == there
    new = published(cluster.broker(0), "stream", [b"n"])
    assert read(cluster, "warren1@localhost", "stream", 58, 3) == [*there[-2:], (60, new[0])]

    back(cluster, home, "stream")
    third = next(node for node in cluster.nodes if node not in (home, second))
    cluster.kill(third)
    until(lambda: third not in cluster.broker(home).queue("stream").in_sync)
    back(cluster, third, "stream")
    cluster.kill(second)
    until(lambda: cluster.broker(home).queue("stream").node == home)
    there = [*there[6:], (60, new[0])]
    assert cluster.broker(third).queue("stream").first_number == kept + 6, "what began with `new` has dropped a segment"
    assert read(cluster, third, "stream", "first", len(there)) == there
    more = published(cluster.broker(third), "stream", (b"%3d" % number * 30 for number in range(60)))
    assert read(cluster, third, "stream", "last", 1) == [(120, more[-1])]
    back(cluster, second, "stream")
    cluster.delete_queue("stream")


def test_a_queue_goes_from_lanes_to_replicas_and_back(cluster):
    """A queue whose policy takes its lanes away gets replicas once they are empty; and the other way round."""
    broker = cluster.broker(0)
    broker.set_policy("moves", "^moves$", {"fair-by": "routing-key"})
    broker.declare_exchange("moves-in", "fanout", durable=True)
    broker.declare_queue("moves", durable=True)
    broker.bind("moves", "moves-in")
    expected = []
    for shop in ("a", "a", "b"):
        expected.append(f"{shop}{len(expected)}".encode())
        assert broker.publish(expected[-1], shop, exchange="moves-in", delivery_mode=2)
    broker.set_policy("moves", "^moves$", {"ha-mode": "all"})
    until(lambda: len(broker.queue("moves").mirrors) == 2)
    expected += published(broker, "moves", [b"c3", b"c4"])
    assert sorted(body for body, _ in taken(broker, "moves")) == sorted(expected)
    cluster.wait_in_sync("moves", timeout=LONG)
    kept = published(broker, "moves", [b"d5", b"d6"])
    master = broker.queue("moves").node
    cluster.kill(master)
    reader = cluster.broker(others(cluster, master)[0])
    until(lambda: reader.queue("moves").node != master)
    assert [body for body, _ in taken(reader, "moves")] == kept
    back(cluster, master, "moves")
    reader.set_policy("moves", "^moves$", {"fair-by": "routing-key"})
    until(lambda: not reader.queue("moves").mirrors)
    for shop in ("a", "a", "b"):
        assert reader.publish(shop.encode(), shop, exchange="moves-in", delivery_mode=2)
    assert [body for body, _ in taken(reader, "moves")] == [b"a", b"b", b"a"]
    reader.delete_queue("moves")
    reader.clear_policy("moves")
