"""Commands and messages as bytes: decoding gives them back, bytes of earlier versions keep their meaning, and damaged
bytes are an error.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.metadata.state import commands
from warren.actors.metadata.state.commands import (
    AddLearner,
    AddNode,
    AdmitToRing,
    Bind,
    ChangeNodes,
    ChangeUser,
    CreateVhost,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
    EnableFeatures,
    EndConnection,
    EvictFromRings,
    ForceRing,
    LoseMember,
    PutRecords,
    RemoveLearner,
    RemoveNode,
    RemoveRecords,
    ReplaceMembers,
    RestartQueue,
    SetQueueStates,
    TransferRing,
    TrimBindings,
    TrimVhost,
    Unbind,
)
from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.cluster.consensus import messages
from warren.cluster.consensus.log import Entry, Mark
from warren.cluster.consensus.membership import RaftMembers
from warren.cluster.metadata import command_codec, wire
from warren.cluster.metadata.command_codec import (
    CommandBatch,
    UnknownCommand,
    pack_batch,
    pack_command,
    unpack_batch,
    unpack_command,
)
from warren.cluster.metadata.digest import CompareDigest
from warren.definitions.records import Node, User
from warren.routing.rows import Binding, ExchangeRow, Member, QueueRow


def _loaded(path: Path) -> Any:
    """A test module of another folder, which is loaded by its path because the folders of tests are no packages."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lockstep = _loaded(Path(__file__).parents[2] / "actors" / "metadata" / "test_state_lockstep.py")
COMMANDS, BINDINGS, VHOSTS = lockstep.COMMANDS, lockstep.BINDINGS, lockstep.VHOSTS

NODES = st.builds(Node, st.sampled_from("ab"), st.text(max_size=3), features=st.just(("x", "y")))
#: Strategies for the virtual host, name and id of a queue.
WHERE = VHOSTS, st.text(max_size=3), st.text(max_size=3)
MEMBERS = st.builds(Member, st.text(max_size=3), st.text(max_size=3), st.integers(0, 2**63))
ALL_COMMANDS = st.one_of(
    COMMANDS,
    st.builds(TrimBindings, VHOSTS, st.lists(BINDINGS, max_size=2).map(tuple)),
    st.builds(TrimVhost, VHOSTS, st.lists(BINDINGS, max_size=2).map(tuple), st.just(("q",)), st.just(("x", "y"))),
    st.builds(AddNode, NODES),
    st.builds(RemoveNode, st.text()),
    st.builds(CompareDigest, st.integers(0, 2**63), st.binary(max_size=16)),
    st.builds(
        ChangeNodes,
        st.just((("a", "1"),)),
        st.lists(NODES, max_size=2).map(tuple),
        st.integers(0, 2**63),
        st.just(("a",)),
    ),
    st.builds(EnableFeatures, st.lists(st.text(), max_size=2).map(tuple)),
    st.builds(AddLearner, *WHERE, st.text(), st.text()),
    st.builds(RemoveLearner, *WHERE, MEMBERS),
    st.builds(AdmitToRing, *WHERE, st.integers(0, 2**63), MEMBERS),
    st.builds(EvictFromRings, st.lists(st.tuples(*WHERE, st.integers(0, 9))).map(tuple), st.text(), st.text()),
    st.builds(TransferRing, *WHERE, st.integers(0, 9), MEMBERS),
    st.builds(LoseMember, *WHERE, MEMBERS),
    st.builds(ForceRing, *WHERE, st.text(), st.text()),
    st.builds(ReplaceMembers, *WHERE),
)


@given(ALL_COMMANDS)
def test_commands_come_back_as_they_were(command):
    again = unpack_command(pack_command(command))
    assert again == command and type(again) is type(command)
    assert repr(again) == repr(command), "a list is no tuple"


