"""A cluster admits a new node with the name of a lost member (CL-45)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from warren.actors.metadata.state.nodes import remove_node
from warren.cluster.membership import seeking
from warren.cluster.membership.member_table import MemberTable
from warren.definitions.definitions import Definitions
from warren.definitions.records import Node
from warren.runtime.errors import ProcessError


class SlowMetadata:
    """Stands for the process `Members`, with a simulated clock, and for the metadata of a cluster on a busy machine.

    The cluster takes `seconds` to remove the vote of a member. Afterwards it adds the new member.
    """

    def __init__(self, seconds: float) -> None:
        self.time = 0.0
        self.seconds = seconds
        self.added: list[object] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        assert self.time < 1_000.0, "it waits for ever"

    async def ask(self, address: object, request: tuple[object, ...], seconds: float | None = None) -> object:
        if request[0] == "consensus_status":
            return {"voters": ["warren@b"] if self.time < self.seconds else [], "learners": []}
        self.added.append(request)
        return None


def table(process: SlowMetadata) -> MemberTable:
    context = SimpleNamespace(definitions=SimpleNamespace(nodes={}), metadata="metadata")
    return MemberTable(process, context, SimpleNamespace(name="warren@a", replaces_lost=False))  # type: ignore[arg-type]


def test_a_slow_removal_of_a_vote_outlasts_the_question_of_the_new_node():
    """While the removal of the old vote takes longer than the new node waits for an answer, the question is not
    refused: the node asks again, and a refusal would end its start.
    """
    process = SlowMetadata(seeking.ADMIT_SECONDS + 5.0)
    asyncio.run(table(process).admit(Node("warren@b", "id", "data", "127.0.0.1:1")))
    assert process.time > seeking.ADMIT_SECONDS and len(process.added) == 1


def test_a_member_whose_app_is_stopped_does_not_wait_for_ever_to_replace_another_one():
    process = SlowMetadata(0.0)
    nodes = {("warren@b",): Node("warren@b", "lost", "data")}
    context = SimpleNamespace(definitions=SimpleNamespace(nodes=nodes), metadata="metadata")
    own = SimpleNamespace(name="warren@a", replaces_lost=True, incarnation="run")
    listed = MemberTable(process, context, own)  # type: ignore[arg-type]
    with pytest.raises(ProcessError, match="warren@a does not run"):
        asyncio.run(asyncio.wait_for(listed.admit(Node("warren@b", "new", "data")), 20.0))
    assert process.time > seeking.ADMIT_SECONDS, "a refusal before that would end the start of the node that asks"


class Listed:
    """Stands for the process `Members`, and for the metadata with these members, of which the node a runs."""

    def __init__(self, **roles: str) -> None:
        self.definitions = Definitions()
        for number, (name, role) in enumerate(roles.items(), 1):
            self.definitions.put(Node(name, f"{name}-id", role, number=number))

    async def ask(self, address: object, request: tuple[object, ...], seconds: float | None = None) -> object:
        for _ in remove_node(self.definitions, (), request[1]):  # type: ignore[arg-type]
            pass
        return None

    @property
    def members(self) -> list[str]:
        return [node.name for node in self.definitions.nodes.values()]


def test_a_node_that_was_forced_to_boot_removes_the_others_as_far_as_it_may():
    """A witness may be all that is left of a cluster. The last node with queues cannot be removed then, which ended
    each start of the witness.
    """
    for roles, left in (
        ({"a": "data", "b": "data", "c": "witness"}, ["a"]),
        ({"a": "witness", "b": "data", "c": "witness", "d": "data"}, ["a", "d"]),
    ):
        process = Listed(**roles)
        context = SimpleNamespace(definitions=process.definitions, metadata="metadata")
        listed = MemberTable(process, context, SimpleNamespace(name="a"))  # type: ignore[arg-type]
        asyncio.run(listed.remove_others())
        assert process.members == left
