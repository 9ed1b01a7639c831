"""Columns of listings: where a queue's messages are, how much its consumers hold it back, and a socket's traffic."""

import pytest

from warren.cli.node_client import NodeClient, Target

COLUMNS = [
    "messages_ready_ram",
    "messages_unacknowledged_ram",
    "messages_ram",
    "message_bytes_ram",
    "messages_persistent",
    "message_bytes_persistent",
]


@pytest.fixture
def counted(own_broker, connect, tmp_path):
    """`counted(is_durable)` starts a broker; it returns a channel and a function for the columns of a queue too."""

    def start(is_durable):
        control = str(tmp_path / "control")
        broker = own_broker(control_dir=control, **({"data_dir": tmp_path / "data"} if is_durable else {}))

        def columns(name, wanted=COLUMNS):
            with NodeClient(Target("warren@localhost", control_dir=control)) as client:
                rows = client.call("list_queues", vhost="/", columns=["name", *wanted])
            return next([row[column] for column in wanted] for row in rows if row["name"] == name)

        return broker, connect(to=broker.url).channel(), columns

    return start


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
def test_messages_in_memory_and_persistent_ones(counted, is_durable, arguments):
    """Listings count the messages in memory and the persistent ones, with their bytes (CM-152)."""
    _, channel, columns = counted(is_durable)
    channel.queue("q", arguments, durable=True)
    for number in range(6):
        channel.publish("12345", "q", delivery_mode=2 if number < 4 else 1)
    channel.expect_ready("q", 6)
    assert columns("q") == [6, 0, 6, 30, 4, 20]
    channel.get("q")
    channel.get("q")
    assert columns("q") == [4, 2, 6, 30, 4, 20]
    channel.get("q", no_ack=True)
    assert columns("q") == [3, 2, 5, 25, 3, 15]


def test_messages_of_a_lazy_queue_are_on_the_disk(counted):
    """A lazy queue has no messages in memory (CM-152)."""
    broker, channel, columns = counted(True)
    channel.queue("q", {"x-queue-mode": "lazy"}, durable=True)
    channel.confirm()
    for _ in range(100):
        channel.publish("12345", "q", delivery_mode=2)
    channel.confirms(1, 100)
    broker.wait_idle()
    ready_ram, _, ram, bytes_ram, persistent, persistent_bytes = columns("q")
    assert ready_ram == ram == bytes_ram == 0
    assert (persistent, persistent_bytes) == (100, 500)


def test_a_transient_queue_has_no_persistent_messages(counted):
    _, channel, columns = counted(True)
    channel.queue("q", durable=False)
    channel.publish("12345", "q", delivery_mode=2)
    channel.expect_ready("q", 1)
    assert columns("q") == [1, 0, 1, 5, 0, 0]


def test_how_much_the_consumers_hold_back(counted, name):
    """A queue that waits for its only consumer has a utilisation below 1, and one without consumers has 0 (CM-152)."""
    _, channel, columns = counted(False)

    def capacity():
        old, new = columns(name, ["consumer_utilisation", "consumer_capacity"])
        assert old == new
        return new

    channel.queue(name)
    assert capacity() == 0
    channel.qos(1)
    channel.consume(name)
    assert capacity() == 1
    channel.publish("first", name)
    tag = channel.delivery().tag
    assert capacity() == 1
    channel.publish("second", name)
    channel.expect_ready(name, 1)
    before = capacity()
    while not (lower := capacity()) < before:
        pass
    channel.ack(tag)
    channel.delivery()
    while not capacity() > lower:
        pass


def test_what_a_connection_read_and_wrote(own_broker, connect, tmp_path):
    """The columns of a connection count the bytes, reads and writes of its socket (CM-157)."""
    control = str(tmp_path / "control")
    broker = own_broker(control_dir=control)
    client = connect(to=broker.url)
    wanted = ["recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend"]

    def columns():
        with NodeClient(Target("warren@localhost", control_dir=control)) as node:
            (row,) = node.call("list_connections", columns=wanted)
        return [row[column] for column in wanted]

    client.channel()
    before = columns()
    assert all(before[:4]) and before[4] == 0
    client.channel()
    after = columns()
    assert after[1] > before[1] and after[3] > before[3]
    assert after[0] - before[0] < 100 and after[2] - before[2] < 100
