"""Durable metadata: an answer means that the change is on the disk, and a restart brings it back (AB-64, AB-73, AB-77,
AB-83, AB-86, QS-40, QS-41).
"""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import fields

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thespian.actors import ActorExitRequest

from warren.actors.disk.errors import StorageError
from warren.actors.metadata.state.commands import ChangeUser
from warren.actors.node.queue_supervisor import QueueSupervisor
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.definitions.features import FEATURES
from warren.definitions.records import Parameter, Permission, Policy, TopicPermission
from warren.routing.vhost_rows import DEFAULT_EXCHANGES
from warren.running_node import RunningNode, StartError
from warren.settings import Settings
from warren.store.data_dir.metadata_store import Change

from ..conftest import StubQueue
from ..durable_node import WAIT, Background, Disk, DurableNode
from ..meta import MINE, Meta, V

pytestmark = pytest.mark.usefixtures("stub_queues")
SYSTEM = sorted(name for name, _, _ in DEFAULT_EXCHANGES)


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def node(data_dir):
    with DurableNode(data_dir) as node:
        yield node


def refused(function, *arguments, **options) -> str:
    with pytest.raises(AmqpError) as caught:
        function(*arguments, **options)
    assert caught.value.code == 541
    return caught.value.text


def supervisor_of(node: DurableNode) -> QueueSupervisor:
    """The queue supervisor of the only virtual host."""
    actors = [getattr(cell, "actor", None) for cell in node.base.cells.values()]
    [supervisor] = [actor for actor in actors if type(actor) is QueueSupervisor]
    return supervisor


def declare_everything(meta: Meta) -> None:
    """Durable and transient exchanges and queues, and bindings between all of them."""
    for exchange_type in ("direct", "fanout", "topic", "headers"):
        meta.exchange(f"durable {exchange_type}", exchange_type, durable=True)
        meta.exchange(f"transient {exchange_type}", exchange_type)
    meta.exchange(
        "odd",
        durable=True,
        auto_delete=True,
        internal=True,
        alternate_exchange="durable fanout",
        other={"f": 1.5, "l": [1, None, b"\xff"]},
    )
    meta.queue(
        "durable", durable=True, arguments={"x-max-length": 5, "x-message-ttl": 2**31, "x-unknown": {"deep": [True]}}
    )
    meta.queue("durable too", durable=True, auto_delete=True)
    meta.queue("transient")
    meta.queue("exclusive", durable=True, owner=MINE)
    meta.queue("", durable=True)
    for source in ("durable topic", "transient topic", "amq.topic"):
        for destination in ("durable", "transient", "exclusive"):
            meta.bind(destination, source, key="a.#")
        for destination in ("durable fanout", "transient fanout"):
            meta.bind(destination, source, key="b", kind="exchange")
    meta.bind("durable", "durable headers", key="", arguments={"x-match": "any", "b": 1, "a": "\udcff"})
    meta.bind("durable", "odd")
    meta.bind("durable", "odd")


ENDS = {"stopped": DurableNode.stop, "dropped": DurableNode.drop}


