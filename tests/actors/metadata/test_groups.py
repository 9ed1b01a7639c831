"""What commands do to the groups of mirrored queues (CL-28, CL-29, CL-42 to CL-44, CL-79, CL-92, CL-100)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from warren.actors.metadata.info_items import member_items
from warren.actors.metadata.state.commands import (
    AddLearner,
    AddNode,
    AdmitToRing,
    ChangeNodes,
    CreateVhost,
    DeclareQueue,
    DeleteQueue,
    EvictFromRings,
    ForceRing,
    LoseMember,
    PutRecords,
    RemoveLearner,
    RemoveNode,
    RemoveRecords,
    ReplaceMembers,
    TransferRing,
)
from warren.actors.metadata.state.replica_rules import is_short, min_in_sync
from warren.actors.metadata.state.state import State, apply
from warren.amqp.fields import table_from
from warren.definitions.errors import DefinitionError
from warren.definitions.features import MIRRORED_QUEUES, REPLICATED_QUORUM_QUEUES, REPLICATED_STREAMS
from warren.definitions.records import EnabledFeature, Node, Policy
from warren.routing.rows import Member, MirrorGroup, QueueRow

ID = "0f" * 16
WHERE = "/", "q", ID


class Cluster:
    """A state with the nodes a to e, of which the given ones run, and the commands about one queue."""

    def __init__(self, running: str = "abc", mode: str = '{"ha-mode":"all"}', durable: bool = True) -> None:
        self.state = State()
        self.runs = dict.fromkeys("abcde", 0)
        apply(self.state, CreateVhost("/"))
        self.state.definitions.put(EnabledFeature(MIRRORED_QUEUES))
        for name in "abcde":
            apply(self.state, AddNode(replace(self.node(name), incarnation="")))
        self.start(running)
        self.policy(mode)
        apply(self.state, DeclareQueue(QueueRow(*WHERE[:2], None, ID, durable, node="a", replicas=("a",)), False))

    def node(self, name: str) -> Node:
        return Node(name, name * 32, incarnation=f"{name}{self.runs[name]}")

    def policy(self, definition: str) -> None:
        apply(self.state, PutRecords((Policy("/", "ha", "^q", definition),)))

    def start(self, names: str) -> None:
        for name in names:
            self.runs[name] += 1
        apply(self.state, ChangeNodes(up=tuple(map(self.node, names))))

    def stop(self, names: str, in_order: str = "") -> None:
        down = tuple((name, f"{name}{self.runs[name]}") for name in names)
        apply(self.state, ChangeNodes(down=down, stopped=tuple(in_order)))

    @property
    def row(self) -> QueueRow:
        found = self.state.queue("/", "q")
        assert found is not None
        return found

    @property
    def group(self) -> MirrorGroup:
        found = self.row.group
        assert found is not None
        return found

    @property
    def shape(self) -> str:
        """The nodes of the ring and of the learners, and the epoch, as text."""
        nodes = ["".join(member.node for member in members) for members in (self.group.ring, self.group.learners)]
        return f"{nodes[0]}+{nodes[1]} {self.group.epoch}"

    def member(self, node: str) -> Member:
        found = self.group.member_on(node)
        assert found is not None
        return found

    def learn(self, nodes: str) -> None:
        for node in nodes:
            apply(self.state, AddLearner(*WHERE, node, f"{node}{self.runs[node]}"))

    def admit(self, nodes: str) -> None:
        for node in nodes:
            apply(self.state, AdmitToRing(*WHERE, self.group.epoch, self.member(node)))

    def evict(self, node: str) -> None:
        apply(self.state, EvictFromRings(((*WHERE, self.group.epoch),), node, "no progress"))


def test_a_new_queue_has_all_wanted_nodes_in_its_ring():
    cluster = Cluster()
    assert sorted(cluster.shape) == sorted("abc+ 1") and cluster.group.wanted[0] == "a"
    assert cluster.group.ring[0] == Member("a", "a1", 1) and cluster.group.members == 3
    assert cluster.row.node == "a" and sorted(cluster.row.replicas) == list("abc")
    cluster = Cluster(mode='{"ha-mode":"nodes","ha-params":["c","b"]}')
    assert cluster.shape == "cb+ 1", "an empty queue is at once where its policy wants it"


@pytest.mark.parametrize("without", ["feature", "nodes", "policy", "exclusive"])
def test_without_feature_cluster_or_policy_there_is_no_group(without):
    state = State()
    apply(state, CreateVhost("/"))
    if without != "feature":
        state.definitions.put(EnabledFeature(MIRRORED_QUEUES))
    if without != "nodes":
        apply(state, AddNode(Node("a", "a")))
        apply(state, ChangeNodes(up=(Node("a", "a", incarnation="1"),)))
    if without != "policy":
        apply(state, PutRecords((Policy("/", "ha", "", '{"ha-mode":"all"}'),)))
    owner = "connection" if without == "exclusive" else None
    row = QueueRow("/", "q", None, ID, exclusive_owner=owner, node="a", replicas=("a",))
    apply(state, DeclareQueue(row, False))
    assert state.queue("/", "q") == row


def test_queues_that_mirrors_could_not_follow_have_no_group():
    cluster = Cluster()
    arguments = table_from({"x-fair-by": "user"})
    row = QueueRow("/", "qx", None, "1" * 32, True, arguments=arguments, node="b", replicas=("b",))
    apply(cluster.state, DeclareQueue(row, False))
    assert cluster.state.queue("/", "qx") == row


def test_a_policy_that_comes_later_makes_a_ring_of_one_and_one_that_goes_leaves_the_master():
    cluster = Cluster(mode='{"max-length":5}')
    assert cluster.row.group is None
    cluster.policy('{"ha-mode":"all"}')
    assert cluster.shape == "a+ 1" and cluster.group.wanted[0] == "a" and sorted(cluster.group.wanted) == list("abc")
    cluster.learn("bc")
    assert cluster.shape == "a+bc 1"
    cluster.admit("cb")
    assert cluster.shape == "acb+ 3"
    apply(cluster.state, RemoveRecords((("policies", ("/", "user", "ha")),)))
    assert cluster.row.group is None and (cluster.row.node, cluster.row.replicas) == ("a", ("a",))


def test_a_learner_must_be_wanted_and_run():
    cluster = Cluster(mode='{"ha-mode":"exactly","ha-params":1}')
    cluster.learn("b")
    assert cluster.shape == "a+ 1", "b is not wanted"
    cluster.policy('{"ha-mode":"nodes","ha-params":["a","b"]}')
    apply(cluster.state, AddLearner(*WHERE, "b", "b0"))
    assert cluster.shape == "a+ 1", "that run of b has ended"
    cluster.learn("bb")
    assert cluster.shape == "a+b 1"
    assert cluster.member("b") == Member("b", "b1", 2)
    apply(cluster.state, RemoveLearner(*WHERE, cluster.member("b")))
    cluster.learn("b")
    assert cluster.member("b") == Member("b", "b1", 3), "each life has a generation of its own"


def test_a_command_of_another_epoch_changes_nothing():
    cluster = Cluster()
    before = cluster.row
    for command in (
        AdmitToRing(*WHERE, 2, cluster.group.ring[1]),
        AdmitToRing(*WHERE, 1, cluster.group.ring[1]),
        EvictFromRings(((*WHERE, 2), ("/", "q", "1" * 32, 1), ("x", "q", ID, 1)), "b", "no progress"),
        TransferRing(*WHERE, 2, cluster.group.ring[1]),
        TransferRing(*WHERE, 1, cluster.group.ring[0]),
        LoseMember(*WHERE, Member("b", "b1", 9)),
        ForceRing(*WHERE, "d"),
        LoseMember("/", "q", "1" * 32, cluster.group.ring[1]),
    ):
        assert apply(cluster.state, command) == ([], []), command
    assert cluster.row == before


def test_the_death_of_a_master_promotes_the_next_and_its_node_comes_back_as_learner():
    cluster = Cluster()
    second, third = cluster.group.ring[1:]
    cluster.stop("a")
    assert cluster.group.ring == (second, third) and cluster.group.epoch == cluster.group.reign == 2
    assert (cluster.row.node, cluster.row.generation, cluster.row.state) == (second.node, 1, "running")
    assert cluster.group.was == (("a", 2),) and "a" not in cluster.group.wanted
    cluster.start("a")
    assert cluster.group.ring == (second, third) and "a" in cluster.group.wanted
    cluster.learn("a")
    cluster.admit("a")
    assert cluster.group.ring == (second, third, Member("a", "a2", 4)) and cluster.group.was == ()
    assert cluster.group.reign == 2 and cluster.row.generation == 1


def test_the_death_of_a_mirror_leaves_master_and_reign():
    cluster = Cluster()
    cluster.stop("b")
    assert sorted(cluster.shape) == sorted("ac+ 2") and cluster.group.reign == 1
    assert (cluster.row.node, cluster.row.generation) == ("a", 0)


def test_a_ring_that_dies_as_a_whole_comes_back_on_any_of_its_nodes():
    """After a power cut of all nodes any member of the ring has every confirmed message on its disk (CL-44)."""
    cluster = Cluster()
    order = [member.node for member in cluster.group.ring]
    cluster.stop("abc")
    assert cluster.row.state == "down" and cluster.group.epoch == 1
    cluster.start("d")
    assert cluster.row.state == "down" and "d" not in cluster.group.wanted
    cluster.learn("d")
    assert cluster.group.learners == (), "nobody could give it the messages"
    cluster.start(order[2])
    node = order[2]
    assert cluster.group.ring == (Member(node, f"{node}2", 4),) and cluster.row.state == "running"
    assert cluster.group.reign == cluster.group.epoch == 2 and cluster.row.generation == 1
    assert sorted(name for name, _ in cluster.group.was) == sorted(order[:2])


def test_several_nodes_that_return_together_make_the_first_of_the_ring_the_master():
    cluster = Cluster()
    order = [member.node for member in cluster.group.ring]
    cluster.stop("abc")
    cluster.start("".join(order[:0:-1]))
    assert cluster.group.ring == (Member(order[1], f"{order[1]}2", 4),)
    assert order[2] in cluster.group.wanted


def test_a_run_that_is_declared_up_again_goes_on_with_its_members():
    """A node may not know that its run is up, and propose it again. Found by the simulation (seed 800936)."""
    cluster = Cluster("ab")
    _, second = cluster.group.ring
    cluster.stop("ab")
    apply(cluster.state, ChangeNodes(up=(cluster.node(second.node),)))
    assert (cluster.row.state, cluster.group.ring) == ("running", (second,))


def test_nodes_that_end_one_after_the_other_leave_the_last_one():
    """The queue comes back with the last node only, because only that one has everything that was confirmed."""
    cluster = Cluster()
    order = [member.node for member in cluster.group.ring]
    for node in order[:2]:
        cluster.stop(node)
    cluster.stop(order[2])
    assert cluster.row.state == "down"
    cluster.start(order[0])
    assert cluster.row.state == "down"
    cluster.start(order[2])
    assert cluster.group.ring[0].node == order[2] and cluster.row.state == "running"


def test_a_queue_that_is_not_durable_goes_with_its_last_member():
    cluster = Cluster(durable=False)
    order = [member.node for member in cluster.group.ring]
    cluster.stop(order[0] + order[1])
    assert cluster.group.ring[0].node == order[2]
    cluster.start(order[2])
    assert cluster.state.queue("/", "q") is None, "another run of the node has nothing of it"


@pytest.mark.parametrize(("promote", "state"), [("when-synced", "down"), ("always", "running")])
def test_a_learner_is_the_master_only_if_the_policy_allows_losses(promote, state):
    cluster = Cluster("a", json.dumps({"ha-mode": "all", "ha-promote-on-failure": promote}))
    cluster.start("b")
    cluster.learn("b")
    assert cluster.shape == "a+b 1"
    cluster.stop("a")
    assert cluster.row.state == state
    assert cluster.shape == ("a+b 1" if state == "down" else "b+ 2")


@pytest.mark.parametrize(
    ("on_shutdown", "on_failure", "after_stop", "after_failure"),
    [
        (None, None, "down", "down"),
        ("when-synced", "always", "down", "running"),
        (None, "always", "down", "running"),
        ("always", "always", "running", "running"),
        ("always", "when-synced", "down", "down"),
        ("always", None, "running", "down"),
    ],
)
def test_a_master_that_is_stopped_in_order_is_followed_as_the_policy_says(
    on_shutdown, on_failure, after_stop, after_failure
):
    """The rules are RabbitMQ's, but the default of `ha-promote-on-failure` is `when-synced` (CL-79)."""
    keys = {"ha-promote-on-shutdown": on_shutdown, "ha-promote-on-failure": on_failure}
    policy = json.dumps({"ha-mode": "all", **{key: value for key, value in keys.items() if value is not None}})
    for in_order, state in (("a", after_stop), ("", after_failure)):
        cluster = Cluster("a", policy)
        cluster.start("b")
        cluster.learn("b")
        cluster.stop("a", in_order)
        assert cluster.row.state == state and cluster.shape == ("a+b 1" if state == "down" else "b+ 2")


