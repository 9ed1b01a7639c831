"""The routing table: routing, alternate exchanges, auto-delete, and the cost of changes (AB-64, AB-68 to AB-79)."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.routing.changes import BindingAdded, BindingRemoved, Change, ExchangePut, ExchangeRemoved, QueuePut
from warren.routing.rows import Binding, ExchangeRow, QueueRow
from warren.routing.table import RoutingTable
from warren.routing.vhost_rows import VhostRows

V = "/"
NONE = Table()


class Removed(NamedTuple):
    """The exchanges and bindings that went with a removed row."""

    exchanges: list[ExchangeRow]
    bindings: list[Binding]


class Rows(RoutingTable):
    """A routing table and the rows of virtual hosts, whose changes are published to it one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, VhostRows] = {}

    def add_vhost(self, vhost: str, rows: VhostRows | None = None) -> None:
        self.rows[vhost] = VhostRows(vhost)
        super().add_vhost(vhost, self.rows[vhost])

    def put_exchange(self, row: ExchangeRow) -> None:
        self.rows[row.vhost].put_exchange(row)
        self.publish([ExchangePut(row)])

    def put_queue(self, row: QueueRow) -> None:
        self.rows[row.vhost].put_queue(row)
        super().put_queue(row)

    def add_binding(self, vhost: str, binding: Binding) -> bool:
        if self.rows[vhost].binding(binding) is not None:
            return False
        self.rows[vhost].add_binding(binding, True)
        self.publish([BindingAdded(vhost, binding, True)])
        return True

    def remove_exchange(self, vhost: str, name: str) -> Removed:
        return self._removed(self.rows[vhost].remove_exchange(name), name)

    def remove_queue(self, vhost: str, name: str) -> Removed:
        return self._removed(self.rows[vhost].remove_queue(name))

    def remove_binding(self, vhost: str, binding: Binding) -> Removed:
        return self._removed(self.rows[vhost].remove_binding(binding))

    def _removed(self, changes: list[Change], asked_for: str | None = None) -> Removed:
        self.publish(changes)
        exchanges = [change.row for change in changes if isinstance(change, ExchangeRemoved)]
        bindings = [change.binding for change in changes if isinstance(change, BindingRemoved)]
        return Removed([row for row in exchanges if row.name != asked_for], bindings)

    def exchanges(self, vhost: str) -> list[ExchangeRow]:
        return list(self.rows[vhost].exchanges.values())

    def bindings(self, vhost: str) -> list[Binding]:
        return list(self.rows[vhost].all_bindings())

    def is_source(self, vhost: str, exchange: str) -> bool:
        return self.rows[vhost].is_source(exchange)


@pytest.fixture
def table() -> Rows:
    table = Rows()
    table.add_vhost(V)
    return table


def add_queues(table: Rows, *names: str, **options) -> None:
    for name in names:
        table.put_queue(QueueRow(V, name, f"address of {name}", f"id of {name}", **options))


def add_exchange(table: Rows, name: str, exchange_type: str = "fanout", **options) -> None:
    table.put_exchange(ExchangeRow(V, name, exchange_type, **options))


def bind(
    table: RoutingTable, source: str, destination: str, key: str = "", arguments: Table = NONE, kind: str = "queue"
) -> bool:
    return table.add_binding(V, Binding.of(source, kind, destination, key, arguments))


def unbind(table: Rows, source: str, destination: str, key: str = "", kind: str = "queue") -> tuple[str, ...]:
    return names_of(table.remove_binding(V, Binding.of(source, kind, destination, key, NONE)))


def names_of(gone: Removed) -> tuple[str, ...]:
    return tuple(row.name for row in gone.exchanges)


def link(table: Rows, source: str, destination: str, key: str = "") -> bool:
    return bind(table, source, destination, key, kind="exchange")


def routed(table: Rows, exchange: str, *keys: str, headers=None) -> set[str]:
    rows = table.route(V, exchange, keys or ("",), headers)
    names = [row.name for row in rows]
    assert len(names) == len(set(names)), "a queue got two copies"
    return set(names)


