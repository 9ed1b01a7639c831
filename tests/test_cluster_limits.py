"""Limits of connections and channels count those of all nodes of a real cluster (AB-172, AB-174).

A node learns a moment later what clients of another node have opened or closed, so the tests wait for that. What is
exact is tested on virtual time (`tests/cluster/remote_queues/test_limits.py`).
"""

from __future__ import annotations

import pytest

from warren import Cluster
from warren.tests.behaviour.wire import Client, Refused
from warren.tests.cluster_system.nodes import wait_for


@pytest.fixture(scope="module")
def three():
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def cluster(three):
    yield three
    three.heal()
    three.wait_healthy(300)
    three.set_vhost_limits({"max-connections": -1})
    three.set_user_limits("guest", {"max-connections": -1, "max-channels": -1})


@pytest.fixture
def connect(cluster):
    """`connect(node)` opens a connection to a node, and raises Refused if the node refuses it."""
    clients = []

    def connect(node):
        clients.append(Client(cluster.url_of(node), timeout=300.0))
        return clients[-1]

    yield connect
    for client in clients:
        client.abort()


@pytest.fixture
def refusal(connect):
    """`refusal(node)` is the text with which a node refuses a connection; empty if it does not, and then the connection
    is closed again.
    """

    def refusal(node):
        try:
            connect(node).close()
        except Refused as refused:
            return str(refused)
        return ""

    return refusal


@pytest.mark.parametrize("of", ["vhost", "user"])
def test_connections_to_different_nodes_reach_a_limit(cluster, connect, refusal, of):
    if of == "vhost":
        text = "530 NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (2) is reached"
        cluster.set_vhost_limits({"max-connections": 2})
    else:
        text = "530 NOT_ALLOWED - connection refused for user 'guest': user connection limit (2) is reached"
        cluster.set_user_limits("guest", {"max-connections": 2})
    first, _ = connect(0), connect(1)
    for node in range(3):
        wait_for(f"node {node} to refuse a connection", lambda node=node: refusal(node) == text)
    first.close()
    wait_for("the third node to learn of the end", lambda: not refusal(2))


def test_channels_on_different_nodes_reach_a_limit(cluster, connect):
    cluster.set_user_limits("guest", {"max-channels": 2})
    for node in (0, 1):
        connect(node).channel()

    def is_refused():
        client = connect(2)
        try:
            client.channel()
        except Refused as refused:
            assert "has reached the maximum allowed user limit of (2)" in str(refused)
            return refused.is_connection_error
        client.close()
        return False

    wait_for("the third node to refuse a channel", is_refused)


def test_a_lost_node_neither_counts_nor_holds_up_a_login(cluster, connect, refusal):
    """While a node stands still, what it has reported counts, and logins do not wait for it. When it is declared down
    its connections count no more.
    """
    cluster.set_vhost_limits({"max-connections": 2})
    connect(2), connect(2)
    wait_for("the first node to learn of them", lambda: bool(refusal(0)))
    cluster.pause(2)
    wait_for("the others to declare it down", lambda: not refusal(0))
    cluster.resume(2)