class TestRestart:
    @pytest.mark.parametrize("end", ENDS)
    def test_what_is_durable_comes_back_and_nothing_else(self, data_dir, end):
        """After a restart durable things are there, and nothing else: a binding if both its ends are durable (AB-73),
        and no exclusive queue (AB-83).
        """
        with DurableNode(data_dir) as node:
            node.ask_node("operate", "add_vhost", {"name": "other"})
            declare_everything(node.meta)
            before = node.durable()
            ENDS[end](node)
        assert (
            len(before["queues"]) == 3
            and len(before["exchanges"]) == 2 * len(SYSTEM) + 5
            and len(before["bindings"]) == 6
        )
        with DurableNode(data_dir) as node:
            assert node.durable() == before
            assert len(node.routing.queues(V)) == 3 and len(node.state.vhosts[V].exchanges) == len(SYSTEM) + 5
            assert node.routing.vhosts() == (V, "other")

    def test_killed_at_any_commit(self, data_dir, tmp_path, disk):
        """After a kill at any commit, a start finds what was answered before it. A copy of the files while nothing is
        written has what kill -9 leaves (QS-41).
        """
        with DurableNode(data_dir) as node:
            declare_everything(node.meta)
            before = node.durable()
            shutil.copytree(data_dir, tmp_path / "killed")
        with DurableNode(tmp_path / "killed") as node:
            assert node.durable() == before

    @pytest.mark.parametrize("arguments", [{}, {"x-expires": 60_000}], ids=["dormant", "started at once"])
    def test_queues_are_started_recovering_and_keep_their_ids(self, data_dir, arguments):
        """After a restart each durable queue has its old id; an empty one is recovered when it gets its
        first message.
        """
        with DurableNode(data_dir) as node:
            before, _ = node.meta.queue("q", durable=True, arguments=arguments)
            assert node.client.ask(before.address, ("row",), WAIT)[1] is False
        with DurableNode(data_dir) as node:
            row = node.routing.queue(V, "q")
            assert row.queue_id == before.queue_id
            own, is_recovered = node.client.ask(row.address, ("row",), WAIT)
            assert own.at(row.address) == row and is_recovered
            assert node.meta.queue("q", durable=True, arguments=arguments) == (row, False)

    def test_they_are_used_like_others(self, data_dir):
        """Recovered exchanges, queues and bindings route, are declared again, and are deleted."""
        with DurableNode(data_dir) as node:
            declare_everything(node.meta)
        with DurableNode(data_dir) as node:
            assert [row.name for row in node.routing.route(V, "amq.topic", ("a.b.c",))] == ["durable"]
            assert [row.name for row in node.routing.route(V, "durable headers", ("",), Table([("b", "I", 1)]))] == [
                "durable"
            ]
            assert node.routing.exchange(V, "odd").alternate == "durable fanout"
            declare_everything(node.meta)
            assert node.meta.delete("durable") == 7

    def test_the_predefined_exchanges_are_those_of_every_vhost(self, data_dir):
        """A start has each predefined exchange once, with a new data directory and with an old one (AB-64)."""
        for _ in range(2):
            with DurableNode(data_dir) as node:
                assert sorted(row.name for row in node.state.vhosts[V].exchanges.values()) == SYSTEM

    def test_after_a_restart_nobody_has_bound_an_auto_delete_exchange(self, data_dir):
        """An auto-delete exchange stays when the broker's stop removes its only binding, one to a transient queue,
        because that does not count as an unbind (AB-77).
        """
        with DurableNode(data_dir) as node:
            node.meta.exchange("x", durable=True, auto_delete=True)
            node.meta.queue("transient")
            node.meta.bind("transient", "x")
        with DurableNode(data_dir) as node:
            assert node.routing.exchange(V, "x") is not None


class TestRemoval:
    def check(self, node, data_dir, tmp_path, names):
        """Assert that the store agrees with the routing table, and that a start after a kill at this moment brings back
        these exchanges and queues.
        """
        node.meta.ask("write")
        shutil.copytree(data_dir, tmp_path / "killed")
        with DurableNode(tmp_path / "killed") as killed:
            assert killed.durable() == node.durable()
            assert (
                sorted(
                    {row[1] for row in killed.durable()["queues"]}
                    | {row.name for row in killed.state.vhosts[V].exchanges.values()} - set(SYSTEM)
                )
                == names
            )

    @pytest.fixture
    def chain(self, node):
        """up -> middle -> q, both exchanges auto-delete, and a second way to q."""
        for name in ("up", "middle"):
            node.meta.exchange(name, durable=True, auto_delete=True)
        node.meta.queue("q", durable=True)
        node.meta.bind("middle", "up", kind="exchange")
        node.meta.bind("q", "middle")
        node.meta.bind("q", "amq.direct")
        return node

    def test_of_a_queue_takes_its_bindings_and_auto_delete_exchanges(self, chain, data_dir, tmp_path):
        """The deletion of a queue removes its bindings and the auto-delete exchanges that lose their last binding, also
        from the disk (AB-77, AB-86).
        """
        assert chain.meta.delete("q") == 7
        self.check(chain, data_dir, tmp_path, [])

    def test_of_a_binding(self, chain, data_dir, tmp_path):
        """An auto-delete exchange that loses its last binding by an unbind is removed from the disk too."""
        chain.meta.unbind("q", "middle")
        self.check(chain, data_dir, tmp_path, ["q"])

    def test_of_an_exchange(self, chain, data_dir, tmp_path):
        """The deletion of an exchange removes from the disk the auto-delete exchanges that it leaves unbound."""
        chain.meta.delete_exchange("middle")
        self.check(chain, data_dir, tmp_path, ["q"])

    def test_of_a_queue_by_itself(self, chain, data_dir, tmp_path, eventually):
        """A queue that ends by itself, by expiry or auto-delete, is removed from the disk with its chain."""
        chain.client.tell(chain.routing.queue(V, "q").address, ("leave",))
        eventually(lambda: chain.routing.queue(V, "q") is None)
        self.check(chain, data_dir, tmp_path, [])

    def test_of_an_exclusive_queue_that_a_durable_exchange_was_bound_to(self, chain, data_dir, tmp_path):
        """The end of an exclusive queue removes a durable auto-delete exchange from the disk."""
        chain.meta.exchange("x", durable=True, auto_delete=True)
        chain.meta.queue("mine", owner=MINE)
        chain.meta.bind("mine", "x")
        chain.meta.ask("delete_exclusive", MINE)
        self.check(chain, data_dir, tmp_path, ["middle", "q", "up"])

    def test_at_a_stop_nothing_is_left_unwritten(self, data_dir, disk):
        """A stop waits until the deletion of a queue that ended by itself is on the disk."""
        with DurableNode(data_dir) as node:
            row, _ = node.meta.queue("q", durable=True)
            disk.hold()
            node.client.tell(row.address, ("leave",))
            stopping = Background(node.ask_node, "stop", "shutdown")
            disk.release()
            assert stopping.result() is True
        with DurableNode(data_dir) as node:
            assert node.routing.queue(V, "q") is None


