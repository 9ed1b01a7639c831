"""Where RabbitMQ 3.10.8's recorded answers are, and how they are compared with warren's."""

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "testdata" / "management"

#: Fields of RabbitMQ's objects that are not compared, and why: warren lacks them or gives them another content.
ABSENT = {
    "socket_opts": "options of Erlang's sockets",
    "backing_queue_status": "the state of RabbitMQ's backing queue",
    "idle_since": "RabbitMQ's conversation took longer",
    "binary": "the memory of Erlang's binaries",
    "contexts": "RabbitMQ writes the ports of its web server as text, and options of that server",
    "metrics_gc_queue_length": "the queues of RabbitMQ's statistics",
    "cluster_state": "its keys are names of nodes",
    "reductions_details": "what warren counts as reductions has no samples",
    "recoverable_slaves": "RabbitMQ has null in a queue without mirrors",
}


def compare(theirs, ours, place):
    """Assert that `ours` has all fields of `theirs`, and values of the same types."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), place
        for name in theirs.keys() - ABSENT.keys():
            assert name in ours, f"{place} lacks {name}"
            compare(theirs[name], ours[name], f"{place}.{name}")
    elif isinstance(theirs, list):
        assert isinstance(ours, list), place
        if theirs and ours:
            compare(theirs[0], ours[0], f"{place}[0]")
    elif theirs is not None and ours is not None:
        kinds = (int, float) if isinstance(theirs, (int, float)) and not isinstance(theirs, bool) else type(theirs)
        assert isinstance(ours, kinds), f"{place}: {theirs!r} and {ours!r}"
        assert isinstance(ours, bool) == isinstance(theirs, bool), place
