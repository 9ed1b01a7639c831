"""Limits of virtual hosts and users count the connections and channels of all nodes (AB-172, AB-174)."""

from __future__ import annotations

import pytest

from warren.actors.metadata.state.commands import ChangeUser, CreateVhost, PutRecords
from warren.amqp import methods as m
from warren.definitions.records import Parameter
from warren.runtime.sim import system_link
from warren.tests.behaviour.wire import Refused

#: Virtual seconds in which a report reaches the other nodes: the link takes 0.2 ms.
SHORT = 0.01
VHOST_LIMIT = r"530 .*access to vhost '/' refused for user 'guest': connection limit \({}\) is reached"
USER_LIMIT = r"530 .*connection refused for user 'guest': user connection limit \({}\) is reached"
CHANNEL_LIMIT = r"530 .*number of channels opened for user 'guest' has reached the maximum allowed user limit of \({}\)"


@pytest.fixture
def three(make):
    return make("abc")


def limit_vhost(nodes, most):
    nodes.propose(PutRecords((Parameter("/", "vhost-limits", "limits", f'{{"max-connections":{most}}}'),)))
    nodes.world.run(SHORT)


def limit_user(nodes, **limits):
    limits = tuple(sorted((name.replace("_", "-"), most) for name, most in limits.items()))
    nodes.propose(ChangeUser("guest", (("limits", limits),)))
    nodes.world.run(SHORT)


def connect(nodes, name):
    """A client whose connection the other nodes have learned of."""
    client = nodes.connect(name)
    nodes.world.run(SHORT)
    return client


def close(nodes, client):
    client.close()
    nodes.world.run(SHORT)


def test_connections_to_a_virtual_host(three):
    """cluster_single_vhost_limit, cluster_single_vhost_limit2: connections on different nodes reach the limit, and one
    that ends makes room on another node.
    """
    limit_vhost(three, 2)
    first, _ = connect(three, "a"), connect(three, "b")
    for name in "abc":
        with pytest.raises(Refused, match=VHOST_LIMIT.format(2)):
            connect(three, name)
    close(three, first)
    connect(three, "c")
    with pytest.raises(Refused, match=VHOST_LIMIT.format(2)):
        connect(three, "a")
    limit_vhost(three, 3)
    connect(three, "a")
    with pytest.raises(Refused, match=VHOST_LIMIT.format(3)):
        connect(three, "b")
    limit_vhost(three, 0)
    with pytest.raises(Refused, match=VHOST_LIMIT.format(0)):
        connect(three, "c")
    limit_vhost(three, -1)
    connect(three, "c")


def test_connections_of_a_user(three):
    """cluster_single_user_limit, cluster_single_user_clear_limits: a connection that was lost makes room as well."""
    limit_user(three, max_connections=2)
    first, _ = connect(three, "a"), connect(three, "b")
    with pytest.raises(Refused, match=USER_LIMIT.format(2)):
        connect(three, "c")
    first.abort()
    three.world.run(SHORT)
    connect(three, "c")
    with pytest.raises(Refused, match=USER_LIMIT.format(2)):
        connect(three, "b")
    limit_user(three)
    connect(three, "b")


def test_channels_of_a_user(three):
    """cluster_single_user_limit for channels: the channel too many closes its connection, and a closed channel or
    connection makes room on another node.
    """
    limit_user(three, max_channels=3)
    clients = {name: connect(three, name) for name in "abc"}
    first, _, _ = [clients[name].channel() for name in "aab"]
    three.world.run(SHORT)
    with pytest.raises(Refused, match=CHANNEL_LIMIT.format(3)) as refusal:
        clients["c"].channel()
    assert refusal.value.is_connection_error
    first.close()
    three.world.run(SHORT)
    clients["b"].channel()
    three.world.run(SHORT)
    another = connect(three, "c")
    close(three, clients["b"])
    another.channel()
    another.channel()
    three.world.run(SHORT)
    with pytest.raises(Refused, match=CHANNEL_LIMIT.format(3)):
        clients["a"].channel()


