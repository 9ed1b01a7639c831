"""`apply`: what each command changes in the state, and when it is refused (AB-64 to AB-66, AB-73, AB-77, AB-82 and
later).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.metadata.state import state as state_module
from warren.actors.metadata.state.commands import (
    Bind,
    CreateVhost,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
    EndConnection,
    RestartQueue,
    SetQueueStates,
    Unbind,
)
from warren.actors.metadata.state.effects import Applied, EndQueue, StartQueue, StartVhost, StopVhost
from warren.actors.metadata.state.state import State, additions, apply
from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.routing.changes import (
    BindingAdded,
    BindingRemoved,
    ExchangePut,
    ExchangeRemoved,
    QueuePut,
    QueueRemoved,
    VhostAdded,
    VhostRemoved,
)
from warren.routing.rows import Binding, ExchangeRow, QueueRow
from warren.routing.vhost_rows import DEFAULT_EXCHANGES

V = "/"
MINE, THEIRS = "connection 1", "connection 2"
NOTHING = Applied([], [])


@pytest.fixture
def state() -> State:
    state = State()
    apply(state, CreateVhost(V))
    return state


def queue(name="q", queue_id="1", durable=False, owner=None, vhost=V, **arguments) -> QueueRow:
    table = table_from({key.replace("_", "-"): value for key, value in arguments.items()})
    return QueueRow(
        vhost, name, None, queue_id, durable, False, owner, table, node="warren@test", replicas=("warren@test",)
    )


def exchange(name="x", exchange_type="direct", vhost=V, **options) -> ExchangeRow:
    return ExchangeRow(vhost, name, exchange_type, **{"durable": False, **options})


def binding(destination="q", source="x", key="k", kind="queue") -> Binding:
    return Binding.of(source, kind, destination, key, Table())


def declare(state: State, *rows: QueueRow | ExchangeRow) -> None:
    for row in rows:
        apply(state, DeclareQueue(row, False) if isinstance(row, QueueRow) else DeclareExchange(row))


def refused(state: State, command, code: int, text: str = "") -> None:
    """Assert that the command is refused and changes nothing."""
    before = repr(contents(state))
    with pytest.raises(AmqpError) as caught:
        apply(state, command)
    assert caught.value.code == code and text in caught.value.text
    assert repr(contents(state)) == before


def contents(state: State):
    return [
        (rows.vhost, rows.exchanges, rows.queues, rows.by_owner, list(rows.bindings()))
        for rows in state.vhosts.values()
    ], list(state.ended_connections)


class TestVhosts:
    def test_a_new_one_has_the_default_exchanges(self):
        """Creating a virtual host adds it with the default exchanges, and has its processes started (AB-64)."""
        state = State()
        assert apply(state, CreateVhost(V)) == Applied([VhostAdded(V)], [StartVhost(V)])
        assert list(state.vhosts[V].exchanges) == [name for name, _, _ in DEFAULT_EXCHANGES]

    def test_creating_one_again_changes_nothing(self, state):
        """Creating a virtual host that exists is success, and what is in it stays (AB-169)."""
        declare(state, queue())
        assert apply(state, CreateVhost(V)) == NOTHING
        assert state.queue(V, "q") is not None

    def test_deleting_takes_everything(self, state):
        """Bindings, queues and exchanges go before the virtual host, and then its processes end (AB-170)."""
        apply(state, CreateVhost("other"))
        declare(state, exchange(), queue(owner=MINE))
        apply(state, Bind(V, binding(), MINE))
        changes, effects = apply(state, DeleteVhost(V))
        assert changes[0] == BindingRemoved(V, binding(), False)
        assert changes[1] == QueueRemoved(queue(owner=MINE))
        assert {change.row.name for change in changes[2:-1]} == {"x", *(name for name, _, _ in DEFAULT_EXCHANGES)}
        assert type(changes[-1]) is VhostRemoved and effects == [StopVhost(V)]
        assert list(state.vhosts) == ["other"] and not list(state.queues_of(MINE))
        assert apply(state, DeleteVhost(V)) == NOTHING

    def test_one_that_could_not_be_started_need_not_be_stopped(self, state):
        """A virtual host whose processes could not be started leaves the state without an effect."""
        assert apply(state, DeleteVhost(V, is_ended=True)).effects == [] and not state.vhosts

    @pytest.mark.parametrize(
        "command",
        [
            DeclareExchange(exchange(vhost="gone")),
            DeleteExchange("gone", "x", False),
            Bind("gone", binding(), MINE),
            Unbind("gone", binding(), MINE),
            DeclareQueue(queue(vhost="gone"), False),
        ],
    )
    def test_in_one_that_is_gone_everything_is_refused(self, state, command):
        """A command that reaches the log after the deletion of its virtual host is refused with 320."""
        refused(state, command, 320, "vhost 'gone' is deleted")

    def test_reports_about_one_that_is_gone_change_nothing(self, state):
        """The queues of a deleted virtual host are gone already, so a report about one changes nothing."""
        assert apply(state, DeleteQueue("gone", "q", "1", True)) == NOTHING
        assert apply(state, SetQueueStates("gone", (("q", "1", "stopped"),))) == NOTHING


class TestExchanges:
    def test_the_first_declare_adds_it_and_the_second_finds_it(self, state):
        """The alternate exchange is taken from the arguments; an equivalent declare changes nothing (AB-65)."""
        wanted = exchange(arguments=table_from({"alternate-exchange": "ae"}))
        assert apply(state, DeclareExchange(wanted)) == Applied([ExchangePut(replace(wanted, alternate="ae"))], [])
        assert apply(state, DeclareExchange(wanted)) == NOTHING

    def test_refusals(self, state):
        """An unknown type, the default exchange, a reserved name and another type are refused (AB-65, AB-66)."""
        refused(state, DeclareExchange(exchange(exchange_type="odd")), 503)
        refused(state, DeclareExchange(exchange("")), 403)
        refused(state, DeclareExchange(exchange("amq.x")), 403)
        declare(state, exchange())
        refused(state, DeclareExchange(exchange(exchange_type="fanout")), 406, "inequivalent arg 'type'")
        refused(state, DeleteExchange(V, "", False), 403)
        refused(state, DeleteExchange(V, "amq.direct", False), 403)

    def test_deletion_takes_bindings_and_what_they_held(self, state):
        """An auto-delete exchange that loses its last binding goes too, after the exchange that was deleted (AB-77)."""
        up, down = exchange("up", auto_delete=True), exchange("down")
        declare(state, up, down, queue())
        link = binding("down", "up", kind="exchange")
        apply(state, Bind(V, link, MINE))
        apply(state, Bind(V, binding("q", "down"), MINE))
        refused(state, DeleteExchange(V, "down", True), 406, "in use")
        assert apply(state, DeleteExchange(V, "down", False)).changes == [
            BindingRemoved(V, binding("q", "down"), False),
            BindingRemoved(V, link, False),
            ExchangeRemoved(down),
            ExchangeRemoved(up),
        ]
        assert apply(state, DeleteExchange(V, "down", False)) == NOTHING


class TestQueues:
    def test_the_first_declare_adds_it_and_the_second_finds_it(self, state):
        """Of two declares the first in the log creates the queue; the second keeps its id (AB-87)."""
        assert apply(state, DeclareQueue(queue(), False)) == Applied([QueuePut(queue())], [StartQueue(queue())])
        assert apply(state, DeclareQueue(queue(queue_id="2"), False)) == NOTHING
        assert state.queue(V, "q").queue_id == "1"

    def test_refusals(self, state):
        """Reserved names, bad arguments, another owner, differences and unusable queues are refused."""
        refused(state, DeclareQueue(queue("amq.q"), False), 403)
        assert apply(state, DeclareQueue(queue("amq.gen-1"), True)).changes
        refused(state, DeclareQueue(queue(x_expires=0), False), 406)
        refused(state, DeclareQueue(queue("", x_queue_type="quorum"), True), 406)
        declare(state, queue(owner=MINE))
        refused(state, DeclareQueue(queue(owner=THEIRS), False), 405)
        refused(state, DeclareQueue(queue(owner=MINE, durable=True), False), 406)
        apply(state, SetQueueStates(V, (("q", "1", "crashed"),)))
        refused(state, DeclareQueue(queue(owner=MINE), False), 404, "has crashed")

    def test_deletion_names_the_queue_by_its_id(self, state):
        """A deletion that comes after the name was given to another queue changes nothing."""
        declare(state, queue(queue_id="2"))
        assert apply(state, DeleteQueue(V, "q", "1", True)) == NOTHING
        assert apply(state, DeleteQueue(V, "q", "2", False)) == Applied(
            [QueueRemoved(queue(queue_id="2"))], [EndQueue(V, "2")]
        )
        assert apply(state, DeleteQueue(V, "q", "2", True)) == NOTHING

    def test_one_whose_row_is_gone_is_ended_all_the_same(self, state):
        """A queue that crashes while it is being deleted has its row removed already. Its processes are ended all the
        same, so that it is not restarted (AB-63).
        """
        assert apply(state, DeleteQueue(V, "q", "1", False)) == Applied([], [EndQueue(V, "1")])

    def test_one_that_has_ended_need_not_be_ended(self, state):
        """A queue that ends by itself, or cannot be started, leaves the state without an effect."""
        declare(state, queue())
        assert apply(state, DeleteQueue(V, "q", "1", True)) == Applied([QueueRemoved(queue())], [])

    def test_deletion_takes_bindings_and_auto_delete_exchanges(self, state):
        """The bindings go before the queue, and exchanges that lose their last binding after it (AB-77, AB-86)."""
        declare(state, exchange(auto_delete=True), queue())
        apply(state, Bind(V, binding(), MINE))
        assert apply(state, DeleteQueue(V, "q", "1", True)).changes == [
            BindingRemoved(V, binding(), False),
            QueueRemoved(queue()),
            ExchangeRemoved(exchange(auto_delete=True)),
        ]

    def test_states(self, state):
        """Reports about a queue that has the state, and about an earlier queue of that name, change nothing (AB-63)."""
        declare(state, queue(), queue("r", "2"))
        states = (("q", "1", "stopped"), ("r", "2", "running"), ("q", "0", "crashed"), ("absent", "1", "down"))
        changed = replace(queue(), state="stopped")
        assert apply(state, SetQueueStates(V, states)) == Applied([QueuePut(changed)], [])
        assert state.queue(V, "q") == changed

    def test_each_process_of_a_queue_has_a_generation(self, state):
        """A restart gives the row a higher generation, once, and leaves another queue of that name alone (CL-10)."""
        declare(state, queue())
        apply(state, SetQueueStates(V, (("q", "1", "stopped"),)))
        again = replace(queue(), generation=1)
        assert apply(state, RestartQueue(V, "q", "1", 1)) == Applied([QueuePut(again)], [])
        assert apply(state, RestartQueue(V, "q", "1", 1)) == NOTHING
        for command in (RestartQueue(V, "q", "0", 2), RestartQueue(V, "r", "1", 2), RestartQueue("gone", "q", "1", 2)):
            assert apply(state, command) == NOTHING
        assert state.queue(V, "q") == again

    def test_an_ended_connection_declares_no_exclusive_queue(self, state, monkeypatch):
        """A declare of an exclusive queue for a connection that has ended is refused, because nothing would delete the
        queue. The ids of the latest ended connections are remembered (AB-84).
        """
        monkeypatch.setattr(state_module, "ENDED_REMEMBERED", 2)
        for connection in (MINE, "b", "c"):
            assert apply(state, EndConnection(connection)) == NOTHING
        assert apply(state, DeclareQueue(queue(owner=MINE), False)).changes
        refused(state, DeclareQueue(queue("r", owner="c"), False), 320, "has ended")
        assert apply(state, DeclareQueue(queue("r"), False)).changes

    def test_exclusive_queues_are_found_by_their_owner(self, state):
        """A connection's queues are listed until they are deleted."""
        declare(state, queue("a", "1", owner=MINE), queue("b", "2", owner=MINE), queue("c", "3", owner=THEIRS))
        assert list(state.queues_of(MINE)) == [(V, "a"), (V, "b")]
        apply(state, DeleteQueue(V, "a", "1", True))
        assert list(state.queues_of(MINE)) == [(V, "b")]
        apply(state, DeleteQueue(V, "b", "2", True))
        assert list(state.queues_of(MINE)) == []


