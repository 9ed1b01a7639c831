"""`RemoteSystems`: the other systems of actors that one system is connected to, and what is open across each of them.

An address may belong to another system: another node, or a node as it was before its last restart. Every address
contains the name of its system (`address`). A message to it is handed to the `carry` that came with `system_up`, which
belongs to the module that keeps the connection: a link between nodes, or a simulated one. That module has the wire, the
encoding and the sessions; this one has what a process may rely on:

- **Order.** What one process sends to another arrives in order, and nothing arrives twice. Nothing between them is
  missing as long as the connection lasts.
- **Asks.** An ask across the connection is answered once. When the connection ends first, the answer is ProcessDown
  with `NOCONNECTION`: the process that was asked may have done what it was asked for.
- **Monitors.** `on_down` is called once: with the reason for which the process ended, after everything that it had
  sent, or with `NOCONNECTION`.
- **Nothing is resent, and the next connection begins with nothing.** An answer to an ask that has failed already is
  dropped.
- **A system that is not connected.** Asks and monitors get `NOCONNECTION` at once. They get `NOPROC` if the node runs
  again, or is this one: then it is certain that the process has ended. Other messages count as undelivered.

So a connection must have ended on both sides before it is made again. Each end keeps the asks and monitors that are
open across the connection, in both directions. Any other message costs one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from thespian.actors import ActorAddress

from ...parted_table import PartedTable
from ..errors import ProcessDown
from ..exit_reason import NOCONNECTION, NOPROC, ExitReason
from .address import node_of, system_of

#: Takes (sender, receiver, message) to the other system, or drops it when the connection has ended.
Carry = Callable[[ActorAddress, ActorAddress, Any], None]

#: One message on its way: sender, receiver, message.
Envelope = tuple[ActorAddress, ActorAddress, Any]

_OPENING = frozenset({"ask", "$monitor"})
_WITHDRAWING = frozenset({"$forget", "$demonitor"})
_CLOSING = frozenset({"$answer", "$down"})
_NOTED = _OPENING | _WITHDRAWING | _CLOSING


class _Open(NamedTuple):
    """An ask without an answer, or a monitor, from the process `opener` to the process `target`."""

    opener: ActorAddress
    target: ActorAddress
    is_monitor: bool


#: The open asks and monitors, by the opener's address and the number that the opener has given them.
_OpenByRef = dict[tuple[str, Any], _Open]


class RemoteSystem:
    """One system that is connected now."""

    __slots__ = ("_from_here", "_from_there", "_name", "carry")

    def __init__(self, name: str, carry: Carry) -> None:
        self._name = name
        self.carry = carry
        self._from_here: _OpenByRef = {}
        self._from_there: _OpenByRef = {}

    def leaves(self, sender: ActorAddress, target: ActorAddress, message: Any) -> bool:
        """Whether a message may leave: not if it is about an ask or a monitor that an earlier connection ended."""
        return _note(self._from_here, self._from_there, sender, target, message)

    def arrives(self, sender: ActorAddress, target: ActorAddress, message: Any) -> bool:
        """Whether a message that has arrived counts."""
        return _note(self._from_there, self._from_here, sender, target, message)

    def ends(self) -> Iterator[Envelope]:
        """What the processes here receive because the connection has ended."""
        for (_, ref), opened in self._from_here.items():
            if opened.is_monitor:
                yield opened.target, opened.opener, ("$down", ref, NOCONNECTION)
            else:
                yield opened.target, opened.opener, ("$answer", ref, False, ProcessDown(NOCONNECTION))
        for (_, ref), opened in self._from_there.items():
            yield opened.opener, opened.target, ("$demonitor" if opened.is_monitor else "$forget", ref)

    def open_count(self) -> int:
        """How many asks and monitors are open, in both directions."""
        return len(self._from_here) + len(self._from_there)


def _note(
    of_sender: _OpenByRef, of_target: _OpenByRef, sender: ActorAddress, target: ActorAddress, message: Any
) -> bool:
    """Note what `message` opens or closes; False if it closes or withdraws what is not open."""
    if type(message) is not tuple or not message:
        return True
    name = message[0]
    if type(name) is not str or name not in _NOTED or len(message) < 2:
        return True
    if name in _OPENING:
        of_sender[sender.addressDetails, message[1]] = _Open(sender, target, name == "$monitor")
    elif name in _WITHDRAWING:
        return of_sender.pop((sender.addressDetails, message[1]), None) is not None
    else:
        return of_target.pop((target.addressDetails, message[1]), None) is not None
    return True


class RemoteSystems:
    """All systems that the system `name` is connected to, and how far it has applied the log that they share.

    enqueue   puts a message into a mailbox of this system
    cells     everything in this system that takes messages, by address
    """

    def __init__(
        self, name: str, enqueue: Callable[[ActorAddress, ActorAddress, Any], None], cells: PartedTable[str, Any]
    ) -> None:
        self.name = name
        self._node = node_of(name)
        self._enqueue = enqueue
        self._cells = cells
        self._by_name: dict[str, RemoteSystem] = {}
        #: The name of the system that is connected, by its node.
        self._of_node: dict[str, str] = {}
        #: See `Process.set_applied` and `Process.begin_applying`: messages that carry an index above `applied` wait,
        #: and messages to other systems carry `shown`. `_behind` has the addresses of the processes that wait for the
        #: next call.
        self.applied = self.shown = 0
        self._behind: dict[str, None] = {}

    # -- for the processes that keep connections ---

    def system_up(self, name: str, carry: Carry) -> None:
        """Note that the system `name` is connected. `carry` sends it messages; pass what comes from it to `arrived`."""
        if name in self._by_name:
            raise RuntimeError(f"the connection to {name} has not ended")
        self._by_name[name] = RemoteSystem(name, carry)
        self._of_node[node_of(name)] = name

    def system_down(self, name: str) -> None:
        """Note that the connection to the system `name` has ended, after everything that came from it has arrived.

        Open asks across it fail, and monitors across it fire, with NOCONNECTION. Does nothing if it is not connected.
        """
        if self._of_node.get(node_of(name)) == name:
            del self._of_node[node_of(name)]
        remote = self._by_name.pop(name, None)
        if remote is not None:
            for sender, target, message in remote.ends():
                self._enqueue(sender, target, message)

    def arrived(self, name: str, sender: ActorAddress, target: ActorAddress, message: Any) -> None:
        """Take a message from the connected system `name`."""
        remote = self._by_name.get(name)
        if remote is not None and remote.arrives(sender, target, message):
            self._enqueue(sender, target, message)

    def open_across(self, name: str) -> int:
        """How many asks and monitors are open across the connection to the system `name`, in both directions."""
        remote = self._by_name.get(name)
        return 0 if remote is None else remote.open_count()

    def set_applied(self, index: int) -> None:
        """See `Process.set_applied`."""
        self.applied = self.shown = index
        behind, self._behind = self._behind, {}
        for details in behind:
            cell = self._cells.get(details)
            if cell is not None:
                cell.resume_later(None)

    def wake_when_applied(self, address: ActorAddress) -> None:
        """Give the process at this address a turn after the next `set_applied`."""
        self._behind[address.addressDetails] = None

    # -- for the system itself ---

    def disconnect_all(self) -> None:
        self._by_name.clear()
        self._of_node.clear()

    def system_of_node(self, node: str) -> str | None:
        """The name of the connected system that is a run of this node; None if none is."""
        return self._of_node.get(node)

    def connected(self, name: str) -> RemoteSystem | None:
        """The system of that name, if it is connected."""
        return self._by_name.get(name)

    def absence(self, address: ActorAddress) -> ExitReason:
        """Why there is no process at `address`, whose system is not connected."""
        node = node_of(system_of(address))
        runs_again = node == self._node or node in self._of_node
        return NOPROC if runs_again else NOCONNECTION
