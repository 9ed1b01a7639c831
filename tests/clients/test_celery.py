"""A Celery worker in a child process: groups, chains, retries and ETA over rpc://, and chords.

Celery's rpc:// backend does not support chords with any broker, so the chord tests keep their results in files. The
chord's own messages, and the retried task that polls it, still travel through the broker.
"""

import importlib.util
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import celery
import pytest

APP = Path(__file__).parent / "celery_app"


@contextmanager
def worker(broker_url, backend, queue, log):
    """The tasks module, connected to a running worker."""
    environment = {
        "CELERY_TEST_BROKER": broker_url,
        "CELERY_TEST_BACKEND": backend,
        "CELERY_TEST_QUEUE": queue,
    }
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool=threads", "--concurrency=4"]
    command += ["--loglevel=INFO", f"--hostname={queue}@test"]
    # In the app's folder, because the repository's root has a folder `amqp` that would hide the client library.
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, cwd=APP, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        tasks = load_tasks(environment)
        with tasks.app.connection_or_acquire():
            wait_until_ready(process, log)
            yield tasks
        tasks.app.close()
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def load_tasks(environment):
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment.items():
            patch.setenv(key, value)
        spec = importlib.util.spec_from_file_location("tasks", APP / "tasks.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def wait_until_ready(process, log):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        text = Path(log).read_text()
        if " ready." in text:
            return
        assert process.poll() is None, text
        time.sleep(0.05)
    raise AssertionError(Path(log).read_text())


@pytest.fixture(scope="module")
def rpc(broker_url, tmp_path_factory):
    with worker(
        broker_url, "rpc://", f"celery-rpc-{os.getpid()}", tmp_path_factory.mktemp("celery") / "rpc.log"
    ) as tasks:
        yield tasks


@pytest.fixture(scope="module")
def files(broker_url, tmp_path_factory):
    folder = tmp_path_factory.mktemp("celery-results")
    log = tmp_path_factory.mktemp("celery") / "files.log"
    with worker(broker_url, folder.as_uri(), f"celery-files-{os.getpid()}", log) as tasks:
        yield tasks


def test_one_task(rpc):
    assert rpc.add.delay(2, 3).get(timeout=300) == 5


def test_a_hundred_tasks(rpc):
    results = [rpc.add.delay(number, 1) for number in range(100)]
    assert [result.get(timeout=300) for result in results] == list(range(1, 101))


def test_a_group(rpc):
    assert celery.group(rpc.add.s(n, n) for n in range(10))().get(timeout=300) == [2 * n for n in range(10)]


def test_a_chain(rpc):
    assert celery.chain(rpc.add.s(1, 2), rpc.add.s(3), rpc.add.s(4))().get(timeout=300) == 10


def test_an_eta(rpc):
    """The worker keeps the message until its time and raises its prefetch meanwhile."""
    began = time.monotonic()
    assert rpc.add.apply_async((1, 1), countdown=0.5).get(timeout=300) == 2
    assert time.monotonic() - began >= 0.4


def test_retries(rpc):
    assert rpc.fails_twice.delay().get(timeout=300) == 2


def test_an_exception_comes_back(rpc):
    with pytest.raises(ValueError, match="on purpose"):
        rpc.breaks.delay().get(timeout=300)


def test_late_acknowledgement(rpc):
    assert rpc.late.delay("x").get(timeout=300) == "x"


def test_remote_control_over_the_pidbox_exchanges(rpc):
    """`inspect ping` uses fanout exchanges, reply queues and expiring messages."""
    name = f"{rpc.app.conf.task_default_queue}@test"
    assert rpc.app.control.ping(destination=[name], timeout=300) == [{name: {"ok": "pong"}}]


def test_a_chord(files):
    assert celery.chord((files.add.s(n, n) for n in range(10)), files.total.s())().get(timeout=300) == 90


def test_a_chord_in_a_chain(files):
    work = celery.chain(
        files.add.s(1, 1), celery.group(files.add.s(n) for n in range(4)), files.total.s(), files.add.s(100)
    )
    assert work().get(timeout=300) == 2 * 4 + 6 + 100