class TestVhosts:
    def test_a_new_vhost_has_the_default_exchanges(self, table):
        """A new virtual host has the default exchanges, all durable (AB-64)."""
        assert {(row.name, row.type, row.internal) for row in table.exchanges(V)} == {
            ("", "direct", False),
            ("amq.direct", "direct", False),
            ("amq.fanout", "fanout", False),
            ("amq.topic", "topic", False),
            ("amq.match", "headers", False),
            ("amq.headers", "headers", False),
            ("amq.rabbitmq.trace", "topic", True),
        }
        assert all(row.durable and not row.auto_delete for row in table.exchanges(V))

    def test_vhosts_are_separate(self, table):
        table.add_vhost("other")
        add_queues(table, "q")
        assert routed(table, "", "q") == {"q"}
        assert table.route("other", "", ("q",)) == ()
        assert table.queue("other", "q") is None

    def test_a_missing_vhost_is_empty(self, table):
        assert table.route("no", "", ("q",)) == ()
        assert table.exchange("no", "") is None
        assert table.queue("no", "q") is None


class TestDefaultExchange:
    def test_it_routes_by_queue_name(self, table):
        """The default exchange routes by queue name: the key is the name of a queue (AB-68)."""
        add_queues(table, "a", "b")
        assert routed(table, "", "a") == {"a"}
        assert routed(table, "", "a", "b", "a", "none") == {"a", "b"}
        assert routed(table, "", "none") == set()

    def test_implicit_bindings_are_listed(self, table):
        add_queues(table, "a")
        bind(table, "amq.direct", "a", "k")
        assert list(table.bindings(V)) == [
            Binding("", "queue", "a", "a", NONE),
            Binding("amq.direct", "queue", "a", "k", NONE),
        ]


class TestBindings:
    def test_adding_an_existing_binding_changes_nothing(self, table):
        """Adding a binding again, with its arguments in any order, changes nothing (AB-73)."""
        add_queues(table, "q")
        arguments = table_from({"b": 1, "a": 2})
        assert bind(table, "amq.direct", "q", "k", arguments)
        version = table.version
        assert not bind(table, "amq.direct", "q", "k", Table(reversed(arguments)))
        assert table.version == version
        assert bind(table, "amq.direct", "q", "k")
        assert len(list(table.bindings(V))) == 3

    def test_removing_a_queue_removes_its_bindings(self, table):
        """AB-86: a new queue of the same name has none of them."""
        add_queues(table, "q")
        bind(table, "amq.topic", "q", "#")
        table.remove_queue(V, "q")
        add_queues(table, "q")
        assert routed(table, "amq.topic", "k") == set()
        assert not table.is_source(V, "amq.topic")

    def test_replacing_a_queue_row_keeps_its_bindings(self, table):
        add_queues(table, "q")
        bind(table, "amq.fanout", "q")
        table.put_queue(QueueRow(V, "q", "elsewhere", "id of q", state="crashed"))
        [row] = table.route(V, "amq.fanout", ("",))
        assert (row.address, row.state) == ("elsewhere", "crashed")

    def test_a_queue_is_shown_as_running_together_with_its_address(self, table):
        """A queue is shown as running only together with its address. Its state alone changes first, and a channel that
        found it without an address would crash.
        """
        stopped = QueueRow(V, "q", None, "id of q", state="stopped")
        table.publish([QueuePut(stopped)])
        table.publish([QueuePut(replace(stopped, state="running"))])
        assert table.queue(V, "q") == stopped
        table.put_queue(replace(stopped, state="running", address="here"))
        assert table.queue(V, "q").state == "running"

    def test_a_missing_exchange_routes_nowhere(self, table):
        assert routed(table, "none", "k") == set()


class TestExchangeToExchange:
    def test_each_exchange_routes_by_the_key_of_the_publish(self, table):
        """Each exchange on the way routes by the key of the publish, not by that of the binding that led to
        it (AB-74).
        """
        add_exchange(table, "outer", "topic")
        add_exchange(table, "inner", "direct")
        add_queues(table, "q", "r")
        link(table, "outer", "inner", "a.#")
        bind(table, "inner", "q", "a.b")
        bind(table, "inner", "r", "a.c")
        assert routed(table, "outer", "a.b") == {"q"}
        assert routed(table, "outer", "b") == set()

    def test_cycles_and_diamonds_give_one_copy(self, table):
        """Each exchange is visited once, so cycles and several ways to a queue give one copy (AB-74)."""
        for name in "abcd":
            add_exchange(table, name)
        add_queues(table, "q")
        for source, destination in ("ab", "ac", "bd", "cd", "da", "aa"):
            link(table, source, destination)
        bind(table, "d", "q")
        assert all(routed(table, name) == {"q"} for name in "abcd")

    def test_one_of_two_bindings_to_exchanges_may_be_removed(self, table):
        for name in "abc":
            add_exchange(table, name)
        add_queues(table, "q")
        link(table, "a", "b")
        link(table, "a", "c")
        bind(table, "c", "q")
        unbind(table, "a", "b", kind="exchange")
        assert routed(table, "a") == {"q"}

    def test_internal_exchanges_route_too(self, table):
        """Internal exchanges route, too; only publishing to them is refused (AB-67)."""
        add_exchange(table, "inside", internal=True)
        add_queues(table, "q")
        link(table, "amq.fanout", "inside")
        bind(table, "inside", "q")
        assert routed(table, "amq.fanout") == {"q"}

    def test_a_chain_may_be_longer_than_the_stack(self, table):
        names = [f"x{number}" for number in range(3000)]
        for name in names:
            add_exchange(table, name)
        for source, destination in pairwise(names):
            link(table, source, destination)
        add_queues(table, "q")
        bind(table, names[-1], "q")
        assert routed(table, names[0]) == {"q"}

    def test_reaching_an_exchange_of_an_unknown_type_is_an_error(self, table):
        """Reaching an exchange of an unknown type fails with 406, but its bindings can be removed (AB-78)."""
        add_exchange(table, "odd", "x-odd")
        add_queues(table, "q")
        bind(table, "odd", "q")
        link(table, "amq.fanout", "odd")
        for exchange in ("odd", "amq.fanout"):
            with pytest.raises(AmqpError, match="exchange type x-odd not found"):
                routed(table, exchange)
        unbind(table, "odd", "q")