class TestOrder:
    @pytest.fixture
    def held(self, node, disk, eventually):
        """A node with an exchange x, a queue q and a binding between them, whose disk holds up the commit of something
        else.
        """
        node.meta.exchange("x", durable=True)
        node.meta.queue("q", durable=True)
        node.meta.bind("q", "x")
        disk.hold()
        self.first = Background(node.meta.exchange, "first", durable=True)
        eventually(lambda: node.metadata.log.is_committing)
        yield node
        disk.release()
        self.first.result()

    def seen(self, node):
        """Wait until Metadata has handled all earlier messages."""
        node.meta.ask("list", "vhosts", None)

    def test_an_addition_is_neither_answered_nor_seen_before_its_commit(self, held, disk):
        """A durable declare or bind takes effect, and is answered, after its commit."""
        pending = [
            Background(held.meta.exchange, "y", durable=True),
            Background(held.meta.queue, "r", durable=True),
            Background(held.meta.bind, "q", "x", key="other"),
        ]
        with pytest.raises(AmqpError, match="no queue 'r'"):
            held.meta.bind("r", "x")
        self.seen(held)
        assert not any(call.is_done() for call in pending)
        assert (
            held.routing.exchange(V, "y") is None
            and held.routing.queue(V, "r") is None
            and held.routing.route(V, "x", ("other",)) == ()
        )
        disk.release()
        for call in pending:
            call.result()
        assert held.routing.exchange(V, "y") and held.routing.queue(V, "r") and held.routing.route(V, "x", ("other",))

    def test_a_removal_is_seen_at_once_and_answered_after_its_commit(self, held, disk):
        """A durable deletion takes effect at once, and is answered after its commit."""
        pending = [
            Background(held.meta.unbind, "q", "x"),
            Background(held.meta.delete_exchange, "x"),
            Background(held.meta.delete, "q"),
        ]
        while held.routing.queue(V, "q") or held.routing.exchange(V, "x"):
            self.seen(held)
        # The row has left the table but not the disk, so the answer "not found" must wait for the commit.
        pending += [
            Background(held.meta.unbind, "q", "x"),
            Background(held.meta.delete_exchange, "x"),
            Background(held.meta.delete, "q"),
        ]
        self.seen(held)
        assert not any(call.is_done() for call in pending)
        disk.release()
        assert sorted(call.result() or 0 for call in pending) == [0, 0, 0, 0, 0, 7]

    def test_what_arrives_during_a_commit_shares_the_next(self, held, disk):
        """All changes that arrive during a commit are written by one more commit."""
        before = len(disk.commits)
        calls = [Background(held.meta.queue, f"q{number}", durable=True) for number in range(20)]
        calls += [Background(held.meta.exchange, f"x{number}", durable=True) for number in range(20)]
        calls += [Background(held.meta.bind, "q", "x", key=f"{number}") for number in range(20)]
        while held.metadata.log.unanswered < 60:
            self.seen(held)
        disk.release()
        for call in calls:
            call.result()
        assert [len(changes) for changes in disk.commits[before:]] == [1, 60]

    def test_transient_declarations_do_not_wait(self, held):
        """Transient declares, and declares that change nothing, are answered during a commit."""
        held.meta.exchange("t")
        held.meta.queue("t", owner=MINE)
        held.meta.bind("t", "t")
        held.meta.bind("t", "x")
        held.meta.unbind("t", "t")
        held.meta.delete_exchange("t")
        held.meta.delete("t")
        held.meta.exchange("x", durable=True)
        held.meta.queue("q", durable=True)
        held.meta.bind("q", "x")
        assert not self.first.is_done()

    def test_declarations_of_one_name_still_take_turns(self, held, disk):
        """Of several declares of one name during a commit one creates it, and different ones are refused."""
        calls = [Background(held.meta.queue, "r", durable=True) for _ in range(5)]
        calls += [Background(held.meta.exchange, "y", durable=True) for _ in range(5)]
        calls += [Background(held.meta.bind, "q", "x", key="other") for _ in range(5)]
        other = Background(held.meta.exchange, "y2", durable=True), Background(held.meta.exchange, "y2", durable=False)
        disk.release()
        assert sorted(call.result()[1] for call in calls[:5]) == [False] * 4 + [True]
        for call in calls[5:]:
            call.result()
        refusals = []
        for call in other:
            try:
                call.result()
            except AmqpError as error:
                refusals.append(error.code)
        assert refusals == [406]

    @pytest.mark.parametrize("gone", ["q", "x"])
    def test_a_binding_whose_end_goes_before_its_commit_is_refused(self, held, disk, data_dir, tmp_path, gone):
        """A bind gets 404 if its queue or exchange is deleted before the binding is committed."""
        binding = Background(held.meta.bind, "q", "x", key="other")
        while not held.metadata.log.unanswered:
            self.seen(held)
        going = Background(held.meta.delete, "q") if gone == "q" else Background(held.meta.delete_exchange, "x")
        while held.routing.queue(V, "q") and held.routing.exchange(V, "x"):
            self.seen(held)
        disk.release()
        with pytest.raises(AmqpError, match=f"no {'queue' if gone == 'q' else 'exchange'} '{gone}'"):
            binding.result()
        going.result()
        held.meta.ask("write")
        assert held.metadata.log.store.load()["bindings"] == []

    def test_a_binding_whose_queue_became_transient_meanwhile(self, held, disk):
        """A bind whose queue was declared anew as transient before its commit leaves no row on the disk."""
        binding = Background(held.meta.bind, "q", "x", key="other")
        while not held.metadata.log.unanswered:
            self.seen(held)
        going = Background(held.meta.delete, "q")
        while held.routing.queue(V, "q"):
            self.seen(held)
        disk.release()
        going.result()
        held.meta.queue("q")
        try:
            binding.result()
        except AmqpError:
            held.meta.bind("q", "x", key="other")
        held.meta.ask("write")
        assert held.routing.route(V, "x", ("other",)) and held.metadata.log.store.load()["bindings"] == []