def test_a_member_that_fails_with_others_that_are_stopped_is_a_failure():
    policy = json.dumps({"ha-mode": "all", "ha-promote-on-shutdown": "always"})
    cluster = Cluster("ab", policy)
    cluster.start("c")
    cluster.learn("c")
    cluster.stop("ab", in_order="a")
    assert cluster.row.state == "down"


def test_an_evicted_node_is_named_with_the_reason_until_it_is_back():
    cluster = Cluster()
    cluster.evict("c")
    assert sorted(cluster.shape) == sorted("ab+ 2") and cluster.group.evicted == (("c", "no progress"),)
    assert "c" in cluster.group.wanted
    cluster.learn("c")
    cluster.admit("c")
    assert cluster.group.evicted == ()
    cluster.evict("a")
    assert cluster.row.node == cluster.group.ring[0].node != "a" and cluster.group.reign == 4
    cluster.evict(cluster.group.ring[1].node)
    last = cluster.group.ring
    assert len(last) == 1
    cluster.evict(last[0].node)
    assert cluster.group.ring == last, "the last one has to stay"


def test_a_transfer_puts_the_master_behind_the_new_one():
    cluster = Cluster()
    old, second, third = cluster.group.ring
    apply(cluster.state, TransferRing(*WHERE, 1, third))
    assert cluster.group.ring == (third, old, second) and cluster.group.reign == 2
    assert (cluster.row.node, cluster.row.generation) == (third.node, 1)