def test_a_limit_counts_what_is_older_than_it(three):
    """cluster_vhost_limit after connections are open: all of them count as soon as the limit is set."""
    for name in "aab":
        connect(three, name).channel()
    limit_vhost(three, 3)
    with pytest.raises(Refused, match=VHOST_LIMIT.format(3)):
        connect(three, "c")
    limit_vhost(three, -1)
    client = connect(three, "c")
    limit_user(three, max_channels=3)
    with pytest.raises(Refused, match=CHANNEL_LIMIT.format(3)):
        client.channel()


def test_a_limit_that_was_cleared_counts_afresh(three):
    """What a node had reported for a limit that was cleared does not count when another limit is set."""
    limit_vhost(three, 2)
    first, _ = connect(three, "a"), connect(three, "b")
    limit_vhost(three, -1)
    close(three, first)
    limit_vhost(three, 2)
    connect(three, "c")
    with pytest.raises(Refused, match=VHOST_LIMIT.format(2)):
        connect(three, "b")


@pytest.mark.parametrize("how", ["cut", "kill"])
def test_a_lost_node_does_not_count(make, how):
    """cluster_node_restart_connection_count, cluster_full_partition_with_autoheal: the connections of a node that
    cannot be reached leave the count. Those that it still has count again when it is connected again.
    """
    nodes = make("ab")
    limit_vhost(nodes, 2)
    for _ in range(2):
        connect(nodes, "b")
    with pytest.raises(Refused, match=VHOST_LIMIT.format(2)):
        connect(nodes, "a")
    if how == "cut":
        nodes.cut("a", "b")
    else:
        nodes.kill("b")
    client = connect(nodes, "a")
    if how == "kill":
        nodes.restart("b")
        connect(nodes, "b")
        close(nodes, client)
        connect(nodes, "b")
    else:
        nodes.world.mend()
        nodes.meet()
    with pytest.raises(Refused, match=VHOST_LIMIT.format(2)):
        connect(nodes, "a")


def test_a_login_does_not_wait_for_a_node_that_stands_still(make):
    """A login takes no longer than on a node that is alone, and what the other node reported last counts."""
    nodes = make("ab")
    limit_vhost(nodes, 3)
    connect(nodes, "b")
    began = nodes.world.now()
    connect(nodes, "a")
    usual = nodes.world.now() - began
    nodes.nodes["b"].machine.pause()
    began = nodes.world.now()
    connect(nodes, "a")
    assert nodes.world.now() - began <= usual * 1.5
    with pytest.raises(Refused, match=VHOST_LIMIT.format(3)):
        connect(nodes, "a")
    nodes.nodes["b"].machine.resume()


def test_nothing_is_reported_without_a_limit(make, monkeypatch):
    """Connections and channels cause no reports while neither their virtual host nor their user has a limit. With one,
    all changes of a turn share a report.
    """
    nodes = make("ab")
    (tracking,) = nodes.nodes["a"].processes("SessionTracking")
    nodes.propose(CreateVhost("other"))
    nodes.propose(PutRecords((Parameter("other", "vhost-limits", "limits", '{"max-connections":5}'),)))
    nodes.world.run(SHORT)
    reports = []
    encode = system_link.pickle.dumps

    def dumps(letter):
        if letter[2][0] == "session_counts":
            reports.append(letter[2][1])
        return encode(letter)

    monkeypatch.setattr(system_link.pickle, "dumps", dumps)
    client = connect(nodes, "a")
    client.channel()
    nodes.world.run(SHORT)
    assert reports == [] and tracking.sessions.shared == {("vhost", "other")}
    limit_user(nodes, max_channels=50)
    assert sorted(reports) == [(("channels", "guest", 0),), (("channels", "guest", 1),)], "one of each node"
    reports.clear()
    with client.in_one_piece():
        for number in range(2, 12):
            client.send(number, m.ChannelOpen())
    nodes.world.run(SHORT)
    assert reports[-1] == (("channels", "guest", 11),) and len(reports) < 5
    limit_user(nodes)
    assert tracking.sessions.shared == {("vhost", "other")}