def test_every_command_has_a_number():
    """Every command has a number on the wire; without one it could not be proposed in a cluster."""
    classes = [value for value in vars(commands).values() if isinstance(value, type) and hasattr(value, "_fields")]
    found = {each for each in classes if each.__module__ == commands.__name__}
    assert found | {CompareDigest} == set(command_codec.COMMANDS.values())


ARGUMENTS = table_from({"x-max-length": 5})
ROW = QueueRow("/", "q", None, "0f" * 16, True, arguments=ARGUMENTS, node="warren@a", replicas=("warren@a",))

#: Commands as bytes of the version that introduced them. Logs and other nodes may contain such bytes for years.
PINNED = [
    (
        "9201a12f",
        CreateVhost("/"),
    ),
    (
        "9302a12fc3",
        DeleteVhost("/", True),
    ),
    (
        "9403c7150198a12fa178a5746f706963c3c2c2d60000000000c0a4616e6e61c2",
        DeclareExchange(ExchangeRow("/", "x", "topic"), "anna"),
    ),
    (
        "9504a12fa178c3a0",
        DeleteExchange("/", "x", True),
    ),
    (
        "9505a12fc7260395a178a57175657565a171a16bc71600000000120c782d6d61782d6c656e6774684900000005a163a0",
        Bind("/", Binding.of("x", "queue", "q", "k", ARGUMENTS), "c"),
    ),
    (
        "9506a12fc7260395a178a57175657565a171a16bc71600000000120c782d6d61782d6c656e6774684900000005a163a4616e6e61",
        Unbind("/", Binding.of("x", "queue", "q", "k", ARGUMENTS), "c", "anna"),
    ),
    (
        "9307a12f91c7260395a178a57175657565a171a16bc71600000000120c782d6d61782d6c656e6774684900000005",
        TrimBindings("/", (Binding.of("x", "queue", "q", "k", ARGUMENTS),)),
    ),
    (
        "9508a12f91c7260395a178a57175657565a171a16bc71600000000120c782d6d61782d6c656e677468490000000591a17191a178",
        TrimVhost("/", (Binding.of("x", "queue", "q", "k", ARGUMENTS),), ("q",), ("x",)),
    ),
    (
        (
            "9509c76a029fa12fa171d9203066306630663066306630663066306630663066306630663066306630663066c3c2c0c71600"
            "000000120c782d6d61782d6c656e6774684900000005a7636c6173736963a772756e6e696e67c0a877617272656e406191a8"
            "77617272656e406100c000c2a090"
        ),
        DeclareQueue(ROW, False),
    ),
    (
        "960aa12fa171a23066c3a0",
        DeleteQueue("/", "q", "0f", True),
    ),
    (
        "930ba12f9193a171a23066a763726173686564",
        SetQueueStates("/", (("q", "0f", "crashed"),)),
    ),
    (
        "920ca163",
        EndConnection("c"),
    ),
    (
        "940d91c72c0595a4616e6e61a468617368be7261626269745f70617373776f72645f68617368696e675f7368613235369090c3a0",
        PutRecords((User("anna", "hash"),), True),
    ),
    (
        "940ea4616e6e619192a47461677391a178a0",
        ChangeUser("anna", (("tags", ("x",)),)),
    ),
    (
        "930f9192a5757365727391a4616e6e61a0",
        RemoveRecords((("users", ("anna",)),)),
    ),
    (
        "9210c7180b99a877617272656e4061a26964a464617461a0a09000c2a0",
        AddNode(Node("warren@a", "id")),
    ),
    (
        "9211a877617272656e4061",
        RemoveNode("warren@a"),
    ),
    (
        "95129192a877617272656e4061a13191c7190b99a877617272656e4062a26964a464617461a0a09000c2a1320090",
        ChangeNodes((("warren@a", "1"),), (Node("warren@b", "id", incarnation="2"),)),
    ),
    (
        "9513a12fa171a2306603",
        RestartQueue("/", "q", "0f", 3),
    ),
    (
        "9314cd2710c41000000000000000000000000000000000",
        CompareDigest(10_000, bytes(16)),
    ),
    (
        "931591a874656c65706f7274a4616e6e61",
        EnableFeatures(("teleport",), "anna"),
    ),
    (
        "9617a12fa171a23066a877617272656e4061a131",
        AddLearner("/", "q", "0f", "warren@a", "1"),
    ),
    (
        "9518a12fa171a23066c70d0d93a877617272656e4061a13103",
        RemoveLearner("/", "q", "0f", Member("warren@a", "1", 3)),
    ),
    (
        "9619a12fa171a2306607c70d0d93a877617272656e4061a13103",
        AdmitToRing("/", "q", "0f", 7, Member("warren@a", "1", 3)),
    ),
    (
        "941a9194a12fa171a2306607a877617272656e4061ab6e6f2070726f6772657373",
        EvictFromRings((("/", "q", "0f", 7),), "warren@a", "no progress"),
    ),
    (
        "961ba12fa171a2306607c70d0d93a877617272656e4061a13103",
        TransferRing("/", "q", "0f", 7, Member("warren@a", "1", 3)),
    ),
    (
        "951ca12fa171a23066c70d0d93a877617272656e4061a13103",
        LoseMember("/", "q", "0f", Member("warren@a", "1", 3)),
    ),
    (
        "961da12fa171a23066a877617272656e4061a4616e6e61",
        ForceRing("/", "q", "0f", "warren@a", "anna"),
    ),
    (
        "941ea12fa171a23066",
        ReplaceMembers("/", "q", "0f"),
    ),
]


