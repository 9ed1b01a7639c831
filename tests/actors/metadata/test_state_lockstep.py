"""States that apply the same commands stay equal, also one that was made in the middle from the stored rows of another.

A node that starts from a snapshot, and a copy on another node, must get the same changes, effects and refusals, with
their texts, as the first one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.metadata.log.row_encoding import row_change, stored_rows
from warren.actors.metadata.recovery import fill
from warren.actors.metadata.state.commands import (
    Bind,
    ChangeUser,
    CreateVhost,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
    EndConnection,
    PutRecords,
    RemoveRecords,
    RestartQueue,
    SetQueueStates,
    TrimBindings,
    TrimVhost,
    Unbind,
)
from warren.actors.metadata.state.state import State, additions, apply
from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.definitions.changes import RecordPut
from warren.definitions.errors import DefinitionError
from warren.definitions.records import (
    GlobalParameter,
    Parameter,
    Permission,
    Policy,
    Record,
    TopicPermission,
    User,
    VhostProperties,
)
from warren.routing.changes import BindingAdded, ExchangePut, QueuePut, VhostAdded
from warren.routing.rows import Binding, ExchangeRow, QueueRow
from warren.routing.shards import new_shards, shard_name
from warren.routing.vhost_rows import DEFAULT_EXCHANGES
from warren.store.data_dir.metadata_store import TABLES, Row

# There are few names, so that commands meet what earlier ones left.
VHOSTS = st.sampled_from(("/",) * 9 + ("other",))
NAMES = st.sampled_from(("a", "a", "a", "b", "b", "b", "a_0"))
SOURCES = st.sampled_from(("a", "a", "b", "b", "amq.topic", ""))
CONNECTIONS = st.sampled_from(("one", "two"))
IDS = st.sampled_from(tuple(f"{number:032x}" for number in range(3)))
ARGUMENTS = st.sampled_from(
    (Table(), Table(), table_from({"x-max-length": 5}), table_from({"alternate-exchange": "b", "n": [1, 2.5, None]}))
)
BINDING_ARGUMENTS = st.sampled_from((Table(), Table(), table_from({"x-match": "any", "n": 1})))
BINDINGS = st.builds(
    Binding.of, SOURCES, st.sampled_from(("queue", "exchange")), NAMES, st.sampled_from(("", "k")), BINDING_ARGUMENTS
)


def _key(record: Record) -> object:
    return record.table, record.key


@st.composite
def queue_rows(draw: st.DrawFn) -> QueueRow:
    owner = draw(st.sampled_from((None, None, "one", "two")))
    durable = owner is None and draw(st.booleans())
    node = draw(st.sampled_from(("n1", "n2")))
    return QueueRow(
        draw(VHOSTS),
        draw(NAMES),
        None,
        draw(IDS),
        durable,
        draw(st.booleans()),
        owner,
        draw(ARGUMENTS),
        node=node,
        replicas=draw(st.sampled_from(((node,), (node, "n3")))),
    )


@st.composite
def declares(draw: st.DrawFn, server_named: st.SearchStrategy[bool]) -> DeclareQueue:
    row = draw(queue_rows())
    if draw(st.integers(0, 3)):
        return DeclareQueue(row, draw(server_named))
    row = replace(row, arguments=table_from({"x-warren-shards": 2}), shards=2)
    return DeclareQueue(row, draw(server_named), shards=new_shards(row, [f"{at}{row.queue_id[1:]}" for at in "ef"]))


EXCHANGE_ROWS = st.builds(
    ExchangeRow,
    VHOSTS,
    st.sampled_from(("a", "a", "a", "b", "b", "b", "amq.topic")),
    st.sampled_from(("direct", "fanout", "fanout", "fanout", "odd")),
    st.booleans(),
    st.booleans(),
    st.just(False),
    ARGUMENTS,
)
USERS = st.sampled_from(("anna", "ben"))
TEXTS = st.sampled_from(("", "a", ".*"))
RECORDS = st.one_of(
    st.builds(User, USERS, TEXTS, tags=st.sampled_from(((), ("administrator",)))),
    st.builds(User, USERS, TEXTS, limits=st.sampled_from(((), (("max-channels", 3),)))),
    st.builds(Permission, USERS, VHOSTS, TEXTS, TEXTS, TEXTS),
    st.builds(TopicPermission, USERS, VHOSTS, NAMES, TEXTS, TEXTS),
    st.builds(Parameter, VHOSTS, st.just("shovel"), NAMES, st.sampled_from(("1", '{"a":[]}'))),
    st.builds(
        Parameter,
        VHOSTS,
        st.just("vhost-limits"),
        st.just("limits"),
        st.sampled_from(('{"max-queues":1}', '{"max-queues":-1}')),
    ),
    st.builds(GlobalParameter, NAMES, st.sampled_from(("1", '"x"'))),
    st.builds(Policy, VHOSTS, NAMES, TEXTS, st.just('{"max-length":1}'), priority=st.integers(0, 1)),
    st.builds(VhostProperties, VHOSTS, TEXTS),
)
KEYS = RECORDS.map(lambda record: (record.table, record.key))
DEFINITIONS = st.one_of(
    st.builds(PutRecords, st.lists(RECORDS, min_size=1, max_size=3, unique_by=_key).map(tuple), st.booleans()),
    st.builds(PutRecords, RECORDS.map(lambda record: (record,))),
    st.builds(ChangeUser, USERS, st.sampled_from(((("tags", ("x",)),), (("password_hash", ""),)))),
    st.builds(RemoveRecords, st.lists(KEYS, min_size=1, max_size=2).map(tuple)),
)
STATES = st.tuples(NAMES, IDS, st.sampled_from(("running", "crashed", "stopped", "down")))
COMMANDS = st.one_of(
    st.builds(Bind, VHOSTS, BINDINGS, CONNECTIONS),
    st.builds(Bind, VHOSTS, BINDINGS, CONNECTIONS),
    st.builds(Bind, VHOSTS, BINDINGS, CONNECTIONS),
    st.builds(DeclareExchange, EXCHANGE_ROWS),
    st.builds(DeclareExchange, EXCHANGE_ROWS),
    declares(st.booleans()),
    declares(st.booleans()),
    st.builds(Unbind, VHOSTS, BINDINGS, CONNECTIONS),
    st.builds(DeleteQueue, VHOSTS, NAMES, IDS, st.booleans()),
    st.builds(DeleteExchange, VHOSTS, NAMES, st.booleans()),
    st.builds(SetQueueStates, VHOSTS, st.lists(STATES, max_size=3).map(tuple)),
    st.builds(RestartQueue, VHOSTS, NAMES, IDS, st.integers(1, 3)),
    DEFINITIONS,
    DEFINITIONS,
    st.one_of(
        st.builds(CreateVhost, VHOSTS),
        st.builds(DeleteVhost, st.sampled_from(("other", "other", "/")), st.booleans()),
        st.builds(EndConnection, CONNECTIONS),
    ),
)
#: The commands that empty what is about to be deleted. They may leave a logical queue without its shards.
TRIMS = st.one_of(
    st.builds(TrimBindings, VHOSTS, st.lists(BINDINGS, max_size=4).map(tuple)),
    st.builds(
        TrimVhost,
        VHOSTS,
        st.lists(BINDINGS, max_size=2).map(tuple),
        st.lists(NAMES, max_size=2).map(tuple),
        st.lists(NAMES, max_size=1).map(tuple),
    ),
)


def sequences(commands: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Sequences of commands. Each begins with exchanges and queues, so that the first bindings are made early."""
    return st.tuples(
        st.lists(st.builds(DeclareExchange, EXCHANGE_ROWS), min_size=2, max_size=6),
        st.lists(declares(st.just(True)), min_size=1, max_size=4),
        st.lists(commands, min_size=10, max_size=60),
    ).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


