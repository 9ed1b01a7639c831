"""Groups: which members have the messages of a mirrored queue, and how commands change that (CL-28, CL-29, CL-42 ff.).

A queue has a group if its type or a policy asks for replicas (`replica_rules`), and the nodes of the cluster have the
feature for it. The ring of a group has the members that must have a message before it is confirmed, and its learners
are those that still copy the messages. `declared` and `fitted` make groups and have them follow policies and nodes, and
the functions below them change the ring. Each change of a ring raises its epoch by one. A member that leaves a ring
never comes back: its node makes another one.

When a policy wants other nodes, the members that it no longer wants leave only after all wanted nodes that run are in
the ring, so that a change never lowers the number of replicas (CL-92). A master that shall be elsewhere is moved by a
command of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from ....definitions.definitions import Definitions
from ....routing.changes import Change, QueuePut
from ....routing.rows import Member, MirrorGroup, QueueRow, QueueState
from ....routing.vhost_rows import VhostRows
from .commands import (
    AddLearner,
    AdmitToRing,
    EvictFromRings,
    ForceRing,
    LoseMember,
    RemoveLearner,
    ReplaceMembers,
    TransferRing,
)
from .placement import Mode, suggested
from .replica_rules import may_mirror, mode_of, promotes_always

T = TypeVar("T")

#: How many nodes that left a ring are remembered, and how many times a ring was forced.
REMEMBERED = 8

#: A slice of a command on very many queues ends after so many changes, or after a look at so many queues. A change
#: takes 30 µs, what Metadata does because of it as long again, and a look up to 20 µs.
SLICE_CHANGES, SLICE_LOOKS = 32, 64


# -- reading ---


def is_live(definitions: Definitions, member: Member) -> bool:
    """Whether the run of the node in which the member was made goes on."""
    node = definitions.node(member.node)
    return node is not None and bool(node.incarnation) and node.incarnation == member.incarnation


def has_live_ring(definitions: Definitions, group: MirrorGroup) -> bool:
    """Whether a member with all messages runs."""
    return any(is_live(definitions, member) for member in group.ring)


def keeps_files(group: MirrorGroup | None, node: str) -> bool:
    """Whether this node keeps what it has on the disk of the queue while it has no replica that runs: it is wanted, or
    it has left the ring while it had everything.
    """
    return group is not None and (
        node in group.wanted or group.member_on(node) is not None or any(name == node for name, _ in group.was)
    )


def _running(definitions: Definitions) -> list[str]:
    """The nodes that may have replicas now, in the order in which they became members.

    The order of the records differs from node to node: a node that starts reads them from its disk in another order
    than that in which they were made.
    """
    nodes = sorted(definitions.nodes.values(), key=lambda node: (node.number, node.name))
    return [node.name for node in nodes if node.incarnation and node.role == "data"]


def _incarnation(definitions: Definitions, name: str) -> str:
    node = definitions.node(name)
    return "" if node is None else node.incarnation


def is_running(definitions: Definitions, name: str) -> bool:
    """Whether the node is a member that runs."""
    return bool(_incarnation(definitions, name))


# -- making a group, and having it follow policy and nodes ---


def declared(definitions: Definitions, row: QueueRow) -> QueueRow:
    """The row of a new queue, with a group if a policy mirrors it.

    The queue is empty, so all its members are in sync at once (MQ-23), and the master is where the policy wants it.
    """
    mode = mode_of(definitions, row) if may_mirror(definitions) else None
    running = _running(definitions)
    if mode is None or not running:
        return row
    home = row.node if row.node in running else running[0]
    nodes = suggested(mode, row.queue_id, home, (), (), running)
    nodes = suggested(mode, row.queue_id, home, nodes[1:], nodes[1:], running)
    ring = tuple(Member(node, _incarnation(definitions, node), number) for number, node in enumerate(nodes, 1))
    return _with(row, MirrorGroup(ring, wanted=nodes, members=len(ring)))


def fitted(definitions: Definitions, row: QueueRow, started: Collection[str] | None = None) -> QueueRow:
    """The row with the group that policy and nodes ask for.

    `started` has the nodes that have just begun to run. Of the nodes that the group does not have or want yet, only
    these may be chosen; with None, all that run.
    """
    mode = mode_of(definitions, row) if may_mirror(definitions) else None
    group = row.group
    if mode is None:
        return row if group is None else _with(row, None)
    if group is None:
        if not _incarnation(definitions, row.node):
            return row  # it gets one when its home runs again
        group = MirrorGroup((Member(row.node, _incarnation(definitions, row.node), 1),), wanted=(row.node,))
        started = None
    if has_live_ring(definitions, group):
        group = _rewanted(definitions, row, group, mode, started)
    return _with(row, group)


def _rewanted(
    definitions: Definitions, row: QueueRow, group: MirrorGroup, mode: Mode, started: Collection[str] | None
) -> MirrorGroup:
    live = [member.node for member in group.everyone if is_live(definitions, member)]
    running = _running(definitions)
    if started is not None:
        known = {*live, *group.wanted, *started}
        running = [node for node in running if node in known]
    master = group.master.node
    mirrors = dict.fromkeys(node for node in (*live, *group.wanted) if node != master)
    synced = [member.node for member in group.ring[1:] if is_live(definitions, member)]
    nodes = suggested(mode, row.queue_id, master, tuple(mirrors), synced, [*running, master])
    return _without_surplus(definitions, group if nodes == group.wanted else replace(group, wanted=nodes))


def _without_surplus(definitions: Definitions, group: MirrorGroup) -> MirrorGroup:
    """The group without the members that are not wanted, if the wanted ones that run have everything (CL-92)."""
    surplus = [member for member in group.everyone if member.node not in group.wanted]
    there = {member.node for member in group.ring}
    missing = [node for node in group.wanted if node not in there and _incarnation(definitions, node)]
    if not surplus or missing:
        return group
    gone = {member for member in surplus if member != group.master}
    learners = [each for each in group.learners if each not in gone]
    left = _with_ring(group, [each for each in group.ring if each not in gone], learners)
    # These members delete what they have on the disk, so no operator can fall back on them.
    return replace(left, was=tuple(each for each in left.was if each[0] in group.wanted))


# -- changes of a ring ---


def _with_ring(group: MirrorGroup, ring: Iterable[Member], learners: Iterable[Member] | None = None) -> MirrorGroup:
    """The group with this ring, at the next epoch if the ring differs from the present one."""
    members = tuple(ring)
    following = group.learners if learners is None else tuple(learners)
    if members == group.ring:
        return group if following == group.learners else replace(group, learners=following)
    epoch = group.epoch + 1
    there = {member.node for member in members}
    left = tuple((member.node, epoch) for member in group.ring if member.node not in there)
    names = {*there, *(node for node, _ in left)}
    return replace(
        group,
        ring=members,
        learners=following,
        epoch=epoch,
        reign=group.reign if members[0] == group.ring[0] else epoch,
        was=(*(each for each in group.was if each[0] not in names), *left)[-REMEMBERED:],
        evicted=tuple(each for each in group.evicted if each[0] not in there),
    )


def _with(row: QueueRow, group: MirrorGroup | None, state: QueueState | None = None) -> QueueRow:
    """The row with this group, and with the fields that follow from it: home, replicas, and for a new master the
    generation of its process.
    """
    if group is None:
        return replace(row, group=None, replicas=(row.node,))
    before = row.group
    if group is before and state in (None, row.state):
        # A copy would take longer than all else, and most groups stay as they are when nodes or policies change.
        return row
    is_moved = before is not None and before.master != group.master
    return replace(
        row,
        node=group.master.node,
        replicas=tuple(dict.fromkeys(member.node for member in group.everyone)),
        generation=row.generation + is_moved,
        state=("running" if is_moved else row.state) if state is None else state,
        group=group,
    )


def _made(definitions: Definitions, group: MirrorGroup, node: str) -> tuple[MirrorGroup, Member]:
    """The next member of the group, on this node, and the group that has counted it."""
    generation = group.members + 1
    return replace(group, members=generation), Member(node, _incarnation(definitions, node), generation)


def _without(
    definitions: Definitions, row: QueueRow, lost: Callable[[Member], bool], stopped: Collection[str] = ()
) -> QueueRow | None:
    """The row after these members are lost; None if the queue goes with them. `stopped` has the nodes that were stopped
    in order.

    A ring that would have no member left stays as it is: any of its nodes may bring the queue back from its disk. A
    queue that is not durable is on no disk (CL-44).
    """
    group = row.group
    assert group is not None
    ring = [member for member in group.ring if not lost(member) and is_live(definitions, member)]
    learners = [member for member in group.learners if not lost(member)]
    if ring:
        stays = [member for member in group.ring if not lost(member)]
        return _with(row, _with_ring(group, stays, learners))
    last = [member.node for member in group.ring if is_live(definitions, member) or lost(member)]
    if learners and promotes_always(definitions, row, bool(last) and {*last} <= {*stopped}):
        return _with(row, _with_ring(group, learners[:1], learners[1:]))
    if not row.durable:
        return None
    return _with(row, replace(group, learners=tuple(learners)), "down")


# -- nodes ---


def in_slices(queues: Iterable[T], change: Callable[[T], list[Change]]) -> Iterator[list[Change]]:
    """The changes that `change` makes because of each queue, in slices: other processes have turns between them, and
    each queue changes whole (CL-36).
    """
    changes: list[Change] = []
    looks = 0
    for queue in list(queues):
        changes += change(queue)
        looks += 1
        if looks >= SLICE_LOOKS or len(changes) >= SLICE_CHANGES:
            yield changes
            changes, looks = [], 0
    yield changes


def nodes_gone(
    definitions: Definitions, rows: VhostRows, gone: Collection[str], stopped: Collection[str] = ()
) -> Iterator[list[Change]]:
    """What changes because the runs of these nodes have ended: their members leave the groups (CL-42). `stopped` has
    the nodes whose runs ended in order.
    """

    def leave(row: QueueRow) -> list[Change]:
        if row.group is None or not any(member.node in gone for member in row.group.everyone):
            return []
        left = _without(definitions, row, lambda member: member.node in gone, stopped)
        if left is None:
            return rows.remove_queue(row.name)
        return _put(rows, row, left if left.state == "down" else fitted(definitions, left, ()))

    return in_slices(rows.queues.values(), leave)


def nodes_up(definitions: Definitions, rows: VhostRows, started: Collection[str]) -> Iterator[list[Change]]:
    """What changes because these nodes run: queues without a live member come back there, and get replicas there
    (CL-42, CL-44).
    """

    def come_back(row: QueueRow) -> list[Change]:
        now = row if row.group is None else _resurrected(definitions, row, row.group)
        return _put(rows, row, fitted(definitions, now, started))

    return in_slices(rows.queues.values(), come_back)


def _resurrected(definitions: Definitions, row: QueueRow, group: MirrorGroup) -> QueueRow:
    """If no member of the ring lives, the row with a ring of one new member, on the node of the first old member whose
    node runs again.

    The run of a node may be declared down before it has learned that it was up, and then up again. Its members live
    then, and the queue goes on with them.
    """
    live = [member for member in group.ring if is_live(definitions, member)]
    if live:
        return row if row.state != "down" else _with(row, _with_ring(group, live), "running")
    nodes = dict.fromkeys(member.node for member in group.ring)
    node = next((node for node in nodes if _incarnation(definitions, node)), None)
    if node is None:
        return row
    group, member = _made(definitions, group, node)
    learners = [each for each in group.learners if each.node != node and is_live(definitions, each)]
    return _with(row, _with_ring(group, [member], learners), "running")


def node_removed(definitions: Definitions, rows: VhostRows, name: str) -> Iterator[list[Change]]:
    """What changes because this node is no member of the cluster any more: messages that only its disk has are lost
    (CL-46).
    """

    def lose(row: QueueRow) -> list[Change]:
        group = row.group
        if group is None:
            return []
        if row.is_lost_with((name,)):
            return rows.remove_queue(row.name)
        stays = [member for member in group.ring if member.node != name]
        learners = [member for member in group.learners if member.node != name]
        group = _with_ring(group, stays, learners)
        group = replace(group, was=tuple(each for each in group.was if each[0] != name))
        return _put(rows, row, fitted(definitions, _with(row, group, row.state), ()))

    return in_slices(rows.queues.values(), lose)


def policies_changed(definitions: Definitions, rows: VhostRows) -> Iterator[list[Change]]:
    """What changes because policies of this virtual host have changed."""
    queues = rows.queues.values() if may_mirror(definitions) else ()
    return in_slices(queues, lambda row: _put(rows, row, fitted(definitions, row)))


def _put(rows: VhostRows, before: QueueRow, row: QueueRow) -> list[Change]:
    if row == before:
        return []
    rows.put_queue(row)
    return [QueuePut(row)]


# -- commands on groups ---


def _found(rows: VhostRows | None, name: str, queue_id: str) -> tuple[QueueRow, MirrorGroup] | None:
    row = None if rows is None else rows.queues.get(name)
    if row is None or row.queue_id != queue_id or row.group is None:
        return None
    return row, row.group


def add_learner(definitions: Definitions, rows: VhostRows, command: AddLearner) -> list[Change]:
    found = _found(rows, command.name, command.queue_id)
    if found is None:
        return []
    row, group = found
    is_wanted = command.node in group.wanted and _incarnation(definitions, command.node) == command.incarnation
    if not is_wanted or not command.incarnation or group.member_on(command.node) is not None:
        return []
    if not has_live_ring(definitions, group):
        return []  # no member could give it the messages, and without them it must not count as a replica
    group, member = _made(definitions, group, command.node)
    return _put(rows, row, _with(row, replace(group, learners=(*group.learners, member))))


def remove_learner(rows: VhostRows, command: RemoveLearner) -> list[Change]:
    found = _found(rows, command.name, command.queue_id)
    if found is None or command.member not in found[1].learners:
        return []
    row, group = found
    learners = tuple(each for each in group.learners if each != command.member)
    return _put(rows, row, _with(row, replace(group, learners=learners)))


def admit_to_ring(definitions: Definitions, rows: VhostRows, command: AdmitToRing) -> list[Change]:
    found = _found(rows, command.name, command.queue_id)
    if found is None or command.epoch != found[1].epoch or command.member not in found[1].learners:
        return []
    row, group = found
    learners = [each for each in group.learners if each != command.member]
    admitted = _with(row, _with_ring(group, (*group.ring, command.member), learners))
    return _put(rows, row, fitted(definitions, admitted, ()))


def evict_from_rings(
    definitions: Definitions, vhosts: Mapping[str, VhostRows], command: EvictFromRings
) -> Iterator[list[Change]]:
    def evict(listed: tuple[str, str, str, int]) -> list[Change]:
        vhost, name, queue_id, epoch = listed
        rows = vhosts.get(vhost)
        found = _found(rows, name, queue_id)
        if rows is None or found is None or found[1].epoch != epoch:
            return []
        return _evict(definitions, rows, *found, command)

    return in_slices(command.groups, evict)


def _evict(
    definitions: Definitions, rows: VhostRows, row: QueueRow, group: MirrorGroup, command: EvictFromRings
) -> list[Change]:
    victim = next((member for member in group.ring if member.node == command.node), None)
    stays = [member for member in group.ring if member != victim]
    if victim is None or not any(is_live(definitions, member) for member in stays):
        return []
    changed = _with_ring(group, stays)
    reasons = (*(each for each in group.evicted if each[0] != command.node), (command.node, command.reason))
    changed = replace(changed, evicted=reasons)
    return _put(rows, row, fitted(definitions, _with(row, changed), ()))


def transfer(definitions: Definitions, rows: VhostRows, command: TransferRing) -> list[Change]:
    found = _found(rows, command.name, command.queue_id)
    if found is None or command.epoch != found[1].epoch or command.to not in found[1].ring[1:]:
        return []
    if not is_live(definitions, command.to):
        return []
    row, group = found
    ring = (command.to, *(member for member in group.ring if member != command.to))
    return _put(rows, row, fitted(definitions, _with(row, _with_ring(group, ring)), ()))


def lose_member(definitions: Definitions, rows: VhostRows, command: LoseMember) -> list[Change]:
    found = _found(rows, command.name, command.queue_id)
    if found is None or command.member not in found[1].everyone:
        return []
    row, group = found
    if command.member in group.learners:
        return remove_learner(rows, RemoveLearner(*command))
    if not any(is_live(definitions, member) for member in group.ring if member != command.member):
        if not is_live(definitions, command.member):
            return []
        # Nobody else has everything, so the node starts the queue again from what it has.
        group, member = _made(definitions, group, command.member.node)
        return _put(rows, row, _with(row, _with_ring(group, [member])))
    left = _without(definitions, row, lambda member: member == command.member)
    assert left is not None
    return _put(rows, row, fitted(definitions, left, ()))


def force_ring(definitions: Definitions, rows: VhostRows, command: ForceRing) -> list[Change]:
    found = _found(rows, command.name, command.queue_id)
    if found is None:
        return []
    row, group = found
    known = {*(member.node for member in group.everyone), *(node for node, _ in group.was)}
    if command.node not in known or not _incarnation(definitions, command.node):
        return []
    group, member = _made(definitions, group, command.node)
    learners = [each for each in group.learners if each.node != command.node and is_live(definitions, each)]
    group = _with_ring(group, [member], learners)
    group = replace(group, forced=(*group.forced, (command.by, group.epoch))[-REMEMBERED:])
    return _put(rows, row, fitted(definitions, _with(row, group, "running"), ()))


def replace_members(definitions: Definitions, rows: VhostRows, command: ReplaceMembers) -> list[Change]:
    found = _found(rows, command.name, command.queue_id)
    return [] if found is None else _put(rows, found[0], fitted(definitions, found[0]))
