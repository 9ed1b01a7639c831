"""`LocalNames`: names by which other nodes reach processes of this system.

The address of a process ends with a number that the system has given it, which no other node can know. A process that
other nodes must find has a name as well, such as `meta`, and a second address, `<system>/meta`. A name stands for one
process at a time, and a message to a name without a process is undeliverable.

Names come from two places. `register` gives one process one name, which ends with the process. Where there may be a
hundred thousand processes, such as queues, a table of names would take memory that a node without peers does not need.
For those, `register_family` takes a function that finds the process behind `<family>/<rest>`.

A name is looked up only for a message that would otherwise be undeliverable, so names cost other messages nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from thespian.actors import ActorAddress

#: Finds the process for the part of a name behind `<family>/`; None if there is no such process.
Resolve = Callable[[str], ActorAddress | None]


class LocalNames:
    """The names in the system `system`."""

    def __init__(self, system: str) -> None:
        self._prefix = f"{system}/"
        self._addresses: dict[str, ActorAddress] = {}
        #: By family: the function, and the address of the process that registered it.
        self._families: dict[str, tuple[Resolve, str]] = {}
        #: The names and families that each process has registered, by its address. Processes without any are not in it.
        self.of_process: dict[str, list[str]] = {}

    def register(self, name: str, address: ActorAddress) -> None:
        """Let `name` stand for the process at `address` from now on, until that process ends."""
        if address.addressDetails == self._prefix + name:
            raise ValueError(f"{name} cannot stand for itself: register the address that its process was created with")
        self._addresses[name] = address
        self.of_process.setdefault(address.addressDetails, []).append(name)

    def register_family(self, family: str, resolve: Resolve, address: ActorAddress) -> None:
        """Let `resolve` find the processes behind all names that begin with `<family>/`, until the process at `address`
        ends. A function that stayed behind would keep whatever it belongs to in memory, and its files open.
        """
        self._families[family] = resolve, address.addressDetails
        self.of_process.setdefault(address.addressDetails, []).append(f"{family}/")

    def forget(self, details: str) -> None:
        """Forget the names of the process with this address, which has ended."""
        for name in self.of_process.pop(details):
            # Another process may have taken the name over.
            if name.endswith("/"):
                if name[:-1] in self._families and self._families[name[:-1]][1] == details:
                    del self._families[name[:-1]]
            elif name in self._addresses and self._addresses[name].addressDetails == details:
                del self._addresses[name]

    def clear(self) -> None:
        """Forget all names, because all processes have ended."""
        self._addresses.clear()
        self._families.clear()
        self.of_process.clear()

    def get(self, name: str) -> ActorAddress | None:
        """The process that `name` stands for now."""
        found = self._addresses.get(name)
        if found is None:
            family, _, rest = name.partition("/")
            of_family = self._families.get(family)
            if of_family is not None:
                found = of_family[0](rest)
        return found

    def resolve(self, address: ActorAddress) -> ActorAddress | None:
        """The process that has registered the name in this address; None if the address is the process's own."""
        details = str(address.addressDetails)
        found = self.get(details.removeprefix(self._prefix))
        return None if found is None or found.addressDetails == details else found
