"""The messages of the supervisors: `NodeSupervisor`, `VhostSupervisor` and `QueueSupervisor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from ...runtime.contract import Contract, message
from ...runtime.errors import ProcessError

if TYPE_CHECKING:
    from ...routing.rows import QueueRow
    from ...runtime.contract import Address
    from .channel import ToDirectClient
    from .connection import ToConnection
    from .control import ToRemoteSession
    from .disk import FoundJournal
    from .events import ToEventHub
    from .info_items import InfoItems
    from .queue import NeededBodies, Terms
    from .resources import DiskStatus, MemoryStatus


#: What `warren start_app` and `warren stop_app` change (`actors/node/app.py`).
AppState = Literal["stopped", "starting", "running"]

#: Why the listeners of a node are closed (`actors/node/gate.py`).
Hold = Literal["majority", "maintenance", "operator"]


class NodeFacts(TypedDict):
    """What a node answers when it has started. `down` names the virtual hosts that could not be started.

    A witness of a cluster listens for no clients: its `host` is empty, and its `port` is 0.
    """

    node_name: str
    host: str
    port: int
    tls_port: int | None
    direct: Address[ToDirectClient]
    memory: MemoryStatus
    down: list[str]


class Listening(TypedDict):
    """A socket on which the node accepts clients."""

    host: str
    port: int
    tls: bool


class ClientAddress(NamedTuple):
    """An address at which clients reach a node. `host` is a name or an address, an IPv6 one without brackets."""

    host: str
    port: int
    is_tls: bool


class NodeStatus(TypedDict):
    """`started_at` is in seconds since the epoch; `disk` is None on a node without a data directory.

    `listening` is empty while something closes the listeners, and `holds` has what does. `management` has the ports of
    the management process by protocol; it is empty while that process does not listen.
    """

    started_at: float
    listening: list[Listening]
    disk: DiskStatus | None
    holds: list[Hold]
    management: dict[str, int]


class NodeError(ProcessError):
    """A request to the node that cannot be met; the text is for a person."""


class ToNode(Contract):
    """What `NodeSupervisor` receives.

    Refusals are NodeErrors, AmqpErrors and LimitErrors, whose texts are for people.
    """

    @message
    def stop(self, reason: str, moves_masters: bool = True) -> bool:
        """From the program: close every connection with 320, wait at most `stop_timeout`, and end (AB-31).

        Before that, unless its whole cluster stops, a node of a cluster has other nodes lead its mirrored queues. That
        takes at most `MOVING_SECONDS`. Answered True.
        """

    @message
    def close_connections(self, reason: str) -> int:
        """From the program: close every connection with 320, as an operator would (AB-31).

        Answered with their number.
        """

    @message
    def operate(self, name: str, arguments: dict[str, object]) -> Any:
        """From the program, and from Members: run the operation `name` (`operations`). Raises OperationError."""

    @message
    def go_on_with(self, name: str, arguments: dict[str, object]) -> None:
        """From an operation that has answered: run the operation `name`, whose outcome nobody awaits. The process that
        sends this ends as soon as its client has the answer.
        """

    @message
    def suspend(self, hold: Hold, text: str) -> bool:
        """From Members and operations: close the listeners for this reason. Unless the text is empty, close the
        connections of all clients as well, with 320 and this text. Answered True.
        """

    @message
    def resume(self, hold: Hold) -> bool:
        """From Members and operations: this reason has ended; open the listeners if no other one closes them.

        Answered True.
        """

    @message
    def begin_anew(self, reason: str) -> None:
        """From Members: the cluster has declared this run of the node down (CL-55). Have the program end it, and start
        another one.
        """

    @message
    def begin_stopped(self) -> bool:
        """From operations: have the program end this run of the node, and begin another one whose app is stopped.

        Answered False if the node runs inside a program that embeds it.
        """

    @message
    def start_app(self) -> str:
        """From operations: start the app. Answered when it runs, with an empty text, or with the reason why it cannot
        start; then the program begins another run whose app is stopped.
        """

    @message
    def await_app(self) -> bool:
        """From Members, before the node becomes a part of its cluster: answered True when the app is wanted.

        Raises StoppedWaiting if the run is to end instead.
        """

    @message
    def await_end(self) -> str:
        """From the program: answered with the reason when an operator asks the node to stop; the program then stops it.

        The asker gets ProcessDown when the node ends by itself.
        """

    @message
    def await_anew(self) -> bool:
        """From the program that embeds the broker: answered True when `begin_anew` was asked for."""

    @message
    def request_stop(self, reason: str) -> bool:
        """From operations: have the program stop the node. Answered False if no program waits in `await_end`."""

    @message
    def app_state(self) -> AppState:
        """From sessions and operations: whether the app runs, is starting or is stopped."""

    @message
    def status(self) -> NodeStatus:
        """From operations: what the node itself contributes to `warren status`."""

    @message
    def reload_certificates(self) -> str:
        """From operations, and from the program on a signal: read the files of certificates again.

        Answered with an empty text, or with the reason why a certificate in use stays. It is in the log as well.
        """

    @message
    def event_hub(self) -> Address[ToEventHub]:
        """From operations: the process to which they subscribe; the node starts it if it has none."""

    @message
    def open_session(self, client: Address[Contract]) -> Address[ToRemoteSession]:
        """From operations on another node: start a process that performs operations for `client`. Answered with its
        address.
        """

    @message
    def connections(self) -> list[Address[ToConnection]]:
        """From operations: the connections of all listeners."""

    @message
    def client_addresses(self) -> list[ClientAddress]:
        """From channels of other nodes, for the catalogue: where clients reach this node; empty while its listeners are
        closed.
        """

    @message
    def trace(self, vhost: str, on: bool) -> None:
        """From the program: send copies of all messages published and delivered to amq.rabbitmq.trace, or stop that
        (AB-81).
        """

    @message
    def set_queue_mode(self, vhost: str, name: str, mode: str) -> None:
        """From the program: put a queue into the mode `default` or `lazy` until its process ends, whatever mode
        it was declared with.
        """

    @message
    def start_vhost(
        self, name: str, rows: list[QueueRow], kept: frozenset[int]
    ) -> tuple[Address[ToQueueSupervisor], list[QueueRow]]:
        """From Metadata: start a virtual host with the durable queues it had. What the disk has of the mirrored queues
        with the numbers `kept`, which get no process, stays there.

        Answered with its queue supervisor and the rows as they are now.
        """

    @message
    def stop_vhost(self, name: str) -> bool:
        """From Metadata: end the processes, connections and files of a virtual host that is deleted. Answered True."""

    @message
    def set_alarm(self, source: str, on: bool) -> bool:
        """From the program: raise or clear the alarm `memory` or `disk` by hand, independently of the monitors.

        Answered True.
        """

    @message
    def set_watermark(self, value: object) -> MemoryStatus:
        """From the program: see `ToMemoryMonitor.set_watermark`."""

    @message
    def set_disk_free_limit(self, value: object) -> DiskStatus:
        """From the program: see `ToDiskMonitor.set_limit`. Raises NodeError on a node without a data directory."""

    @message
    def list(self, kind: str, vhost: str | None) -> list[InfoItems]:
        """From the program: one row for each thing of this kind (`LIST_KINDS`), in one virtual host or, with None, in
        all.
        """

    @message
    def queue_info(self, vhost: str, name: str) -> InfoItems:
        """From the program: the row of one queue. Raises AmqpError 404."""


class ToVhost(Contract):
    """What `VhostSupervisor` receives."""

    @message
    def end_queues(self) -> bool:
        """From the node: the virtual host is deleted. Answered True when its queues have ended."""

    @message
    def terminate(self) -> None:
        """From the node, which stops: write everything that the next start needs. The process goes on."""


class ToQueueSupervisor(Contract):
    """What `QueueSupervisor` receives."""

    @message
    def recover(
        self, rows: list[QueueRow], terms: dict[int, Terms], numbers: frozenset[int], journal: FoundJournal
    ) -> dict[str, NeededBodies]:
        """From the virtual host: start the queues that there were. Answered, by queue id, with the bodies that their
        indexes name.

        `terms` has, by the queue's number, what each queue wrote at its clean end; a queue without terms reads through
        its index. `numbers` are those that have a directory, `journal` what the journal has.
        """

    @message
    def open(self, needed: dict[str, NeededBodies]) -> tuple[list[QueueRow], int]:
        """From the virtual host, when its message stores run: finish the recovery.

        Answered with all rows, those of queues that cannot be recovered `stopped`, and with the number of messages.
        """

    @message
    def recovered(self) -> None:
        """From Metadata: all exchanges, queues and bindings of the virtual host are recovered; its queues may let
        messages go.
        """

    @message
    def start_queue(self, row: QueueRow) -> QueueRow:
        """From Metadata: start a new queue. Answered with the row, which has the queue's address now.

        Raises VhostEnds.
        """

    @message
    def start_replica(self, row: QueueRow, from_disk: bool) -> QueueRow:
        """From Metadata: start the process of this node's member of a mirrored queue, with what the disk has of the
        queue, or with nothing. Answered with the row, which has the address of the process.

        Raises ProcessDown if it cannot be started, and VhostEnds.
        """

    @message
    def mirror_queue(self, row: QueueRow) -> None:
        """From Metadata: the queue that runs at home here is mirrored from now on, or no longer. If its process
        crashes, that is handled as this row asks for.
        """

    @message
    def restart_queue(self, row: QueueRow) -> None:
        """From Metadata: the process of this queue, which is at home here, ended while its mirroring ended. Restart the
        queue, unless it has a process or the supervisor is restarting it already.
        """

    @message
    def end_replica(self, queue_id: str, keeps_files: bool) -> bool:
        """From Metadata: end the process of a replica that has left the group of its queue.

        Answered True when it has ended.
        """

    @message
    def forget_queue(self, queue_id: str) -> bool:
        """From Metadata: end this queue if it runs, do not restart it, and remove its files. Answered True."""

    @message
    def end_queues(self) -> bool:
        """From the virtual host, which is deleted: delete every queue. Answered True when all have ended."""

    @message
    def terminate(self) -> dict[int, Terms]:
        """From the virtual host, which stops: end every queue in order.

        Answered with the terms by the queue's number.
        """


class ToFlowReporter(Contract):
    """What `FlowReporter` receives."""

    @message
    def in_flow(self, connection: Address[ToConnection]) -> None:
        """From connections that have no credit left, now and then."""


to_node = ToNode()
to_vhost = ToVhost()
to_queue_supervisor = ToQueueSupervisor()
to_flow_reporter = ToFlowReporter()