SEQUENCES = sequences(COMMANDS)


def outcome(state: State, command) -> object:
    """The outcome of the command, with the types of changes and effects, because equal tuples of different types
    compare as equal.

    The bindings that go with one end may be in any order, because a store returns them in its own.
    """
    try:
        changes, effects = apply(state, command)
        return sorted(map(repr, changes)), repr(effects)
    except AmqpError as error:
        return error.code, error.text
    except DefinitionError as error:
        return 0, error.kind, error.text


def snapshot(state: State) -> dict[str, list[Row]]:
    """The rows of the state, transient ones included, as the tables of a store.

    A store returns its rows in the order of the digests of their keys, so a node that starts has them in another order
    than one that runs. Here they come in the opposite order, and nothing that follows from a command may depend on it.
    """
    system = {name for name, _, _ in DEFAULT_EXCHANGES}
    changes: list[object] = [VhostAdded(name) for name in state.vhosts]
    changes += [RecordPut(record) for record in state.definitions.all()]
    for rows in state.vhosts.values():
        changes += [ExchangePut(row) for row in rows.exchanges.values() if row.name not in system]
        changes += [QueuePut(row) for row in rows.queues.values()]
        changes += [BindingAdded(rows.vhost, *each) for each in rows.bindings()]
    tables: dict[str, dict[object, Row]] = {table: {} for table in TABLES}
    for change in changes:
        table, key, fields = row_change(change)  # type: ignore[arg-type]
        assert fields is not None
        tables[table][key] = Row(key, fields)
    return {table: list(reversed(rows.values())) for table, rows in tables.items()}


