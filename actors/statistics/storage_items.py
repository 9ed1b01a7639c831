"""rabbitmqctl's info items about where a queue keeps its messages, from the `layers` of its other items (CM-152)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: How many bytes the process of a queue takes, and how many a message in memory takes beside its body. Both are
#: estimates, because Python does not count memory by process.
PROCESS_BYTES = 20_000
MESSAGE_BYTES = 100

Layers = Mapping[str, int]


def _sum(*names: str) -> Callable[[Layers], int]:
    return lambda layers: sum([layers.get(name, 0) for name in names])


_MESSAGES_IN_MEMORY, _BYTES_IN_MEMORY = _sum("ready_in_memory", "pending_in_memory"), _sum("bytes_in_memory")

#: Each item, and how it follows from the layers. A body is in memory as long as the queue has it there, ready or
#: pending, whether or not it is on the disk as well.
STORAGE_ITEMS: dict[str, Callable[[Layers], int]] = {
    "messages_ram": _MESSAGES_IN_MEMORY,
    "messages_ready_ram": _sum("ready_in_memory"),
    "messages_unacknowledged_ram": _sum("pending_in_memory"),
    "messages_persistent": _sum("persistent"),
    "messages_paged_out": _sum("paged_out"),
    "message_bytes_ram": _BYTES_IN_MEMORY,
    "message_bytes_persistent": _sum("persistent_bytes"),
    "message_bytes_paged_out": _sum("paged_out_bytes"),
    "memory": lambda layers: PROCESS_BYTES + MESSAGE_BYTES * _MESSAGES_IN_MEMORY(layers) + _BYTES_IN_MEMORY(layers),
}


def storage_items(layers: Layers) -> dict[str, int]:
    return {name: value(layers) for name, value in STORAGE_ITEMS.items()}