class TestDiskErrors:
    @pytest.fixture
    def full(self, node, disk):
        node.meta.exchange("x", durable=True)
        node.meta.queue("q", durable=True)
        node.meta.bind("q", "x")
        disk.is_full = True
        return node

    def test_additions_are_refused_and_have_no_effect(self, full, disk, caplog):
        """A full disk refuses durable declares and binds with 541, and changes nothing."""
        with caplog.at_level(logging.INFO, "warren.disk"):
            before = full.durable()
            for _ in range(2):
                assert (
                    refused(full.meta.exchange, "y", durable=True)
                    == "metadata cannot be written: No space left on device. Nothing was changed. Free space on the "
                    "disk of the data directory"
                )
                refused(full.meta.queue, "r", durable=True)
                refused(full.meta.bind, "q", "x", key="other")
                refused(full.ask_node, "operate", "add_vhost", {"name": "v"})
            assert full.durable() == before
            disk.is_full = False
            full.meta.exchange("y", durable=True)
            full.meta.queue("r", durable=True)
            full.meta.bind("q", "x", key="other")
            full.ask_node("operate", "add_vhost", {"name": "v"})
        first, last = [record.getMessage() for record in caplog.records]
        assert "541" in first and "check its free space, quota and mount" in first
        assert last == "metadata is written again"

    def test_removals_are_refused_but_written_later(self, full, disk, data_dir, tmp_path):
        """A full disk refuses deletions with 541; they take effect, and are written once there is room."""
        refused(full.meta.unbind, "q", "x")
        refused(full.meta.unbind, "q", "x")
        refused(full.meta.delete, "q")
        refused(full.meta.delete, "q")
        refused(full.meta.delete_exchange, "x")
        assert full.routing.queue(V, "q") is None and full.routing.exchange(V, "x") is None
        disk.is_full = False
        full.meta.ask("write")
        stored = full.metadata.log.store.load()
        assert {table: stored[table] for table in ("vhosts", "exchanges", "queues", "bindings")} == {
            "vhosts": [((V,), {})],
            "exchanges": [],
            "queues": [],
            "bindings": [],
        }

    def test_a_record_that_could_not_be_replaced_stays_as_it_was(self, full, disk):
        """A failed commit may have written the new record, so the old one is written again, and not deleted."""
        [before] = full.metadata.log.store.load()["users"]
        refused(full.meta.ask, "change_definitions", ChangeUser("guest", (("tags", ("other",)),)))
        assert full.metadata.state.definitions.user("guest").tags == ("administrator",)
        disk.is_full = False
        full.meta.ask("write")
        assert full.metadata.log.store.load()["users"] == [before]
        full.meta.ask("change_definitions", ChangeUser("guest", (("tags", ("other",)),)))
        [after] = full.metadata.log.store.load()["users"]
        assert after.fields == {**before.fields, "tags": ("other",)}

    def test_a_declaration_after_a_removal_that_fails_stands(self, full, disk, eventually):
        """The deletions that a failed commit has left to do are written before later changes, so a later declare of the
        same name stands.
        """
        disk.is_full = False
        disk.hold()
        removal = Background(full.meta.delete_exchange, "x")
        eventually(lambda: full.routing.exchange(V, "x") is None and full.metadata.log.is_committing)
        declaration = Background(full.meta.exchange, "x", durable=True)
        absent = Background(full.meta.delete_exchange, "x")
        eventually(lambda: full.metadata.log.unanswered)
        assert not absent.is_done()
        disk.faults = ["lost"]
        disk.release()
        refused(removal.result)
        declaration.result()
        assert [row.key for row in full.metadata.log.store.load()["exchanges"]] == [(V, "x")]
        assert full.routing.exchange(V, "x") is not None

    def test_removals_of_what_is_being_removed_wait_for_it(self, full, disk, eventually):
        """A repeated deletion is answered after the commit of the first one."""
        disk.is_full = False
        disk.hold()
        removal = Background(full.meta.delete_exchange, "x")
        eventually(lambda: full.metadata.log.is_committing)
        again = Background(full.meta.delete_exchange, "x"), Background(full.meta.unbind, "q", "x")
        full.meta.exchange("t")
        assert not any(call.is_done() for call in again)
        disk.release()
        for call in (removal, *again):
            call.result()

    def test_a_full_disk_is_not_tried_at_every_turn(self, full, disk, eventually):
        """After a failed commit the next attempt is made after a pause, not at every turn."""
        before = len(disk.commits)
        full.client.tell(full.routing.queue(V, "q").address, ("leave",))
        eventually(lambda: full.metadata.log.is_failing)
        time.sleep(0.1)
        assert len(disk.commits) == before + 1

    def test_owed_deletions_are_tried_again_without_a_request(self, full, disk, eventually, monkeypatch):
        """A deletion that could not be written is repeated until the disk accepts it, without another request."""
        monkeypatch.setattr("warren.actors.metadata.log.local_log.RETRY_SECONDS", 0.02)
        full.client.tell(full.routing.queue(V, "q").address, ("leave",))
        eventually(lambda: len(disk.commits) > 6)
        disk.is_full = False
        eventually(lambda: not full.metadata.log.store.load()["queues"])

    def test_transient_things_are_not_affected(self, full):
        """A full disk refuses nothing that needs no commit."""
        refused(full.meta.exchange, "y", durable=True)
        full.meta.exchange("t")
        full.meta.queue("t", owner=MINE)
        full.meta.bind("t", "x")
        full.meta.unbind("t", "x")
        full.meta.delete_exchange("t")
        full.meta.delete_exchange("never there")
        full.meta.ask("delete_exclusive", MINE)
        full.meta.exchange("x", durable=True)

    def test_a_failed_commit_that_reached_the_disk_is_undone(self, node, disk):
        """What a failed commit may have written is removed by the next commit."""
        disk.faults = ["landed"]
        refused(node.meta.queue, "q", durable=True)
        assert node.metadata.log.store.load()["queues"]
        node.meta.exchange("x", durable=True)
        assert node.metadata.log.store.load()["queues"] == []
        disk.faults = ["lost"]
        refused(node.meta.queue, "q", durable=True)
        row, created = node.meta.queue("q", durable=True)
        assert created and node.metadata.log.store.load()["queues"][0].fields["queue_id"] == row.queue_id