def test_a_replica_that_crashes_leaves_and_the_last_one_starts_from_its_disk():
    cluster = Cluster()
    old, second, third = cluster.group.ring
    apply(cluster.state, LoseMember(*WHERE, third))
    apply(cluster.state, LoseMember(*WHERE, old))
    assert cluster.group.ring == (second,) and cluster.group.epoch == 3
    apply(cluster.state, LoseMember(*WHERE, second))
    again = cluster.group.ring[0]
    assert again == Member(second.node, second.incarnation, 4)
    assert (cluster.row.generation, cluster.row.state, cluster.group.reign) == (2, "running", 4)
    cluster.learn("a")
    apply(cluster.state, LoseMember(*WHERE, cluster.member("a")))
    assert cluster.group.learners == () and cluster.group.epoch == 4


def test_a_change_of_policy_adds_first_and_drops_then():
    cluster = Cluster("abcd", '{"ha-mode":"nodes","ha-params":["a","b"]}')
    cluster.policy('{"ha-mode":"nodes","ha-params":["a","c"]}')
    assert cluster.shape == "ab+ 1", "b stays until c has everything"
    cluster.learn("c")
    cluster.admit("c")
    assert cluster.shape == "ac+ 3" and cluster.group.was == (), "what b had is deleted"
    cluster.policy('{"ha-mode":"exactly","ha-params":1}')
    assert cluster.shape == "a+ 4"