class TestAlternateExchange:
    """The alternate exchange of an exchange gets the messages that find no destination there (AB-76)."""

    def test_it_gets_messages_without_a_destination(self, table):
        add_exchange(table, "x", "direct", alternate="ae")
        add_exchange(table, "ae")
        add_queues(table, "q", "rest")
        bind(table, "x", "q", "k")
        bind(table, "ae", "rest")
        assert routed(table, "x", "k") == {"q"}
        assert routed(table, "x", "other") == {"rest"}

    def test_it_need_not_exist(self, table):
        add_exchange(table, "x", "direct", alternate="ae")
        assert routed(table, "x", "k") == set()

    def test_alternates_may_form_chains_and_cycles(self, table):
        add_exchange(table, "x", "direct", alternate="y")
        add_exchange(table, "y", "direct", alternate="x")
        assert routed(table, "x", "k") == set()
        add_queues(table, "q")
        bind(table, "y", "q", "k")
        assert routed(table, "x", "k") == {"q"}

    def test_exchanges_reached_through_bindings_have_alternates_too(self, table):
        add_exchange(table, "x", "direct", alternate="ae")
        add_exchange(table, "ae")
        add_queues(table, "q")
        link(table, "amq.fanout", "x")
        bind(table, "ae", "q")
        assert routed(table, "amq.fanout", "k") == {"q"}

    def test_a_destination_that_leads_to_no_queue_counts(self, table):
        """A destination exchange that leads to no queue counts as a destination, so the alternate exchange gets
        nothing.
        """
        add_exchange(table, "x", "fanout", alternate="ae")
        add_exchange(table, "ae")
        add_exchange(table, "dead end")
        add_queues(table, "q")
        link(table, "x", "dead end")
        bind(table, "ae", "q")
        assert routed(table, "x", "k") == set()

    def test_it_may_be_the_default_exchange(self, table):
        add_exchange(table, "x", "direct", alternate="")
        add_queues(table, "q")
        assert routed(table, "x", "q") == {"q"}


class TestExtraQueue:
    """The extra queue of a queue, with the cases of RabbitMQ's extra_bcc_option tests (AB-79)."""

    def test_it_gets_one_copy(self, table):
        add_queues(table, "extra")
        add_queues(table, "q1", "q2", extra_queue="extra")
        assert routed(table, "", "q1") == {"q1", "extra"}
        assert routed(table, "", "q1", "q2", "extra") == {"q1", "q2", "extra"}

    def test_it_may_be_missing(self, table):
        add_queues(table, "q", extra_queue="none")
        assert routed(table, "", "q") == {"q"}