class TestFailedEffects:
    """A command whose processes cannot be started is undone, also on the disk."""

    def test_a_queue_that_cannot_be_started_leaves_no_row(self, node, monkeypatch):
        """The declare is refused with 541, and the next one of that name creates the queue."""
        with monkeypatch.context() as patch:
            patch.setitem(StubQueue._handlers, "start", None)
            refused(node.meta.queue, "q", durable=True)
        assert not supervisor_of(node).queues
        assert node.state.queue(V, "q") is None and node.routing.queue(V, "q") is None
        node.meta.ask("write")
        assert node.metadata.log.store.load()["queues"] == []
        assert node.meta.queue("q", durable=True)[1] is True

    def test_a_vhost_that_cannot_be_started_leaves_no_row(self, node, monkeypatch):
        """The creation raises the error of the processes, and succeeds when its cause is gone (AB-169)."""

        def start(self, sender, context, name, rows, kept):
            self.stop("the test lets it fail")
            raise StorageError("no room")

        with monkeypatch.context() as patch:
            patch.setitem(VhostSupervisor._handlers, "start", start)
            with pytest.raises(StorageError, match="no room"):
                node.ask_node("operate", "add_vhost", {"name": "other"})
        assert node.routing.vhosts() == (V,)
        node.meta.ask("write")
        assert [row.key for row in node.metadata.log.store.load()["vhosts"]] == [(V,)]
        node.ask_node("operate", "add_vhost", {"name": "other"})
        assert node.routing.vhosts() == (V, "other")