def test_a_master_that_is_not_on_the_list_stays_until_it_is_moved():
    cluster = Cluster("abcd", '{"ha-mode":"nodes","ha-params":["a"]}')
    cluster.policy('{"ha-mode":"nodes","ha-params":["b","c"]}')
    assert cluster.group.wanted == ("a", "b", "c"), "nobody else has the messages"
    cluster.learn("c")
    cluster.admit("c")
    assert cluster.group.wanted == ("c", "b") and cluster.shape == "ac+ 2"
    apply(cluster.state, TransferRing(*WHERE, 2, cluster.member("c")))
    assert cluster.shape == "ca+ 3", "a stays while b is missing"
    cluster.learn("b")
    cluster.admit("b")
    assert cluster.shape == "cb+ 5" and cluster.row.node == "c"


def test_mode_exactly_finds_another_node_when_a_member_has_not_come_back():
    cluster = Cluster("abcd", '{"ha-mode":"exactly","ha-params":3}')
    lost = cluster.group.ring[2].node
    spare = next(node for node in "bcd" if node not in cluster.row.replicas)
    cluster.stop(lost)
    assert len(cluster.group.wanted) == 2
    apply(cluster.state, ReplaceMembers(*WHERE))
    assert len(cluster.group.wanted) == 3 and cluster.group.wanted[2] == spare
    cluster.start(lost)
    assert lost not in cluster.group.wanted
    cluster = Cluster("abc", '{"ha-mode":"exactly","ha-params":4}')
    cluster.start("de")
    assert len(cluster.group.wanted) == 4, "two nodes join and exactly one of them becomes a mirror"


