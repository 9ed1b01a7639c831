"""Measures how long a broker with very many durable queues takes to restart, after `kill -9` and after a clean stop.

    python -m warren.bench.many_queues                       the three cases below
    python -m warren.bench.many_queues --case one --rounds 5

    one          10,000 queues with a message each
    empty        100,000 queues without a message
    priorities   300 queues with 255 priorities, each of which has had a message; one message is left in each queue

The time of a start should depend on the messages that the broker must read, and hardly on the number of queues and
priorities. The time is from exec until a client has a connection and a passive declare of the last queue counts its
messages. Beside it stand the processor time of the broker until then and its resident memory, because the time alone
tells little on a busy machine.

The slowest round must take at most 3 s for `one` and 5 s for `empty`. Exit code 0 if it does, 1 if not, 2 if nothing
could be measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from ..amqp import methods
from ..amqp.fields import table_from
from ..amqp.frames import build_content, method_frame
from ..amqp.properties import Properties, encode_properties
from .load.broker import BrokerFailed, LoadClient, Warren, memory, processor_seconds

QUEUE = "bench.many_queues"
#: Methods that are sent before the first of their answers is read.
PIPELINE = 500
BODY = b"x" * 100
#: Seconds that one pipeline may take while the broker is filled.
FILL_SECONDS = 120.0

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Case:
    """`queues` queues, each of which keeps `messages` messages; `bar` is the most seconds of a start."""

    queues: int
    messages: int
    max_priority: int | None
    bar: float | None


CASES = {
    "one": Case(10_000, 1, None, 3.0),
    "empty": Case(100_000, 0, None, 5.0),
    "priorities": Case(300, 1, 255, None),
}


@dataclass(slots=True)
class Starts:
    """The starts after ends of one kind, one for each round."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)


def queue_name(number: int) -> str:
    return f"{QUEUE}_{number}"


def fill(client: LoadClient, case: Case) -> None:
    """Declare the queues and publish their messages; the messages of a pipeline are one transaction."""
    arguments = table_from({} if case.max_priority is None else {"x-max-priority": case.max_priority})
    names = [queue_name(number) for number in range(case.queues)]
    for some in _batches(names):
        client.pipeline([methods.QueueDeclare(queue=name, durable=True, arguments=arguments) for name in some])
    client.call(methods.TxSelect())
    messages = case.messages if case.max_priority is None else case.max_priority + 1
    for batch in _batches([(name, number) for name in names for number in range(messages)]):
        client.write(b"".join(publish_frames(name, priority) for name, priority in batch))
        client.call(methods.TxCommit())
    for some in _batches([name for name in names for _ in range(messages - case.messages)]):
        client.pipeline([methods.BasicGet(queue=name, no_ack=True) for name in some])
    # The journal is in order: when this publish is on the disk, so are the acknowledgements before it.
    client.call(methods.QueueDeclare(queue=QUEUE, durable=True))
    client.write(publish_frames(QUEUE, 0))
    client.call(methods.TxCommit())


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + PIPELINE] for start in range(0, len(items), PIPELINE))


def publish_frames(queue: str, priority: int) -> bytes:
    props = encode_properties(Properties(delivery_mode=2, priority=min(priority, 255)))
    return method_frame(1, methods.BasicPublish(exchange="", routing_key=queue)) + build_content(1, props, BODY, 0)


def start(warren: Warren, case: Case, starts: Starts) -> None:
    """Start the broker, and note what that took. Raises BrokerFailed if the last queue lacks its messages."""

    def counted(client: LoadClient) -> tuple[int]:
        return (client.declared(queue_name(case.queues - 1)),)

    seconds, (count,) = warren.start_until(counted)
    starts.seconds.append(seconds)
    starts.processor.append(processor_seconds(warren.pid))
    starts.resident.append(memory(warren.pid)["VmRSS"])
    if count != case.messages:
        raise BrokerFailed(f"after a restart a queue has {count:,} messages and not {case.messages:,}")


def measured(directory: Path, case: Case, rounds: int) -> dict[str, Starts]:
    """The starts after `kill -9` and those after a clean stop."""
    killed, stopped = Starts(), Starts()
    with Warren(directory / "data") as warren:
        warren.start()
        with LoadClient(warren.address, FILL_SECONDS) as client:
            fill(client, case)
        for _ in range(rounds):
            warren.kill()
            start(warren, case, killed)
            warren.stop()
            start(warren, case, stopped)
    return {"kill -9": killed, "a clean stop": stopped}


def holds(case: Case, found: Mapping[str, Starts]) -> bool:
    return case.bar is None or max(second for starts in found.values() for second in starts.seconds) <= case.bar


def print_rows(name: str, case: Case, found: Mapping[str, Starts]) -> None:
    for end, starts in found.items():
        verdict = (
            "" if case.bar is None else f"{case.bar:8.1f}   {'pass' if max(starts.seconds) <= case.bar else 'FAIL'}"
        )
        print(
            f"{name:12}after {end:14}{statistics.median(starts.seconds):8.2f}{max(starts.seconds):8.2f}"
            f"{statistics.median(starts.processor):12.2f}{max(starts.resident) / 1e6:10,.0f}{verdict}"
        )


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.many_queues", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, action="append", help="only this case; may be given more than once")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default %(default)s)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where to create the data directory (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args(arguments)


def main() -> int:
    options = parsed(sys.argv[1:])
    found: dict[str, dict[str, Starts]] = {}
    if not options.json:
        print(f"{'case':12}{'':20}{'seconds':>8}{'most':>8}{'processor':>12}{'MB':>10}{'bar':>8}")
    for name in options.case or CASES:
        try:
            with tempfile.TemporaryDirectory(prefix="warren-queues-", dir=options.directory) as directory:
                found[name] = measured(Path(directory), CASES[name], options.rounds)
        except (BrokerFailed, OSError) as error:
            print(f"many_queues: {name}: {error}", file=sys.stderr)
            return 2
        if not options.json:
            print_rows(name, CASES[name], found[name])
    if options.json:
        print(json.dumps({name: {end: asdict(starts) for end, starts in ends.items()} for name, ends in found.items()}))
    return 0 if all(holds(CASES[name], ends) for name, ends in found.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