def restored(state: State) -> State:
    copy = State()
    found = stored_rows(snapshot(state))
    assert not found.stale
    fill(copy, found)
    copy.ended_connections.update(state.ended_connections)
    return copy


def contents(state: State) -> object:
    """All rows, in a comparable order, because a store returns them in its own."""
    return (
        {
            rows.vhost: (
                rows.exchanges,
                rows.queues,
                {owner: set(names) for owner, names in rows.by_owner.items()},
                {source: dict(bindings) for source, bindings in rows._by_source.items()},
                {target: dict(bindings) for target, bindings in rows._by_destination.items()},
            )
            for rows in state.vhosts.values()
        },
        state.definitions.tables,
        list(state.ended_connections),
    )


@given(commands=sequences(st.one_of(COMMANDS, COMMANDS, COMMANDS, TRIMS)), cut=st.integers(5, 69))
@settings(max_examples=150, deadline=None)
def test_states_that_apply_the_same_commands_stay_equal(commands, cut):
    """Two states that apply the same commands stay equal, and so does a third, which is made in the middle from the
    stored rows of the first.
    """
    first, second = State(), State()
    for state in (first, second):
        apply(state, CreateVhost("/"))
    third = None
    for number, command in enumerate(commands):
        if number == cut % len(commands):
            third = restored(first)
            assert contents(third) == contents(first)
        found = outcome(first, command)
        assert outcome(second, command) == found
        if third is not None:
            assert outcome(third, command) == found
    for state in (second, third):
        assert state is None or contents(state) == contents(first)


@given(commands=SEQUENCES)
@settings(max_examples=100, deadline=None)
def test_what_a_command_would_add_is_what_it_adds(commands):
    """`additions` returns what the command adds: the log writes that to the disk before it applies the command."""
    state = State()
    apply(state, CreateVhost("/"))
    for command in commands:
        before = repr(contents(state))
        try:
            changes, refusal = additions(state, command), None
        except AmqpError as error:
            changes, refusal = [], (error.code, error.text)
        except DefinitionError as error:
            changes, refusal = [], (0, error.kind, error.text)
        assert repr(contents(state)) == before
        found = outcome(state, command)
        if refusal is not None:
            assert found == refusal
        elif changes:
            assert found[0] == sorted(map(repr, changes))
        if isinstance(found[0], int):
            assert repr(contents(state)) == before, "a refused command changed the state"


@given(commands=SEQUENCES)
@settings(max_examples=100, deadline=None)
def test_no_binding_outlives_its_ends(commands):
    """Each binding has its ends and is found from both, each durable binding has durable ends, and each owner has a
    queue.
    """
    state = State()
    apply(state, CreateVhost("/"))
    for command in commands:
        outcome(state, command)
    for rows in state.vhosts.values():
        bindings = dict(rows.bindings())
        for binding, durable in bindings.items():
            ends = rows.queues if binding.kind == "queue" else rows.exchanges
            assert durable == (rows.exchanges[binding.source].durable and ends[binding.destination].durable)
        found = {each: durable for group in rows._by_destination.values() for each, durable in group.items()}
        assert found == bindings
        assert all(rows._by_source.values()) and all(rows._by_destination.values())
        owned = {name: owner for owner, names in rows.by_owner.items() for name in names}
        whole = {row.name: row for row in rows.queues.values() if row.shard_of is None}
        assert owned == {name: row.exclusive_owner for name, row in whole.items() if row.exclusive_owner}
        shards = {row.name: row.shard_of for row in rows.queues.values() if row.shard_of is not None}
        wanted = {shard_name(row.name, at): row.name for row in whole.values() for at in range(row.shards)}
        assert shards == wanted and rows.shard_count == len(shards)


@given(commands=SEQUENCES)
@settings(max_examples=100, deadline=None)
def test_no_record_outlives_its_user_or_virtual_host(commands):
    state = State()
    apply(state, CreateVhost("/"))
    for command in commands:
        outcome(state, command)
    definitions = state.definitions
    for record in definitions.all():
        assert definitions.record(record.table, record.key) is record
        if isinstance(record, (Permission, TopicPermission)):
            assert definitions.user(record.user) is not None
        if isinstance(record, (Permission, TopicPermission, Parameter, Policy)):
            assert record.vhost in state.vhosts
    limits = definitions.parameters.get(("/", "vhost-limits", "limits"))
    assert definitions.vhost_limit("/", "max-queues") == (1 if limits and "-1" not in limits.value else None)