class TestAutoDelete:
    """AB-77: an auto-delete exchange is removed when it loses its last binding."""

    def test_it_is_removed_with_its_last_binding(self, table):
        add_exchange(table, "x", auto_delete=True)
        add_queues(table, "q")
        bind(table, "x", "q", "a")
        bind(table, "x", "q", "b")
        assert unbind(table, "x", "q", "a") == ()
        assert unbind(table, "x", "q", "b") == ("x",)
        assert table.exchange(V, "x") is None

    def test_it_is_removed_with_its_last_destination(self, table):
        add_exchange(table, "x", auto_delete=True)
        add_queues(table, "q")
        bind(table, "x", "q")
        assert names_of(table.remove_queue(V, "q")) == ("x",)

    def test_an_exchange_that_was_never_a_source_stays(self, table):
        add_exchange(table, "x", auto_delete=True)
        add_exchange(table, "y")
        link(table, "y", "x")
        unbind(table, "y", "x", kind="exchange")
        assert table.exchange(V, "x") is not None

    def test_removal_continues_to_its_sources(self, table):
        names = [f"x{number}" for number in range(2000)]
        for name in names:
            add_exchange(table, name, auto_delete=True)
        for source, destination in pairwise(names):
            link(table, source, destination)
        add_queues(table, "q")
        bind(table, names[-1], "q")
        gone = table.remove_queue(V, "q")
        assert sorted(names_of(gone)) == sorted(names) and len(gone.bindings) == len(names)
        assert not any(table.is_source(V, name) for name in names)

    def test_a_cycle_of_exchanges_is_removed(self, table):
        for name in "ab":
            add_exchange(table, name, auto_delete=True)
        link(table, "a", "b")
        link(table, "b", "a")
        assert set(unbind(table, "a", "b", kind="exchange")) == {"a", "b"}

    def test_deleting_an_exchange_removes_sources_but_not_destinations(self, table):
        add_exchange(table, "up", auto_delete=True)
        add_exchange(table, "middle", auto_delete=True)
        add_exchange(table, "down", auto_delete=True)
        link(table, "up", "middle")
        link(table, "middle", "down")
        assert names_of(table.remove_exchange(V, "middle")) == ("up",)
        assert table.exchange(V, "down") is not None


class TestReplyChannels:
    def test_addresses_are_registered_and_unregistered(self, table):
        assert table.reply_channel("c") is None
        version = table.version
        table.register_reply("c", "address")
        assert table.reply_channel("c") == "address" and table.version > version
        table.unregister_reply("c")
        table.unregister_reply("c")
        assert table.reply_channel("c") is None


def test_every_change_increments_the_version(table):
    add_exchange(table, "x", auto_delete=True)
    add_queues(table, "q")
    for change in (
        lambda: add_exchange(table, "y"),
        lambda: add_queues(table, "r"),
        lambda: bind(table, "x", "q"),
        lambda: unbind(table, "x", "q"),
        lambda: table.remove_queue(V, "q"),
        lambda: table.remove_exchange(V, "y"),
        lambda: table.add_vhost("other"),
    ):
        version = table.version
        change()
        assert table.version > version


def test_a_table_can_be_pickled(table):
    add_queues(table, "q")
    bind(table, "amq.topic", "q", "a.#")
    copy = pickle.loads(pickle.dumps(table))
    assert routed(copy, "amq.topic", "a.b") == {"q"}


@pytest.mark.parametrize("exchange", ["amq.direct", "amq.topic", "amq.fanout", "amq.headers"])
def test_changes_cost_the_same_with_many_bindings(table, exchange):
    """Adding and removing a binding costs the same with 20,000 bindings. If each change copied the destinations, it
    would take minutes.
    """
    started = time.process_time()
    count = 20_000
    add_queues(table, *(f"q{number}" for number in range(count)))
    for number in range(count):
        bind(table, exchange, f"q{number}", f"k{number % 100}")
    for number in range(count):
        unbind(table, exchange, f"q{number}", f"k{number % 100}")
    assert not table.is_source(V, exchange)
    assert time.process_time() - started < 8.0  # measured: 0.25 s


# -- compared with a model that tests every binding ---

EXCHANGES = ("d", "f", "t", "h", "e")
QUEUES = ("q0", "q1", "q2")
TYPES = {"d": "direct", "f": "fanout", "t": "topic", "h": "headers", "e": "direct"}
KEYS = ("a", "a.b", "#", "*")
HEADERS = ({}, {"n": 1}, {"n": 2})


def model_matches(exchange_type: str, binding: Binding, key: str, headers: dict) -> bool:
    if exchange_type == "fanout":
        return True
    if exchange_type == "headers":
        return all(headers.get(name) == value for name, _, value in binding.arguments)
    if exchange_type == "topic" and binding.routing_key in ("#", "*"):
        return binding.routing_key == "#" or "." not in key
    return binding.routing_key == key