NAMES = ("a", "b", "c")
OPERATIONS = st.one_of(
    st.tuples(st.just("exchange"), st.sampled_from(NAMES), st.booleans(), st.booleans()),
    st.tuples(st.just("delete_exchange"), st.sampled_from(NAMES)),
    st.tuples(st.just("queue"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(
        st.sampled_from(("bind", "unbind")),
        st.sampled_from(NAMES),
        st.sampled_from((*NAMES, "amq.topic")),
        st.sampled_from(("queue", "exchange")),
    ),
)
FAULTS = st.sampled_from((None, None, None, "lost", "landed"))


def perform(meta: Meta, verb: str, *arguments) -> None:
    if verb == "exchange":
        meta.exchange(arguments[0], "fanout", durable=arguments[1], auto_delete=arguments[2])
    elif verb == "queue":
        meta.queue(arguments[0], durable=arguments[1])
    elif verb in ("bind", "unbind"):
        getattr(meta, verb)(arguments[0], arguments[1], kind=arguments[2])
    else:
        getattr(meta, verb)(arguments[0])


class TestTableAndStore:
    @given(
        turns=st.lists(st.lists(OPERATIONS, min_size=1, max_size=6), max_size=12), faults=st.lists(FAULTS, max_size=8)
    )
    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_agree_whatever_happens_at_once_and_whatever_fails(self, tmp_path_factory, turns, faults):
        """Store and routing table agree whatever happens at the same time and whatever fails (QS-40, QS-41).

        After the last commit the store has the durable part of the table, and a restart brings it back.
        """
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch)
            data_dir = tmp_path_factory.mktemp("agree")
            with DurableNode(data_dir / "data") as node:
                disk.faults = list(faults)
                for turn in turns:
                    for call in [Background(perform, node.meta, *operation) for operation in turn]:
                        try:
                            call.result()
                        except AmqpError as error:
                            assert error.code in (404, 406, 541)
                disk.faults = []
                node.meta.ask("write")
                before = node.durable()
            with DurableNode(data_dir / "data") as node:
                assert node.durable() == before


class TestRecovery:
    def test_rows_without_vhost_or_end_are_deleted(self, data_dir):
        """A start deletes rows whose virtual host, exchange or queue does not exist."""
        with DurableNode(data_dir) as node:
            node.meta.queue("q", durable=True)
            node.meta.bind("q", "amq.direct")
            before = node.durable()
            row = node.metadata.log.store.load()["queues"][0]
            arguments = row.fields["arguments"]
            stale = [
                Change("bindings", (V, "amq.direct", "queue", "gone", "k", arguments), {}),
                Change("bindings", (V, "gone", "queue", "q", "k", arguments), {}),
                Change("queues", ("no vhost", "q"), row.fields),
                Change(
                    "exchanges",
                    ("no vhost", "x"),
                    {"type": "fanout", "auto_delete": False, "internal": False, "arguments": arguments},
                ),
                *[
                    Change(record.table, record.key, {each.name: getattr(record, each.name) for each in fields(record)})
                    for record in (
                        Permission("gone", V, "", "", ""),
                        Permission("guest", "no vhost", "", "", ""),
                        TopicPermission("gone", V, "x", "", ""),
                        Parameter("no vhost", "vhost-limits", "limits", "{}"),
                        Policy("no vhost", "p", "", "{}"),
                    )
                ],
            ]
            node.metadata.log.store.apply(stale)
        with DurableNode(data_dir) as node:
            assert node.durable() == before
            node.meta.ask("write")
            assert {name: len(rows) for name, rows in node.metadata.log.store.load().items()} == {
                "vhosts": 1,
                "exchanges": 0,
                "queues": 1,
                "bindings": 1,
                "users": 1,
                "permissions": 1,
                "topic_permissions": 0,
                "parameters": 0,
                "global_parameters": 1,
                "policies": 0,
                "nodes": 0,
                "cluster": 0,
                "features": len(FEATURES),
            }

    def test_a_vhost_that_does_not_start_is_down_and_the_others_are_not(self, data_dir, monkeypatch):
        """A virtual host that cannot be started refuses declares, and its queues are stopped; others run (AB-171)."""
        with DurableNode(data_dir) as node:
            node.ask_node("operate", "add_vhost", {"name": "other"})
            node.meta.queue("q", durable=True)
            node.meta.ask("declare_queue", "other", "q", True, None, False, Table(), MINE)
        healthy = iter((False, True))

        def start(self, sender, context, name, rows, kept):
            assert next(healthy), "the test lets it fail"
            return VhostSupervisor.on_start(self, sender, context, name, rows, kept)

        monkeypatch.setitem(VhostSupervisor._handlers, "start", start)
        with DurableNode(data_dir) as node:
            states = {row.vhost: row.state for name in node.routing.vhosts() for row in node.routing.queues(name)}
            assert states == {V: "stopped", "other": "running"}
            refused(node.meta.queue, "new", durable=True)
            assert node.durable()["queues"] and node.routing.queue(V, "new") is None

    def test_a_queue_that_was_killed_is_not_deleted(self, data_dir, eventually):
        """A durable queue whose process was killed is stopped, and runs again after a restart."""
        with DurableNode(data_dir) as node:
            row, _ = node.meta.queue("q", durable=True)
            node.client.tell(row.address, ActorExitRequest())
            eventually(lambda: node.routing.queue(V, "q").state == "stopped")
            with pytest.raises(AmqpError, match="process is stopped by supervisor"):
                node.meta.queue("q", durable=True)
        with DurableNode(data_dir) as node:
            assert node.routing.queue(V, "q").state == "running"

    def test_a_queue_that_is_deleted_before_it_was_recovered_stays_away(self, data_dir, monkeypatch):
        """When the deletion of a dormant queue is answered, its supervisor no longer tries to recover it (AB-63)."""
        with DurableNode(data_dir) as node:
            # a queue that can expire is started at once
            node.meta.queue("q", durable=True, arguments={"x-expires": 60_000})
        monkeypatch.setitem(StubQueue._handlers, "start", None)
        with DurableNode(data_dir) as node:
            supervisor = supervisor_of(node)
            assert node.routing.queue(V, "q").state == "stopped" and supervisor.queues
            assert node.meta.delete("q") == 0
            assert not supervisor.queues and node.routing.queue(V, "q") is None


class TestRefusedDirectories:
    """Data directories that `RunningNode` refuses to claim for a broker."""

    def start(self, data_dir):
        return RunningNode(Settings(port=0, data_dir=str(data_dir), node_name="warren@test"))

    def test_one_in_use(self, data_dir):
        """A directory that another node uses is refused until that node stops."""
        node = self.start(data_dir)
        with pytest.raises(StartError, match="is in use by warren@test"):
            self.start(data_dir)
        node.stop()
        self.start(data_dir).stop()

    def test_damaged_metadata(self, data_dir, caplog):
        """Damaged metadata is refused with a way out, and the attempt changes nothing."""
        self.start(data_dir).stop()
        path = data_dir / "metadata" / "data.mdb"
        whole = path.read_bytes()
        path.write_bytes(whole[:9000])
        for _ in range(2):
            with pytest.raises(
                StartError, match="the metadata in .* is damaged: .* Restore that directory from a backup"
            ):
                self.start(data_dir)
        path.write_bytes(whole)
        self.start(data_dir).stop()

    def test_a_node_without_a_claim_gets_the_same_error(self, data_dir):
        """A node that did not claim its directory refuses damaged metadata too."""
        with DurableNode(data_dir):
            pass
        (data_dir / "metadata" / "data.mdb").write_bytes(b"")
        with pytest.raises(StorageError, match="the file is empty"):
            DurableNode(data_dir)


def test_without_a_data_directory_nothing_is_written(client, metadata, disk, base):
    """A node without a data directory makes no commit, whatever is declared."""
    meta = Meta(client, metadata)
    declare_everything(meta)
    meta.delete("durable")
    assert meta.ask("write") is None
    assert disk.commits == []


# --- several declares at once ---


def declares(node, *queues, connection=MINE):
    """Declare these queues, given as names or as names with arguments, in one request. Returns the names that were
    declared, each with whether it is new.
    """
    wanted = [(queue, {}) if isinstance(queue, str) else queue for queue in queues]
    request = [(name, True, None, False, table_from(arguments)) for name, arguments in wanted]
    answers = node.meta.ask("declare_queues", V, request, connection)
    return [(row.name, is_new) for row, is_new in answers]


def test_queues_that_are_declared_together_share_a_commit(node, disk):
    node.meta.queue("b", durable=True)
    disk.commits.clear()
    assert declares(node, "a", "b", "c") == [("a", True), ("b", False), ("c", True)]
    assert [sorted(change.key[1] for change in commit) for commit in disk.commits] == [["a", "c"]]
    assert {row["name"] for row in node.meta.ask("list", "queues", V)} == {"a", "b", "c"}


def test_no_queue_behind_one_that_is_refused_is_declared(node):
    """When one of several declares is refused, those behind it are not made, as if each had been sent by itself: the
    refusal closes the client's channel.
    """
    assert declares(node, "a", ("b", {"x-message-ttl": "text"}), "c") == [("a", True)]
    assert {row["name"] for row in node.meta.ask("list", "queues", V)} == {"a"}


def test_the_same_queue_twice_in_one_request_is_new_once(node):
    assert declares(node, "a", "a", "b") == [("a", True), ("a", False), ("b", True)]
    assert declares(node, "c", ("c", {"x-max-length": 1}), "d") == [("c", True)]
    assert node.routing.queue(V, "d") is None


def test_a_disk_that_refuses_declares_refuses_all_of_a_commit(node, disk):
    disk.faults = ["lost"]
    assert declares(node, "a", "b") == []
    assert node.meta.ask("list", "queues", V) == []
    assert declares(node, "a", "b") == [("a", True), ("b", True)]