class TestBindings:
    @pytest.mark.parametrize("ends", [(True, True), (True, False), (False, True)])
    def test_it_is_durable_if_both_ends_are(self, state, ends):
        """The second bind of the same finds the first (AB-73)."""
        declare(state, exchange(durable=ends[0]), queue(durable=ends[1]))
        assert apply(state, Bind(V, binding(), MINE)) == Applied([BindingAdded(V, binding(), all(ends))], [])
        assert apply(state, Bind(V, binding(), MINE)) == NOTHING
        assert apply(state, Unbind(V, binding(), MINE)) == Applied([BindingRemoved(V, binding(), all(ends))], [])
        assert apply(state, Unbind(V, binding(), MINE)) == NOTHING

    def test_refusals(self, state):
        """Missing ends, the default exchange and another's queue are refused."""
        refused(state, Bind(V, binding(source=""), MINE), 403)
        refused(state, Bind(V, binding(), MINE), 404, "no exchange 'x'")
        declare(state, exchange())
        refused(state, Bind(V, binding(), MINE), 404, "no queue 'q'")
        refused(state, Bind(V, binding("y", kind="exchange"), MINE), 404, "no exchange 'y'")
        declare(state, queue(owner=MINE))
        refused(state, Bind(V, binding(), THEIRS), 405)
        apply(state, Bind(V, binding(), MINE))
        refused(state, Unbind(V, binding(), THEIRS), 405)

    def test_a_bind_after_the_deletion_of_an_end_is_refused(self, state):
        """The order of the log decides: the binding that was checked before is refused where it stands."""
        declare(state, exchange(), queue())
        command = Bind(V, binding(), MINE)
        assert additions(state, command) == [BindingAdded(V, binding(), False)]
        apply(state, DeleteQueue(V, "q", "1", True))
        refused(state, command, 404, "no queue 'q'")


def test_asking_what_a_command_would_add_changes_nothing(state):
    """The log asks for what a command would add before its commit, which changes nothing; for a command that adds
    nothing the answer is None.
    """
    declare(state, exchange(), queue())
    before = repr(contents(state))
    assert additions(state, CreateVhost("other")) == [VhostAdded("other")]
    assert additions(state, DeclareQueue(queue("r"), False)) == [QueuePut(queue("r"))]
    assert additions(state, DeclareExchange(exchange("y"))) == [ExchangePut(exchange("y"))]
    assert additions(state, DeclareQueue(queue(), False)) == []
    assert additions(state, DeleteQueue(V, "q", "1", True)) == []
    with pytest.raises(AmqpError):
        additions(state, DeclareExchange(exchange("amq.y")))
    assert repr(contents(state)) == before