class RoutingMachine(RuleBasedStateMachine):
    """Any sequence of changes gives the result of simple sets of the rows."""

    @initialize()
    def start(self):
        self.table = Rows()
        self.table.add_vhost(V)
        self.exchanges: dict[str, ExchangeRow] = {}
        self.queues: set[str] = set()
        self.bindings: set[Binding] = set()
        for name in ("d", "f"):
            self.exchanges[name] = ExchangeRow(V, name, TYPES[name])
            self.table.put_exchange(self.exchanges[name])
        self.queues.update(QUEUES)
        add_queues(self.table, *QUEUES)

    @rule(
        name=st.sampled_from(EXCHANGES), auto_delete=st.booleans(), alternate=st.sampled_from((None, None, *EXCHANGES))
    )
    def declare_exchange(self, name, auto_delete, alternate):
        if name not in self.exchanges:
            row = ExchangeRow(V, name, TYPES[name], auto_delete=auto_delete, alternate=alternate)
            self.exchanges[name] = row
            self.table.put_exchange(row)

    @rule(name=st.sampled_from(EXCHANGES))
    def delete_exchange(self, name):
        if name in self.exchanges:
            before = set(self.bindings)
            gone = self.table.remove_exchange(V, name)
            del self.exchanges[name]
            self.bindings = {b for b in self.bindings if b.source != name}
            assert set(names_of(gone)) == self.drop(lambda b: (b.kind, b.destination) == ("exchange", name))
            assert sorted(gone.bindings, key=repr) == sorted(before - self.bindings, key=repr)

    @rule(name=st.sampled_from(QUEUES))
    def declare_queue(self, name):
        self.queues.add(name)
        add_queues(self.table, name)

    @rule(name=st.sampled_from(QUEUES))
    def delete_queue(self, name):
        if name in self.queues:
            before = set(self.bindings)
            gone = self.table.remove_queue(V, name)
            self.queues.discard(name)
            assert set(names_of(gone)) == self.drop(lambda b: (b.kind, b.destination) == ("queue", name))
            assert sorted(gone.bindings, key=repr) == sorted(before - self.bindings, key=repr)

    @rule(
        source=st.sampled_from(EXCHANGES),
        destination=st.sampled_from(EXCHANGES + QUEUES),
        key=st.sampled_from(KEYS),
        arguments=st.sampled_from(HEADERS[:2]),
        adding=st.sampled_from((True, True, False)),
    )
    def change_binding(self, source, destination, key, arguments, adding):
        kind = "queue" if destination in QUEUES else "exchange"
        if source not in self.exchanges or destination not in (self.queues if kind == "queue" else self.exchanges):
            return
        binding = Binding.of(source, kind, destination, key, table_from(arguments))
        if adding:
            assert self.table.add_binding(V, binding) == (binding not in self.bindings)
            self.bindings.add(binding)
        elif binding in self.bindings:
            before = set(self.bindings)
            gone = self.table.remove_binding(V, binding)
            assert set(names_of(gone)) == self.drop(lambda b: b == binding)
            assert sorted(gone.bindings, key=repr) == sorted(before - self.bindings, key=repr)

    def drop(self, condition) -> set[str]:
        """Remove these bindings from the model, with the auto-delete exchanges that have none left."""
        lost = {b for b in self.bindings if condition(b)}
        self.bindings -= lost
        gone: set[str] = set()
        for source in sorted({b.source for b in lost}):
            row = self.exchanges.get(source)
            if row is not None and row.auto_delete and not any(b.source == source for b in self.bindings):
                del self.exchanges[source]
                gone |= {source} | self.drop(lambda b, name=source: (b.kind, b.destination) == ("exchange", name))
        return gone

    def expected(self, exchange: str, keys: tuple[str, ...], headers: dict) -> set[str]:
        visited, found, waiting = set(), set(), [exchange]
        while waiting:
            name = waiting.pop()
            if name in visited or name not in self.exchanges:
                continue
            visited.add(name)
            row = self.exchanges[name]
            hits = [
                b
                for b in self.bindings
                if b.source == name and any(model_matches(row.type, b, key, headers) for key in keys)
            ]
            found |= {b.destination for b in hits if b.kind == "queue"}
            waiting += [b.destination for b in hits if b.kind == "exchange"]
            if not hits and row.alternate is not None:
                waiting.append(row.alternate)
        return found

    @invariant()
    def agrees(self):
        if not hasattr(self, "table"):
            return
        assert {row.name for row in self.table.exchanges(V)} - {""} >= set(self.exchanges)
        assert {b for b in self.table.bindings(V) if b.source} == self.bindings
        for name in self.exchanges:
            assert self.table.is_source(V, name) == any(b.source == name for b in self.bindings)
            for headers in HEADERS:
                for keys in (("a",), ("a.b",), ("a", "a.b")):
                    assert routed(self.table, name, *keys, headers=table_from(headers)) == self.expected(
                        name, keys, headers
                    )


TestAgainstModel = RoutingMachine.TestCase
TestAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
