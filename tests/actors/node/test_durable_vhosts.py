"""Virtual hosts on a data directory: a restart brings them back, and a deleted one leaves no row (AB-169, AB-170)."""

from __future__ import annotations

from collections import Counter

import pytest

from warren.actors.metadata.recovery import STARTED_AT_ONCE
from warren.actors.node.operations.registry import OperationError
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.actors.node.vhosts import TERMINATED_AT_ONCE
from warren.amqp.fields import Table
from warren.running_node import RunningNode
from warren.settings import Settings
from warren.store.data_dir.data_dir import DataDir
from warren.store.data_dir.metadata_store import MetadataStore

from ..durable_node import DurableNode

T = "tenant"


def fill(node, vhost):
    ask = node.meta.ask
    ask("declare_exchange", vhost, "x", "fanout", True, False, False, Table())
    ask("declare_exchange", vhost, "fleeting", "fanout", True, True, False, Table())
    ask("declare_queue", vhost, "q", True, None, False, Table(), "c")
    ask("declare_queue", vhost, "mine", False, "c", False, Table(), "c")
    ask("bind", vhost, "queue", "q", "x", "k", Table(), "c")
    ask("bind", vhost, "queue", "q", "amq.topic", "#", Table(), "c")
    ask("bind", vhost, "exchange", "x", "fleeting", "", Table(), "c")


def rows_on_disk(path):
    store = MetadataStore(DataDir(str(path)).metadata)
    try:
        return {table: sorted(row.key for row in rows) for table, rows in store.load().items()}
    finally:
        store.close()


def test_a_created_vhost_outlives_the_node(tmp_path):
    """A virtual host, with everything declared in it, is there again after a restart (AB-169)."""
    with DurableNode(tmp_path) as node:
        node.ask_node("operate", "add_vhost", {"name": T})
        node.ask_node("operate", "add_vhost", {"name": T})
        fill(node, T)
        before = node.durable()
    with DurableNode(tmp_path) as node:
        assert node.durable() == before
        assert T in node.routing.vhosts()


def test_vhosts_start_and_end_several_at_a_time(tmp_path, monkeypatch):
    """A node with many virtual hosts does not wait for the disk of each before it turns to the next, and does not have
    all of them read their journals at once.
    """
    under_way, most = Counter(), Counter()

    def counted(name):
        handle = getattr(VhostSupervisor, name)

        async def counting(supervisor, *arguments):
            under_way[name] += 1
            most[name] = max(most[name], under_way[name])
            try:
                return await handle(supervisor, *arguments)
            finally:
                under_way[name] -= 1

        monkeypatch.setitem(VhostSupervisor._handlers, name.removeprefix("on_"), counting)

    with DurableNode(tmp_path) as node:
        for number in range(40):
            node.ask_node("operate", "add_vhost", {"name": f"v{number}"})
            fill(node, f"v{number}")
        before = node.durable()
    counted("on_start")
    counted("on_terminate")
    with DurableNode(tmp_path) as node:
        assert node.durable() == before and most["on_start"] == STARTED_AT_ONCE
        node.stop()
    assert most["on_terminate"] == TERMINATED_AT_ONCE


def test_a_deleted_vhost_leaves_no_row(tmp_path):
    """When the deletion of a virtual host is answered, none of its rows is on the disk, and those of others are
    (AB-170).
    """
    with DurableNode(tmp_path) as node:
        fill(node, "/")
        before = node.durable()
        node.ask_node("operate", "add_vhost", {"name": T})
        fill(node, T)
        node.ask_node("operate", "delete_vhost", {"name": T})
        assert node.durable() == before
        assert list(node.state.queues_of("c")) == [("/", "mine")]
    tables = rows_on_disk(tmp_path)
    of_the_node = ("users", "global_parameters", "features")
    rows = [key for table, keys in tables.items() if table not in of_the_node for key in keys]
    assert all("/" in key and T not in key for key in rows)
    assert len(tables["queues"]) == 1
    with DurableNode(tmp_path) as node:
        assert node.durable() == before


def test_one_created_anew_inherits_nothing(tmp_path):
    with DurableNode(tmp_path) as node:
        for _ in range(3):
            node.ask_node("operate", "add_vhost", {"name": T})
            fill(node, T)
            node.ask_node("operate", "delete_vhost", {"name": T})
        node.ask_node("operate", "add_vhost", {"name": T})
    with DurableNode(tmp_path) as node:
        assert node.routing.queues(T) == ()
        assert [
            row for row in node.state.vhosts[T].exchanges.values() if not row.name.startswith("amq.") and row.name
        ] == []
        assert T in node.routing.vhosts()


def test_declares_under_way_are_taken_back(tmp_path):
    """A declare whose commit runs while its virtual host is deleted is refused, and a new virtual host of that name
    does not have it.
    """
    with DurableNode(tmp_path) as node:
        for number in range(10):
            node.ask_node("operate", "add_vhost", {"name": T})
            for each in range(20):
                node.client.tell(
                    node.metadata.myAddress, ("declare_exchange", T, f"x{each}", "fanout", True, False, False, Table())
                )
                node.client.tell(
                    node.metadata.myAddress, ("declare_queue", T, f"q{each}", True, None, False, Table(), "c")
                )
            if number % 2:
                node.client.tell(node.metadata.myAddress, ("delete_vhost", T))
                node.ask_node("operate", "add_vhost", {"name": T})
            node.ask_node("operate", "delete_vhost", {"name": T})
        assert not node.metadata.turns._waiting
    tables = rows_on_disk(tmp_path)
    assert tables["vhosts"] == [("/",)]
    assert not tables["exchanges"] and not tables["queues"] and not tables["bindings"]


def test_deleting_an_unknown_one_is_an_error(tmp_path):
    with DurableNode(tmp_path) as node, pytest.raises(OperationError, match="Virtual host 'nowhere' does not exist"):
        node.ask_node("operate", "delete_vhost", {"name": "nowhere"})


def test_a_start_takes_as_long_as_it_takes(tmp_path, monkeypatch):
    """A recovery has no time limit, because to give up would not make the next one shorter (QS-41)."""
    monkeypatch.setattr("warren.running_node.CALL_TIMEOUT", 0.0)
    RunningNode(Settings(port=0, data_dir=str(tmp_path))).stop()
