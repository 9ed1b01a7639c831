"""A cluster admits a new node with the name of a lost member (CL-45)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from warren.cluster.membership import seeking
from warren.cluster.membership.member_table import MemberTable
from warren.definitions.records import Node


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