def test_recorded_commands_keep_their_meaning():
    """Bytes of earlier versions decode to the same commands, and encoding these gives the same bytes."""
    for recorded, command in PINNED:
        assert unpack_command(bytes.fromhex(recorded)) == command
        assert pack_command(command).hex() == recorded


def test_a_field_that_is_added_later_has_its_default_in_older_commands():
    packed = pack_command(DeclareQueue(ROW, False, "anna", ()))
    assert packed[0] == 0x95, "an array of the number and four fields"
    older = b"\x93" + packed[1 : packed.index(b"\xa4anna")]
    assert unpack_command(older) == DeclareQueue(ROW, False)
    # Earlier versions did not record how a run was stopped.
    before = pack_command(ChangeNodes((("warren@a", "1"),)))
    assert before[0] == 0x95 and unpack_command(b"\x94" + before[1:-1]) == ChangeNodes((("warren@a", "1"),))
    newer = b"\x96" + packed[1:] + b"\x07"
    assert unpack_command(newer) == DeclareQueue(ROW, False, "anna", ())


def test_a_command_of_a_newer_version_is_named():
    with pytest.raises(UnknownCommand, match="a command of kind 100"):
        unpack_command(b"\x91\x64")


def test_arguments_that_are_no_field_table_are_refused_before_anybody_gets_them():
    with pytest.raises(AmqpError, match="arguments cannot be stored"):
        pack_command(DeclareQueue(QueueRow("/", "q", None, "1", arguments=Table([("n" * 300, "S", b"")])), False))


@given(st.text(), st.text(), st.integers(1, 2**60), st.lists(st.binary(max_size=5), max_size=3))
def test_batches_come_back_as_they_were(node, incarnation, first, commands):
    batch = CommandBatch(node, incarnation, first, commands)
    assert unpack_batch(pack_batch(batch)) == batch


@pytest.mark.parametrize(
    "data",
    [
        "05",  # a number
        "c0",  # None
        "9101",  # CreateVhost without its field
        "9180",  # a map instead of the number
        "9201c70102c0",  # None instead of the fields of a row
        "9201c7010290",  # a row without fields
    ],
)
def test_bytes_that_are_no_command(data):
    with pytest.raises(ValueError, match="these bytes are no command"):
        unpack_command(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["05", "c0", "94a161a1620105", "94a161a162c090"])
