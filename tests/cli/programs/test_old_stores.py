"""A data directory that an earlier version wrote verifies without findings, opens, and gives back every message.

`testdata/stores` has directories of each format since 2; `store/data_dir/data_dir.py` says how the formats differ. Each
was written by the last version with its format, on Linux with default settings. A client declared `QUEUES`, published
the messages 0 to 39 with confirms, each as `published` says, got four messages of `orders`, of which it acknowledged
the first and the third, and one of `urgent`.

- `stopped`: the broker was stopped then.
- `killed`: the broker was started again after the stop, the client did the same with the messages 40 to 79, and the
  broker was killed.
"""

import signal
import tarfile
from pathlib import Path

import pika
import pytest

from .test_start import started
from .test_store_of_a_broker import verified

STORES = Path(__file__).parents[2] / "testdata" / "stores"
DEAD_LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
QUEUES = {
    "orders": {},
    "archive": {"x-queue-mode": "lazy"},
    "urgent": {"x-max-priority": 3},
    "brief": {"x-message-ttl": 60_000, **DEAD_LETTERS},
    "graves": {},
}
#: The formats before the present one.
FORMATS = range(2, 8)
#: How many messages were published, and which were acknowledged. The client got 0 to 3 first, and 1, 3, 8 and 9 after
#: the restart, and acknowledged the first and the third of each.
STATES = {"stopped": (40, {0, 2}), "killed": (80, {0, 2, 1, 8})}

#: Messages delivered and not acknowledged before the clean stop.
DELIVERED = {"orders": {1, 3}, "archive": set(), "urgent": {8}}


def published(number):
    """Exchange, routing key, queues reached, properties and body of a message. The topic exchange binds `orders.#` to
    `orders` and `archive.#` to `archive`; the fanout exchange has `orders` and `urgent`.
    """
    place = [
        ("topics", "orders.new", ["orders"]),
        ("topics", f"archive.{number % 3}", ["archive"]),
        ("all", "any", ["orders", "urgent"]),
        ("", "brief", ["brief"]),
    ][number // 4 % 4]
    properties = pika.BasicProperties(
        delivery_mode=2 if number % 5 else 1,
        priority=number // 4 % 4,
        message_id=f"id-{number // 3}",
        headers={"n": number // 2, "trace": "t" * (number % 3)} if number % 7 else None,
        timestamp=1_700_000_000 + number // 6,
        app_id="old" if number < 40 else "older",
    )
    return *place, properties, f"{number:04} ".encode() * (2 if number % 4 else 1100)


def kept(queue, state):
    """The numbers of the messages that a queue must have: persistent ones that were not acknowledged, in order."""
    count, acked = STATES[state]
    gone = acked if queue == "orders" else set()
    return [number for number in range(count) if number % 5 and queue in published(number)[2] and number not in gone]


@pytest.fixture(params=FORMATS)
def version(request):
    return request.param


@pytest.fixture(params=list(STATES))
def store(request, version, tmp_path):
    """The name of a state, and a copy of its directory."""
    with tarfile.open(STORES / f"format-{version}-{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path / "data", filter="data")
    return request.param, tmp_path / "data"


def drain(channel, queue, count):
    """Take `count` messages from the queue, and wait for those that are not there yet."""
    taken = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=300):
        assert method is not None, f"{queue} has {len(taken)} messages instead of {count}"
        taken.append((method, properties, body))
        if len(taken) == count:
            break
    channel.cancel()
    return taken


def test_an_old_store_verifies_clean(store, version):
    state, path = store
    returncode, report, messages = verified(path)
    # A store takes its move from the machine of the killed broker to this one for a restart of the machine.
    findings = [finding for finding in report["findings"] if "the machine was restarted" not in str(finding)]
    assert (returncode, findings) == (0, [])
    assert state == "killed" or not report["findings"]
    assert report["vhosts"][0]["stopped"] == ("clean" if state == "stopped" else "unclean")
    assert messages == {queue: len(kept(queue, state)) for queue in QUEUES}
    assert (path / "format").read_text() == f"warren data directory\nformat {version}\n"


def test_an_old_store_drains(store):
    """A broker that starts on an old store delivers every message with its properties, also those of `brief`, which
    have expired meanwhile and become dead letters.
    """
    state, path = store
    with started("--data-dir", str(path)) as (process, port):
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            for queue, arguments in QUEUES.items():
                channel.queue_declare(queue, durable=True, arguments=arguments)
            for queue in ("orders", "archive", "urgent"):
                numbers = kept(queue, state)
                if queue == "urgent":
                    numbers.sort(key=lambda number: -min(number // 4 % 4, 3))
                found = drain(channel, queue, len(numbers))
                for number, (method, properties, body) in zip(numbers, found):
                    exchange, key, _, expected, expected_body = published(number)
                    assert body == expected_body
                    assert (method.exchange, method.routing_key) == (exchange, key)
                    assert vars(properties) == vars(expected)
                    # After a kill every message counts as redelivered, because the broker cannot know which were
                    # delivered before.
                    assert method.redelivered == (state == "killed" or number in DELIVERED[queue])
            numbers = kept("brief", state)
            for number, (_, properties, body) in zip(numbers, drain(channel, "graves", len(numbers))):
                _, key, _, expected, expected_body = published(number)
                (death,) = properties.headers["x-death"]
                assert body == expected_body
                assert (death["queue"], death["reason"], death["routing-keys"]) == ("brief", "expired", [key])
                assert properties.message_id == expected.message_id
                assert (properties.headers.get("n"), properties.timestamp) == (
                    (expected.headers or {}).get("n"),
                    expected.timestamp,
                )
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert (path / "format").read_text() == f"warren data directory\nformat {FORMATS.stop}\n"
    returncode, report, messages = verified(path)
    assert (returncode, report["findings"]) == (0, [])
    assert messages == dict.fromkeys(QUEUES, 0)
