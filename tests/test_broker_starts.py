"""What a broker leaves in logs, among temporary files and in the process, whichever way its start ends."""

import asyncio
import tempfile
import threading

import pytest

from warren import Broker, Cluster, StartError


def test_repr_has_no_secret_password(tmp_path):
    """The text of an object gets into logs and tracebacks. Only the default password is known anyway."""
    (tmp_path / "password").write_text("very-secret")
    for settings in ({"default_pass": "very-secret"}, {"default_pass_file": tmp_path / "password"}):
        with Broker(default_user="bob", **settings) as broker:
            assert repr(broker) == f"<Broker amqp://bob@127.0.0.1:{broker.port}/%2F>"
            assert ":very-secret@" in broker.url


def test_a_start_that_fails_leaves_no_directory(tmp_path, monkeypatch):
    """The management process needs a directory for the control socket, which is made for each start."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with Broker(data_dir=str(tmp_path / "data")), pytest.raises(StartError):
        Broker(data_dir=str(tmp_path / "data"), management=True).start()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("make", [Broker, lambda: Cluster(1)], ids=["broker", "cluster"])
async def test_a_start_that_is_cancelled_leaves_no_broker(make):
    """A program that gives up waiting for `async with` has no object with which it could stop the broker."""
    made = make()
    begins, goes_on, ended, start = threading.Event(), threading.Event(), threading.Event(), made.start

    def slow_start():
        begins.set()
        goes_on.wait(60)
        start()
        ended.set()

    made.start = slow_start
    entering = asyncio.create_task(made.__aenter__())
    await asyncio.to_thread(begins.wait, 60)
    entering.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert await asyncio.to_thread(ended.wait, 60)
    running = [each for each in getattr(made, "_brokers", {"": made}).values() if each.is_running]
    await asyncio.to_thread(made.stop)
    assert not running