def test_bytes_that_are_no_batch(data):
    with pytest.raises(ValueError, match="these bytes are no batch of commands"):
        unpack_batch(bytes.fromhex(data))


@given(st.sampled_from([recorded for recorded, _ in PINNED]), st.data())
def test_damaged_commands_are_commands_or_an_error(recorded, data):
    packed = bytes.fromhex(recorded)
    at = data.draw(st.integers(0, len(packed) - 1))
    damaged = packed[:at] + bytes([data.draw(st.integers(0, 255))]) + packed[at + 1 :]
    try:
        unpack_command(damaged)
    except (UnknownCommand, ValueError):
        pass


# -- messages ---

NUMBERS = st.integers(0, 2**63)
TEXTS = st.sampled_from(("a", "warren@b"))
MARKS = st.builds(Mark, NUMBERS, NUMBERS, st.builds(RaftMembers, st.just(("a", "b")), st.just(("c",)), st.just(())))
ENTRIES = st.lists(st.builds(Entry, NUMBERS, NUMBERS, st.integers(0, 2), st.binary(max_size=9)), max_size=3).map(tuple)
PARTS = {"to": st.just("b"), "sender": st.just("a"), "mark": MARKS, "entries": ENTRIES}
PARTS |= {"data": st.binary(max_size=9), "batches": st.lists(st.binary(max_size=9), max_size=3).map(tuple)}
PARTS |= {name: st.booleans() for name in ("is_granted", "is_transfer", "is_accepted")}
SAID = st.one_of(
    *(st.builds(kind, **{name: PARTS.get(name, NUMBERS) for name in kind._fields}) for kind in wire.MESSAGES.values())
)


@given(st.lists(SAID, max_size=5))
def test_messages_come_back_as_they_were(said):
    again = [each for piece in wire.packed(said) for each in wire.received(piece, "a", "b")]
    assert again == said and [type(each) for each in again] == [type(each) for each in said]


def test_every_message_of_the_core_travels():
    travels = set(wire.MESSAGES.values())
    assert set(messages.ConsensusMessage.__args__) - travels == {messages.Snapshot}


def test_many_messages_travel_in_pieces_that_fit_a_frame():
    said = [messages.Append("b", "a", 1, 1, 1, (Entry(1, 1, 1, b"x" * 500_000),), 1)] * 3
    pieces = wire.packed(said)
    assert [len(piece) < 1 << 20 for piece in pieces] == [True] * 3
    assert [each for piece in pieces for each in wire.received(piece, "a", "b")] == said


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_or_an_error(data):
    try:
        wire.received(data, "a", "b")
    except wire.WireError:
        pass


@given(st.lists(SAID, min_size=1, max_size=3), st.data())
def test_damaged_messages_are_messages_or_an_error(said, data):
    [piece] = wire.packed(said)
    at = data.draw(st.integers(0, len(piece) - 1))
    damaged = piece[:at] + bytes([data.draw(st.integers(0, 255))]) + piece[at + 1 :]
    try:
        wire.received(damaged, "a", "b")
    except wire.WireError:
        pass


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x92\x02\x90", "version 2 of these messages is not known here"),
        (b"\x92\x01\x91\x63", "there is no message 99"),
        (b"\x92\x01\x91\x15", "AppliedUpTo has 1 fields, not 0"),
        (b"\x92\x01\x92\x15\xa1x", "a number was expected"),
        (b"\x92\x01\x92\x15\xff", "a number was expected that is not negative"),
        (b"\x80", "an array was expected"),
        (b"\xc1", "these bytes are not msgpack"),
        (b"", "these bytes are not msgpack"),
    ],
)
def test_what_no_node_sends_is_explained(data, text):
    with pytest.raises(wire.WireError, match=text):
        wire.received(data, "a", "b")
