"""`OwnNode`: what a node reports of itself to the other members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...actors.contracts.membership import MembershipError
from ...definitions.features import FEATURES
from ...definitions.records import Node
from ...version import __version__
from .addresses import own_address
from .identity import ID_BYTES, Identity, IdentityError, read_identity, write_identity

if TYPE_CHECKING:
    from ...actors.context.node_context import NodeContext
    from ...runtime.process import Process


class OwnNode:
    """Belongs to `process`. `incarnation` names this run of the node."""

    def __init__(self, process: Process, context: NodeContext, incarnation: str) -> None:
        self._process = process
        self._context = context
        self.settings = context.settings
        self.name = context.node_name
        self.incarnation = incarnation
        self.identity = Identity("")
        #: Where its links listen.
        self.host, self.port = "", 0

    @property
    def address(self) -> str:
        """Where other nodes reach this one."""
        return own_address(self.settings, self.name, self.port)

    @property
    def replaces_lost(self) -> bool:
        """Whether a node with an empty data directory takes the place of the member of its name (CL-45).

        It always does if the node keeps everything in memory: such a node has nothing left after its end. The other
        nodes of its cluster keep everything in memory as well.
        """
        return self.settings.data_dir is None or bool(self.settings.cluster_formation["replace_lost"])

    def record(self, incarnation: str = "") -> Node:
        """This node as the metadata lists it."""
        return Node(
            self.name,
            self.identity.node_id,
            self.settings.cluster_role,
            address=self.address,
            build=__version__,
            features=tuple(sorted(FEATURES)),
            incarnation=incarnation,
        )

    async def read_identity(self) -> None:
        """Read the identity, or draw one for a node that has none yet. Raises MembershipError, and ends the process."""
        process, directory = self._process, self.settings.data_dir
        drawn = process.random_bytes(ID_BYTES)
        if directory is None:
            self.identity = Identity(drawn.hex())
            return
        self._disk = self._context.open_disk(directory)
        try:
            self.identity = await process.run_blocking(read_identity, self._disk, drawn)
        except (IdentityError, OSError) as error:
            process.stop("cannot read its identity")
            raise MembershipError(str(error)) from None

    async def write_identity(self, **values: Any) -> None:
        """Change the identity, and return when the disk has it. Raises MembershipError."""
        self.identity = self.identity.changed(**values)
        if self.settings.data_dir is not None:
            try:
                await self._process.run_blocking(write_identity, self._disk, self.identity)
            except OSError as error:
                raise MembershipError(
                    f"{self.name} cannot write its identity to '{self.settings.data_dir}': {error.strerror}. Free space"
                    " on that disk, or make it writable, and start the node again"
                ) from None