def test_force_makes_a_node_the_only_member_and_is_remembered():
    cluster = Cluster("ab")
    cluster.stop("b")
    cluster.stop("a")
    cluster.start("b")
    assert cluster.row.state == "down"
    apply(cluster.state, ForceRing(*WHERE, "b", "anna"))
    assert cluster.group.ring == (Member("b", "b2", 3),) and cluster.row.state == "running"
    assert cluster.group.forced == (("anna", 3),) and cluster.row.node == "b"
    cluster.start("a")
    cluster.learn("a")
    assert cluster.shape == "b+a 3"


def test_a_removed_node_takes_only_what_nobody_else_has():
    cluster = Cluster("ab")
    cluster.stop("a")
    apply(cluster.state, RemoveNode("a"))
    assert cluster.shape == "b+ 2" and cluster.group.was == ()
    cluster.stop("b")
    apply(cluster.state, RemoveNode("b"))
    assert cluster.state.queue("/", "q") is None


def test_a_node_with_replicas_cannot_become_a_witness():
    cluster = Cluster("ab")
    with pytest.raises(DefinitionError, match="b cannot become a witness"):
        apply(cluster.state, AddNode(replace(cluster.node("b"), role="witness")))
    apply(cluster.state, DeleteQueue(*WHERE, False))
    apply(cluster.state, AddNode(replace(cluster.node("b"), role="witness")))


def test_a_policy_for_many_queues_touches_those_that_it_matches():
    cluster = Cluster(mode='{"ha-mode":"exactly","ha-params":1}')
    row = QueueRow("/", "other", None, "1" * 32, True, node="b", replicas=("b",))
    apply(cluster.state, DeclareQueue(row, False))
    changes = apply(cluster.state, PutRecords((Policy("/", "ha", "^q", '{"ha-mode":"all"}'),))).changes
    assert [change.row.name for change in changes[1:]] == ["q"]


