"""per_vhost_msg_store_SUITE, and the cases of msg_store_SUITE about settings (queue-and-store section 12.2), on a
broker with a data directory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from warren import Broker, Settings
from warren.settings import SettingsError
from warren.store.data_dir.data_dir import DataDir
from warren.tests.file_sizes import size_of_files

from ..wire import Client

SMALL, LARGE = 512, 8192  # a body that is embedded in the queue index, and one that goes to the message store


@pytest.fixture
def data_dir(tmp_path):
    return str(tmp_path / "data")


def started(data_dir):
    return Broker(data_dir=data_dir, stop_timeout=100).start()


def size_of(broker, vhost):
    """Bytes of a virtual host's files, except LMDB's, which grow by whole pages."""
    files = Path(DataDir(broker.settings.data_dir).vhost(vhost)).rglob("*")
    return size_of_files(file for file in files if file.suffix != ".mdb")


def written(broker, vhost):
    """Bytes that journal and store have written. Files may be longer, because room is reserved ahead."""
    files = Path(DataDir(broker.settings.data_dir).vhost(vhost)).rglob("*")
    return sum(len(file.read_bytes().rstrip(b"\0")) for file in files if file.suffix in (".wal", ".rdq", ".idx"))


def fill(broker, vhost, size, count=100):
    client = Client(broker.url_of(vhost))
    channel = client.channel()
    channel.queue("q", durable=True)
    channel.confirm()
    with client.in_one_piece():
        for number in range(count):
            channel.publish(str(number).ljust(size, "."), "q", delivery_mode=2)
    assert len(channel.confirms(1, count)[0]) == count
    client.close()


def test_parameter_validation(data_dir):
    """The size of a batch cannot be set, because a batch is what one turn has gathered. The credit can, and every pair
    of numbers that can work is accepted.
    """
    with pytest.raises(SettingsError, match="unknown setting"):
        Settings.of(msg_store_io_batch_size=4096)
    assert Settings().msg_store_credit_disc_bound == (4000, 800)
    for wrong in ((4000, 8000), (0, 800), 4096):
        with pytest.raises(SettingsError, match="setting 'msg_store_credit_disc_bound'"):
            Settings.of(msg_store_credit_disc_bound=wrong)
    for pair in ((2, 1), (0, 0)):
        with Broker(data_dir=data_dir, msg_store_credit_disc_bound=pair) as broker:
            for size in (SMALL, LARGE):
                fill(broker, "/", size, count=1000)
            assert broker.queue("q").messages == 2000
            broker.delete_queue("q")


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["embedded", "stored"])
def test_publish_to_different_dirs(data_dir, size):
    """Embedded and stored messages grow only their own virtual host's directory."""
    broker = started(data_dir)
    try:
        for vhost in ("one", "other"):
            broker.create_vhost(vhost)
        for vhost, still in (("one", "other"), ("other", "one")):
            before = {name: written(broker, name) for name in (vhost, still)}
            fill(broker, vhost, size)
            broker.wait_idle()
            assert written(broker, vhost) >= before[vhost] + 100 * size
            assert written(broker, still) == before[still]
    finally:
        broker.stop()


def test_storage_deleted_on_vhost_delete(data_dir):
    """Deleting a virtual host removes its directory, so that those of all virtual hosts shrink."""
    broker = started(data_dir)
    try:
        broker.create_vhost("gone")
        fill(broker, "gone", SMALL)
        fill(broker, "gone", LARGE)
        path = Path(DataDir(data_dir).vhost("gone"))
        before = size_of(broker, "gone")
        assert before > 100 * (SMALL + LARGE)
        broker.delete_vhost("gone")
        assert not path.exists()
        assert size_of_files((Path(data_dir) / "vhosts").rglob("*")) < before
    finally:
        broker.stop()


def test_single_vhost_storage_delete_is_safe(data_dir):
    """After the directory of one virtual host was deleted while the broker was down, its queue is empty, and the other
    virtual host has all 200 messages in order.
    """
    broker = started(data_dir)
    for vhost in ("wiped", "kept"):
        broker.create_vhost(vhost)
        fill(broker, vhost, SMALL)
        fill(broker, vhost, LARGE)
    broker.stop()
    shutil.rmtree(DataDir(data_dir).vhost("wiped"))
    broker = started(data_dir)
    try:
        assert broker.queue("q", vhost="wiped").messages == 0
        fill(broker, "wiped", LARGE)
        assert broker.queue("q", vhost="wiped").messages == 100
        client = Client(broker.url_of("kept"))
        bodies = client.channel().get_all("q")
        client.close()
        assert [int(body.rstrip(b".")) for body in bodies] == [*range(100), *range(100)]
        assert [len(body) for body in bodies] == [SMALL] * 100 + [LARGE] * 100
    finally:
        broker.stop()
