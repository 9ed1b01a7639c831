"""Logs that earlier versions wrote, replayed: this version derives the same state from them (CL-26).

During an upgrade node by node, nodes of two versions apply the same log. If they derived different states from it, the
nodes would differ for ever. Each file of `tests/testdata/logs` has the entries of a log as they are on disks, what the
version that wrote it answered to each command, and the digest of all rows after each entry:

    entry INDEX TERM BYTES
      # the command, for people
      ok | refused: TEXT
      digest DIGEST

A file is never changed. A version with new commands or fields adds a file: write the commands below, and run the test
with WARREN_RECORD_LOG=NAME.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import msgpack
import pytest

from warren.actors.metadata.state import commands as c
from warren.actors.metadata.state.state import State
from warren.amqp.fields import table_from
from warren.cluster.consensus.log import COMMAND, EMPTY, Entry
from warren.cluster.metadata import command_codec
from warren.cluster.metadata.command_codec import CommandBatch, pack_batch, pack_command, unpack_batch, unpack_command
from warren.cluster.metadata.digest import CompareDigest
from warren.cluster.metadata.replicated_state import ReplicatedState
from warren.definitions.records import (
    EnabledFeature,
    GlobalParameter,
    Node,
    Parameter,
    Permission,
    Policy,
    TopicPermission,
    User,
    VhostProperties,
)
from warren.routing.rows import Binding, ExchangeRow, Member, QueueRow

LOGS = Path(__file__).parents[2] / "testdata" / "logs"
RECORD = os.environ.get("WARREN_RECORD_LOG")

A = Node("warren@a", "aa", address="a:25672", build="1", features=("metadata_log",), incarnation="a1")
B = Node("warren@b", "bb", address="b:25672", build="1", features=("metadata_log",), incarnation="b1")


C = replace(B, name="warren@c", node_id="cc", address="c:25672")


def mirroring(node: Node, incarnation: str | None = None) -> Node:
    """The node with a build that knows mirrored queues, and with this incarnation if one is given."""
    known = replace(node, features=("metadata_log", "mirrored_queues"))
    return known if incarnation is None else replace(known, incarnation=incarnation)


def queue(name: str, number: int, node: str = "warren@a", durable: bool = True, owner: str | None = None) -> QueueRow:
    arguments = table_from({"x-max-length": number, "x-dead-letter-exchange": "events"})
    return QueueRow(
        "/",
        name,
        None,
        f"{number:032x}",
        durable=durable,
        auto_delete=not durable,
        exclusive_owner=owner,
        arguments=arguments,
        node=node,
        replicas=(node,),
    )


def bound(name: str, source: str = "events", key: str = "k.#") -> Binding:
    return Binding.of(source, "queue", name, key, table_from({"n": 1}))


#: The commands of a log, in order. It contains every kind of command, with an effect and without one.
HISTORY = (
    c.AddNode(A),
    c.CreateVhost("too early"),
    c.ChangeNodes(up=(A,)),
    c.CreateVhost("/"),
    c.AddNode(B),
    c.EnableFeatures(("metadata_log", "unknown to b")),
    c.ChangeNodes(up=(B,), term=2),
    c.ChangeNodes(down=(("warren@b", "b1"),), term=1),
    c.EnableFeatures(("metadata_log",)),
    c.CreateVhost("other"),
    c.PutRecords((User("anna", "hash", tags=("monitoring",)), Permission("anna", "/", ".*", "^q", "")), True, "guest"),
    c.PutRecords((User("anna", "hash"),), True),
    c.PutRecords(
        (TopicPermission("anna", "/", "events", "^k", ".*"), VhostProperties("other", "text", ("x",))),
    ),
    c.PutRecords((Policy("/", "p", "^q", '{"max-length":5}', "queues", 1), GlobalParameter("cluster_name", '"c"'))),
    c.PutRecords((Parameter("/", "vhost-limits", "limits", '{"max-queues":6}'),)),
    c.ChangeUser("anna", (("limits", (("max-channels", 3),)),)),
    c.ChangeUser("nobody", (("tags", ()),)),
    c.DeclareExchange(ExchangeRow("/", "events", "topic")),
    c.DeclareExchange(ExchangeRow("/", "events", "fanout")),
    c.DeclareExchange(ExchangeRow("/", "passing", "direct", False, True)),
    c.DeclareQueue(queue("q", 1), False, "anna"),
    c.DeclareQueue(queue("q", 2), False),
    c.DeclareQueue(queue("mine", 3, "warren@b", False, "connection 1"), False),
    c.DeclareQueue(queue("amq.gen-x", 4, "warren@b"), True),
    c.DeclareQueue(queue("sharded", 5), False, "", (queue("sharded.0", 6),)),
    c.DeclareQueue(queue("transient", 7, "warren@b", False), False),
    c.DeclareQueue(queue("too many", 8), False),
    c.Bind("/", bound("q"), "connection 1"),
    c.Bind("/", bound("mine"), "connection 1"),
    c.Bind("/", bound("mine"), "connection 2"),
    c.Bind("/", bound("transient", "passing"), "connection 1"),
    c.Unbind("/", bound("q"), "connection 1"),
    c.Unbind("/", bound("q"), "connection 1"),
    c.SetQueueStates("/", (("q", f"{1:032x}", "crashed"), ("gone", "0", "stopped"))),
    c.RestartQueue("/", "q", f"{1:032x}", 1),
    c.RestartQueue("/", "q", f"{1:032x}", 1),
    c.EndConnection("connection 1"),
    c.DeclareQueue(queue("late", 9, owner="connection 1"), False),
    c.ChangeNodes(down=(("warren@b", "b1"),), term=2),
    c.SetMaintenance("warren@b", True),
    c.SetMaintenance("warren@b", True),
    c.SetMaintenance("warren@b", False),
    c.SetMaintenance("nobody", True),
    c.TrimBindings("/", (bound("q"),)),
    c.DeleteQueue("/", "q", f"{2:032x}", False),
    c.DeleteQueue("/", "q", f"{1:032x}", False, "anna"),
    c.DeleteExchange("/", "events", True),
    c.DeleteExchange("/", "passing", False),
    CompareDigest(9_999, bytes(16)),
    c.RemoveRecords((("users", ("anna",)), ("policies", ("/", "user", "p")))),
    c.RemoveNode("warren@b"),
    c.RemoveNode("warren@a"),
    c.TrimVhost("other", (), (), ("amq.direct",)),
    c.DeleteVhost("other"),
    c.DeleteVhost("never there", True),
    # Mirrored queues.
    c.ChangeNodes(up=(mirroring(A),), term=2),
    c.AddNode(mirroring(B)),
    c.AddNode(mirroring(C)),
    c.EnableFeatures(("mirrored_queues",)),
    c.PutRecords((Policy("/", "ha", "^m", '{"ha-mode":"all"}'),)),
    c.DeclareQueue(queue("m", 10), False),
    c.DeclareQueue(queue("mt", 11, durable=False), False),
    c.ChangeNodes(up=(mirroring(B, "b2"), mirroring(C, "c2")), term=2),
    c.AddLearner("/", "m", f"{10:032x}", "warren@b", "b2"),
    c.AddLearner("/", "m", f"{10:032x}", "warren@b", "b2"),
    c.AddLearner("/", "m", f"{10:032x}", "warren@c", "c2"),
    c.AdmitToRing("/", "m", f"{10:032x}", 1, Member("warren@b", "b2", 2)),
    c.AdmitToRing("/", "m", f"{10:032x}", 1, Member("warren@c", "c2", 3)),
    c.AdmitToRing("/", "m", f"{10:032x}", 2, Member("warren@c", "c2", 3)),
    c.TransferRing("/", "m", f"{10:032x}", 3, Member("warren@b", "b2", 2)),
    c.EvictFromRings((("/", "m", f"{10:032x}", 4),), "warren@a", "no progress"),
    c.LoseMember("/", "m", f"{10:032x}", Member("warren@b", "b2", 2)),
    c.LoseMember("/", "m", f"{10:032x}", Member("warren@c", "c2", 3)),
    c.AddLearner("/", "m", f"{10:032x}", "warren@a", "a1"),
    c.RemoveLearner("/", "m", f"{10:032x}", Member("warren@a", "a1", 5)),
    c.ForceRing("/", "m", f"{10:032x}", "warren@a", "anna"),
    c.PutRecords((Policy("/", "ha", "^m", '{"ha-mode":"exactly","ha-params":2}'),)),
    c.ReplaceMembers("/", "m", f"{10:032x}"),
    c.PutRecords((Policy("/", "ha", "^m", '{"ha-mode":"nodes","ha-params":["warren@c","warren@b"]}'),)),
    c.DeclareQueue(queue("m3", 12), False),
    c.ChangeNodes(down=(("warren@b", "b2"), ("warren@c", "c2")), term=2),
    c.ChangeNodes(up=(mirroring(C, "c3"),), term=2),
    c.RemoveNode("warren@b"),
    c.RemoveRecords((("policies", ("/", "user", "ha")),)),
)


def entries() -> Iterator[Entry]:
    """`HISTORY` as entries that this version writes. The last command comes twice, as if it had been proposed again."""
    yield Entry(1, 1, EMPTY, b"")
    batches = [CommandBatch("warren@a", "a1", number, [pack_command(each)]) for number, each in enumerate(HISTORY, 1)]
    for index, batch in enumerate([*batches, batches[-1]], 2):
        yield Entry(index, 1 if index < 5 else 2, COMMAND, pack_batch(batch))


def replay(log: Iterator[Entry]) -> list[str]:
    """Apply the log, and return it with this version's results, in the form of the files."""
    outcomes: list[str] = []

    def report(proposer: object, serial: int, index: int, outcome: object) -> None:
        error = outcome.error
        outcomes.append("  ok" if error is None else f"  refused: {error}")

    replicated = ReplicatedState(State(), lambda *shown: None, report)
    lines = []
    for entry in log:
        lines.append(f"entry {entry.index} {entry.term} {entry.data.hex()}")
        if entry.kind == COMMAND:
            lines += [f"  # {unpack_command(each)!r}" for each in unpack_batch(entry.data).commands]
        for _ in replicated.apply(entry):
            pass
        lines += outcomes
        outcomes.clear()
        lines.append(f"  digest {digest_of(replicated)}")
    return lines


