"""Stubs of replicas and their supervisors, which record the messages that they get, and a cluster with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from warren.actors.context.peers import REPLICAS
from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.state.commands import (
    AdmitToRing,
    ChangeNodes,
    EnableFeatures,
    PutRecords,
)
from warren.amqp.errors import AmqpError
from warren.definitions.features import MIRRORED_QUEUES
from warren.definitions.records import Policy
from warren.routing.rows import QueueRow
from warren.runtime.errors import ProcessDown
from warren.runtime.exit_reason import ExitKind, ExitReason
from warren.runtime.process import Process
from warren.runtime.system.address import node_of, system_of

from .group import Group, Member, V


class Replica(Process):
    """Stands for a replica, and records what it is told of its group. It fails to come to rest the next
    `busy` times.
    """

    reply_errors = (AmqpError,)

    def __init__(self):
        super().__init__()
        self.told: list[Any] = []
        self.busy = 0

    def on_begin(self, sender, row):
        self.told.append(row)
        if row.group is not None:
            member = row.group.member_on(node_of(system_of(self.myAddress)))
            self.register(f"{REPLICAS}/{row.queue_id}/{member.generation}")
        return True

    def on_group_changed(self, sender, row):
        self.told.append(row)

    def on_node_met(self, sender, node):
        """Ignored: a link was made."""

    def on_quiesce(self, sender):
        self.told.append("quiesce")
        if self.busy:
            self.busy -= 1
            raise AmqpError(406, "too busy")
        return next(row.group.epoch for row in reversed(self.told) if isinstance(row, QueueRow))

    def on_standing(self, sender):
        return 0, 0, 0

    def on_go_on(self, sender):
        self.told.append("go on")

    def on_apply_settings(self, sender, settings):
        return True

    def on_delete(self, sender, if_unused, if_empty):
        self.stop()
        return 0


class Supervisor(Process):
    """Starts and ends stubs of replicas. The replicas of the queues in `fails` cannot be started, and a replica takes
    `end_seconds` to end.
    """

    def on_begin(self, sender):
        self.queues: dict[str, Any] = {}
        self.calls: list[Any] = []
        self.fails: set[str] = set()
        self.end_seconds = 0.0
        return True

    async def _begun(self, row):
        self.queues[row.queue_id] = self.createActor(Replica)
        await self.ask(self.queues[row.queue_id], ("begin", row))
        return row.at(self.queues[row.queue_id])

    async def on_start_queue(self, sender, row):
        return await self._begun(row)

    async def on_start_replica(self, sender, row, from_disk):
        self.calls.append(("start", row.name, from_disk))
        if row.name in self.fails:
            raise ProcessDown(ExitReason(ExitKind.CRASH, "its disk is full"))
        return await self._begun(row)

    async def on_end_replica(self, sender, queue_id, keeps_files):
        self.calls.append(("end", queue_id, keeps_files))
        self.queues.pop(queue_id, None)
        if self.end_seconds:
            await self.sleep(self.end_seconds)
        return True

    def on_mirror_queue(self, sender, row):
        self.calls.append(("mirror", row.name, row.group is not None))

    async def on_restart_queue(self, sender, row):
        if row.queue_id not in self.queues:
            self.calls.append(("restart", row.name))
            at = (await self._begun(row)).address
            self.send(sender, to_metadata.queue_restarted(row.vhost, row.name, row.queue_id, at))

    def on_forget_queue(self, sender, queue_id):
        self.calls.append(("forget", queue_id))
        self.queues.pop(queue_id, None)
        return True

    def on_recovered(self, sender):
        """Ignored: all rows of the virtual host are there."""


class Mirrored:
    """The nodes a, b and c, with a policy that mirrors queues."""

    def __init__(self, group: Group) -> None:
        self.group = group
        runs = tuple(replace(member.run_of(), features=(MIRRORED_QUEUES,)) for member in group.members)
        for command in (ChangeNodes(up=runs), EnableFeatures((MIRRORED_QUEUES,))):
            group.members[0].ask(to_metadata.change_definitions(command))

    def policy(self, definition: str) -> None:
        self.group.wait_for_leader().ask(
            to_metadata.change_definitions(PutRecords((Policy(V, "ha", "^q", definition),)))
        )

    def cell(self, member: Member, address: Any) -> Any:
        return member.machine.base.cells[address.actorAddressString].actor

    def supervisor(self, member: Member) -> Supervisor:
        return self.cell(member, member.process.changing.supervisors[V])

    def replica(self, member: Member, name: str = "q") -> Replica | None:
        """The process of the replica on this node, or None."""
        queue_id = self.row(member, name).queue_id
        address = self.supervisor(member).queues.get(queue_id)
        return None if address is None else self.cell(member, address)

    def row(self, member: Member, name: str = "q") -> Any:
        return member.process.state.queue(V, name)

    def names(self, members: Any) -> list[str]:
        return [each.node for each in members]

    def ring(self, name: str = "q") -> list[str]:
        return self.names(self.row(self.group.running()[0], name).group.ring)

    def learners(self, name: str = "q") -> list[str]:
        return self.names(self.row(self.group.running()[0], name).group.learners)

    def member(self, node: str) -> Member:
        return next(each for each in self.group.members if each.name == node)

    def are_settled(self) -> bool:
        """Whether every node runs the replica that its state lists there, and that replica knows the latest row."""
        for member in self.group.running():
            row = self.row(member)
            if row is None:
                return False
            mine = row.group.member_on(member.name)
            if mine is None and member.name in row.group.wanted:
                return False
            replica = self.replica(member)
            if (mine is None) != (replica is None) or replica is not None and replica.told[-1:] != [row]:
                return False
        return self.group.are_level()

    def settle(self) -> None:
        self.group.until(self.are_settled)
        self.check_addresses()

    def check_addresses(self) -> None:
        """Assert that all nodes give the queue the address of its master's process."""
        running = self.group.running()
        row = self.row(running[0])
        master = self.member(row.node)
        own = self.supervisor(master).queues[row.queue_id]
        for member in running:
            shown = member.routing.queue(V, "q")
            if member is master:
                assert shown.address == own
                assert member.process.changing.elsewhere.find(f"{row.queue_id}/{row.generation}") == own
            else:
                assert shown.address.actorAddressString.endswith(f"/q/{row.queue_id}/{row.generation}")
                assert shown.address.actorAddressString.startswith(f"{master.name}-{master.incarnation}/")
                assert member.process.changing.elsewhere.find(f"{row.queue_id}/{row.generation}") is None

    def admit(self, *members: Member) -> None:
        for member in members:
            row = self.row(member)
            command = AdmitToRing(V, "q", row.queue_id, row.group.epoch, row.group.member_on(member.name))
            assert member.ask(to_metadata.change_definitions(command)) == 1
            assert self.row(member).group.epoch == row.group.epoch + 1
            self.group.wait_until_level()

    def take_down(self, member: Member) -> None:
        incarnation = member.incarnation
        member.kill()
        leader = self.group.wait_for_leader()
        leader.ask(to_metadata.change_definitions(ChangeNodes(down=((member.name, incarnation),))))