def quorum(cluster: Cluster, arguments: dict[str, object] | None = None, feature: bool = True) -> QueueRow:
    """A quorum queue that was declared at node b."""
    if feature:
        cluster.state.definitions.put(EnabledFeature(REPLICATED_QUORUM_QUEUES))
    table = table_from({"x-queue-type": "quorum", **(arguments or {})})
    row = QueueRow("/", "qq", None, "2" * 32, True, arguments=table, type="quorum", node="b", replicas=("b",))
    apply(cluster.state, DeclareQueue(row, False))
    return now(cluster)


def now(cluster: Cluster) -> QueueRow:
    found = cluster.state.queue("/", "qq")
    assert found is not None
    return found


def test_a_quorum_queue_has_as_many_replicas_as_its_arguments_say_and_three_otherwise():
    row = quorum(Cluster("abcde"))
    assert row.group is not None and len(row.group.ring) == 3 and row.node == "b"
    row = quorum(Cluster("abcde"), {"x-quorum-initial-group-size": 4})
    assert row.group is not None and len(row.group.ring) == 4
    row = quorum(Cluster("ab"), {"x-quorum-initial-group-size": 4})
    assert row.group is not None and len(row.group.ring) == 2
    assert quorum(Cluster(), feature=False).group is None, "a member of an older version would not know its mirrors"


def test_a_quorum_queue_takes_awaited_publishes_while_a_majority_of_its_members_is_in_sync():
    cluster = Cluster("abc")
    definitions = cluster.state.definitions
    quorum(cluster)
    assert min_in_sync(definitions, now(cluster)) == 2 and not is_short(definitions, now(cluster))
    cluster.stop("c")
    assert not is_short(definitions, now(cluster))
    items = member_items(now(cluster), definitions)
    assert sorted(items["members"]) == list("abc"), "c is expected to come back"
    assert items["leader"] == "b" and sorted(items["online"]) == list("ab")
    apply(cluster.state, EvictFromRings((("/", "qq", "2" * 32, group_of(now(cluster)).epoch),), "a", "no progress"))
    assert is_short(definitions, now(cluster)) and [each.node for each in group_of(now(cluster)).ring] == ["b"]


def test_a_quorum_queue_that_only_one_node_has_had_needs_only_that_one():
    """A node that joins the only one does not make publishers wait while it copies the queue."""
    cluster = Cluster("b")
    definitions = cluster.state.definitions
    quorum(cluster)
    cluster.start("a")
    assert min_in_sync(definitions, now(cluster)) == 1
    apply(cluster.state, AddLearner("/", "qq", "2" * 32, "a", "a1"))
    assert min_in_sync(definitions, now(cluster)) == 1
    group = group_of(now(cluster))
    apply(cluster.state, AdmitToRing("/", "qq", "2" * 32, group.epoch, group.learners[0]))
    assert min_in_sync(definitions, now(cluster)) == 2


def group_of(row: QueueRow) -> MirrorGroup:
    assert row.group is not None
    return row.group


def test_a_stream_has_a_replica_on_each_node_unless_its_arguments_say_how_many():
    def declared(running: str, arguments: dict[str, object], feature: bool = True) -> QueueRow:
        cluster = Cluster(running)
        if feature:
            cluster.state.definitions.put(EnabledFeature(REPLICATED_STREAMS))
        table = table_from({"x-queue-type": "stream", **arguments})
        row = QueueRow("/", "qq", None, "2" * 32, True, arguments=table, type="stream", node="b", replicas=("b",))
        apply(cluster.state, DeclareQueue(row, False))
        return now(cluster)

    assert len(group_of(declared("abcde", {})).ring) == 5
    assert len(group_of(declared("abcde", {"x-initial-cluster-size": 2})).ring) == 2
    assert declared("abc", {}, feature=False).group is None