def digest_of(replicated: ReplicatedState) -> str:
    rows = sorted(msgpack.packb(list(row), unicode_errors="surrogateescape") for row in replicated.rows())
    return blake2b(b"".join(rows), digest_size=16).hexdigest()


def recorded(path: Path) -> Iterator[Entry]:
    for line in path.read_text().splitlines():
        if line.startswith("entry "):
            _, index, term, *data = line.split(" ")
            yield Entry(int(index), int(term), COMMAND if data[0] else EMPTY, bytes.fromhex(data[0]))


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_log_of_an_earlier_version_leads_to_the_same_state(path):
    # The lines with commands for people are not compared, because later versions may show more fields.
    replayed, written = replay(recorded(path)), path.read_text().splitlines()
    assert [line for line in replayed if "#" not in line] == [line for line in written if "#" not in line]


def test_the_recorded_logs_have_every_command_and_every_record():
    if RECORD is not None:
        path = LOGS / f"{RECORD}.txt"
        assert not path.exists(), "a recorded log is never changed"
        path.write_text("\n".join([*replay(entries()), ""]))
    found = [
        unpack_command(each)
        for path in LOGS.glob("*.txt")
        for entry in recorded(path)
        if entry.kind == COMMAND
        for each in unpack_batch(entry.data).commands
    ]
    assert {type(each) for each in found} == set(command_codec.COMMANDS.values())
    assert {Member} <= {type(field) for each in found for field in each}
    put = {type(record) for each in found if isinstance(each, c.PutRecords) for record in each.records}
    assert put | {Node, EnabledFeature, ExchangeRow, QueueRow, Binding, Member} == set(command_codec.VALUES.values())
