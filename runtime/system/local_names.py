"""`LocalNames`: names by which other nodes reach processes of this system.

The address of a process ends with a number that the system has given it, which no other node can compute. A process
that other nodes must find has a name as well, such as `meta`, and a second address, `<system>/meta`. A name stands for
one process at a time, and a message to a name without a process is undeliverable.

Names come from two places. `register` gives one process one name, which ends with the process. Where there may be a
hundred thousand processes, such as queues, a table of names would take memory that a node without peers does not need.
For those, `register_family` takes a function that finds the process behind `<family>/<rest>`.

A name is looked up only for a message that would otherwise be undeliverable, so names cost other messages nothing.

Other nodes may have the name of a process before it runs, such as that of a queue that its home is still starting.
Messages to a name that its family expects are held until `release`. The credit of their senders limits their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from thespian.actors import ActorAddress

#: Finds the process for the part of a name behind `<family>/`; None if there is no such process.
Resolve = Callable[[str], ActorAddress | None]

#: Whether a process that is being started will soon have the name `<family>/<this part>`, so that messages to it are
#: held and not dropped.
IsExpected = Callable[[str], bool]

#: A message that is held: sender, receiver, message.
Held = tuple[ActorAddress, ActorAddress, Any]


class _Family(NamedTuple):
    """The names that begin with `<family>/`, and the address of the process that registered them."""

    resolve: Resolve
    is_expected: IsExpected | None
    owner: str


class LocalNames:
    """The names in the system `system`."""

    def __init__(self, system: str) -> None:
        self._prefix = f"{system}/"
        self._addresses: dict[str, ActorAddress] = {}
        self._families: dict[str, _Family] = {}
        #: By name of processes that are expected: the messages to each, in order.
        self._held: dict[str, list[Held]] = {}
        #: The names and families that each process has registered, by its address. Processes without any are not in it.
        self.of_process: dict[str, list[str]] = {}

    def register(self, name: str, address: ActorAddress) -> None:
        """Let `name` stand for the process at `address` from now on, until that process ends."""
        if address.addressDetails == self._prefix + name:
            raise ValueError(f"{name} cannot stand for itself: register the address that its process was created with")
        self._addresses[name] = address
        self.of_process.setdefault(address.addressDetails, []).append(name)

    def register_family(
        self, family: str, resolve: Resolve, address: ActorAddress, is_expected: IsExpected | None = None
    ) -> None:
        """Let `resolve` find the processes behind all names that begin with `<family>/`, until the process at `address`
        ends. Then the function is dropped, because it would keep the ended process and its open files alive.
        """
        self._families[family] = _Family(resolve, is_expected, address.addressDetails)
        self.of_process.setdefault(address.addressDetails, []).append(f"{family}/")

    def forget(self, details: str) -> None:
        """Forget the names of the process with this address, which has ended."""
        for name in self.of_process.pop(details):
            # Another process may have taken the name over.
            if name.endswith("/"):
                if name[:-1] in self._families and self._families[name[:-1]].owner == details:
                    del self._families[name[:-1]]
            elif name in self._addresses and self._addresses[name].addressDetails == details:
                del self._addresses[name]

    def clear(self) -> None:
        """Forget all names, because all processes have ended."""
        self._addresses.clear()
        self._families.clear()
        self._held.clear()
        self.of_process.clear()

    def get(self, name: str) -> ActorAddress | None:
        """The process that `name` stands for now."""
        found = self._addresses.get(name)
        if found is None:
            family, _, rest = name.partition("/")
            of_family = self._families.get(family)
            if of_family is not None:
                found = of_family.resolve(rest)
        return found

    def resolve(self, address: ActorAddress) -> ActorAddress | None:
        """The process that the name in this address stands for. None if there is none, or if `address` is the process's
        own address already.
        """
        details = str(address.addressDetails)
        found = self.get(details.removeprefix(self._prefix))
        return None if found is None or found.addressDetails == details else found

    # -- processes that are about to run -----------------------------------------------------------

    def hold(self, sender: ActorAddress, target: ActorAddress, message: Any) -> bool:
        """Hold a message to a name without a process. Return False, and do nothing, unless the process is expected."""
        name = str(target.addressDetails).removeprefix(self._prefix)
        if not self._is_expected(name):
            return False
        self._held.setdefault(name, []).append((sender, target, message))
        return True

    def _is_expected(self, name: str) -> bool:
        family, _, rest = name.partition("/")
        of_family = self._families.get(family)
        return of_family is not None and of_family.is_expected is not None and of_family.is_expected(rest)

    def release(self, name: str) -> list[Held]:
        """Return the messages that were held for this name, which are to be delivered now."""
        return self._held.pop(name, [])

    def release_unexpected(self) -> list[Held]:
        """Return the messages that were held for processes that are not expected any more."""
        names = [name for name in self._held if not self._is_expected(name)]
        return [each for name in names for each in self.release(name)]
