"""Processes keep their contracts, and every message is made by one (`runtime/contract.py`)."""

import importlib.util
from pathlib import Path

import pytest

from warren.cluster.links.encoding.messages import MESSAGES
from warren.runtime.contract import Contract, message
from warren.runtime.process import Process


def loaded(path):
    spec = importlib.util.spec_from_file_location(f"architecture_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contracts = loaded(Path(__file__).with_name("contracts.py"))
PROCESSES = contracts.processes()


def test_the_checker_finds_the_processes():
    """The checker finds all processes; one that found none would find no differences either."""
    assert {"Channel", "Connection", "Metadata", "NodeSupervisor", "Queue"} <= {
        process.__name__ for process in PROCESSES
    }


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.__name__)
def test_handlers_fit_the_contract(process):
    assert contracts.differences(process) == []


def test_no_process_sends_a_tuple(root):
    raw = {
        str(path.relative_to(root)): lines
        for path in sorted(root.glob("actors/**/*.py"))
        if (lines := contracts.raw_messages(path.read_text("utf-8")))
    }
    assert raw == {}


def test_every_message_has_a_sender_and_a_meaning(root):
    """The generated table of messages (docs/tables.py) has no row with an empty cell."""
    rows = loaded(root / "docs" / "tables.py").messages()[2:]
    assert [row for row in rows if row.startswith("|  |") or row.endswith("|  |") or "TODO" in row] == []


#: Messages to processes that may be on another node, which only processes of the same node send.
WITHIN_A_NODE = {
    # Sent by the process that starts or ends the queue.
    *(("ToQueue", name) for name in ("open", "recovered", "hold", "terminate")),
    *(("ToChannel", name) for name in ("input", "shut_down", "handled")),
    ("ToConnection", "close_if_on"),
    # Sent by Metadata of the queue's home.
    ("ToQueue", "apply_settings"),
    # Sent by Metadata of the node of each replica.
    ("ToQueue", "group_changed"),
    # Sent by the supervisor of the same node.
    ("ToQueue", "dismiss"),
    ("ToQueue", "node_met"),
    # Sent by channels of the same node, because an older node would not know it.
    ("ToQueue", "get_several"),
    # Sent by operations that run at the home of the queue; `look_up` asks for the messages that the index there has
    # found.
    ("ToQueue", "look_up"),
    ("ToQueue", "browse"),
    # Sent by the queue to itself.
    ("ToQueue", "serve_kept"),
}

#: The contracts of messages that queues, channels and connections receive from processes other than their creators.
CONTRACTS = ("ToQueue", "ToDiskUser", "ToDeliverer", "ToChannel", "ToQueueUser", "ToConnection")

#: Folders of `actors` whose processes send only to processes of their own node.
NEVER_ACROSS = {"disk", "resources"}


def test_whatever_may_be_sent_to_another_node_is_listed(root):
    """Each message to a queue, a channel or a connection can cross to another node, or is listed as one that never does
    (CL-12).
    """
    tables = loaded(root / "docs" / "tables.py")
    missing = [
        (contract.__name__, name)
        for (contract, name), senders in tables.senders().items()
        if contract.__name__ in CONTRACTS and not senders <= NEVER_ACROSS and name not in MESSAGES.by_name
    ]
    assert set(missing) == WITHIN_A_NODE


class ToThing(Contract):
    @message
    def grow(self, by: int) -> None: ...

    @message
    def size(self, unit: str = "cm") -> int: ...


class Unruly(Process):
    contract = ToThing

    def on_grow(self, sender, by: float) -> None: ...

    async def on_size(self, sender, unit: str = "cm") -> None: ...

    def on_shrink(self, sender) -> None: ...


def test_differences_are_found():
    found = "\n".join(contracts.differences(Unruly))
    assert "Unruly.on_shrink is no message of its contract" in found
    assert "Unruly.on_grow: takes" in found and "Unruly.on_size: returns" in found
    Nameless = type("Nameless", (Unruly,), {"contract": Contract})
    assert contracts.differences(Nameless) == ["Nameless receives messages and names no contract"]


def test_tuples_are_found():
    assert contracts.raw_messages("self.ask(queue, to_queue.counts())\nself.send(queue, ('publish', 1))") == [2]
