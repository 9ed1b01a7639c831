"""`warren start` during a long recovery shows a bar on a terminal and a line in the log, and a signal ends
it at once.
"""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from warren import Broker

MESSAGES = 5


@pytest.fixture
def data_dir(tmp_path):
    """The data directory of a broker that was killed: one queue with messages in segments and in the message store."""
    path = tmp_path / "data"
    with Broker(data_dir=path) as broker:
        broker.declare_queue("kept", durable=True)
        for number in range(MESSAGES):
            broker.publish(b"x" * (100 if number % 2 else 10_000), "kept", delivery_mode=2)
    (vhost,) = (path / "vhosts").iterdir()
    # Without the files of a clean stop, the message store must scan all its files.
    shutil.rmtree(vhost / "recovery")
    (vhost / "msg_store_persistent" / "state").unlink()
    return path


def start(data_dir, patch="", **options):
    """`warren start` in a process that first runs the Python code `patch`."""
    program = (
        f"import sys, time\n{patch}\nfrom warren.cli.main import main\n"
        f"sys.argv[1:] = ['start', '--port', '0', '--data-dir', {str(data_dir)!r}]\nmain()"
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd="/", **options)


AT_ONCE = "from warren.cli.programs import recovery_bar; recovery_bar.SHOWN_FROM = recovery_bar.BETWEEN = 0\n"
LOGGED = "from warren.actors.node import vhost_supervisor; vhost_supervisor.LOGGED_FROM = 0\n"


@pytest.fixture
def on_terminal(data_dir):
    """`on_terminal(patch)` runs `warren start` on a terminal, stops it when it has started, and returns its output."""

    def on_terminal(patch=""):
        terminal, screen = pty.openpty()
        try:
            with start(data_dir, patch, stdout=screen, stderr=screen) as process:
                # The process has the only open descriptor of its side now, so a read fails as soon as the process ends.
                os.close(screen)
                seen = b""
                while b"SIGTERM to process" not in seen:
                    try:
                        seen += os.read(terminal, 10_000)
                    except OSError:
                        pytest.fail(f"the broker has ended with code {process.wait(60)}:\n{seen.decode()}")
                process.terminate()
                assert process.wait(60) == 0
                return seen.decode()
        finally:
            os.close(terminal)

    return on_terminal


def await_start(process):
    """Wait until the broker has printed its start-up report."""
    while "stop " not in (line := process.stdout.readline()):
        if not line:
            pytest.fail(f"the broker has ended with code {process.wait(60)}:\n{process.stderr.read()}")


def test_a_terminal_shows_a_bar_for_each_phase(on_terminal):
    """On a terminal each phase of a recovery shows a bar up to 100 % (CM-34)."""
    seen = on_terminal(AT_ONCE + LOGGED)
    lines = seen.split("\n")
    for phase in ("queue indexes", "message store"):
        bar = next(line for line in lines if phase in line)
        assert re.search(rf"\r\x1b\[Kvhost '/': {phase}  \[#+\]  100%\s*$", bar), bar
    assert (
        seen.index("queue indexes")
        < seen.index("message store")
        < seen.index(f"recovered {MESSAGES} messages")
        < seen.index("listening")
    )
    assert "?25l" not in seen  # A hidden cursor would stay hidden if the broker were killed.


def test_a_phase_of_less_than_a_second_shows_no_bar(on_terminal):
    seen = on_terminal()
    assert "queue indexes" not in seen and "messages in" not in seen


def test_a_log_line_replaces_the_bar(on_terminal):
    logs = "import logging\nfrom warren.cli.programs.recovery_bar import RecoveryBar\nwas = RecoveryBar.step\n"
    logs += "RecoveryBar.step = lambda bar, *step: (was(bar, *step), logging.getLogger('test').warning('in between'))\n"
    seen = on_terminal(AT_ONCE + logs)
    assert re.search(r"queue indexes  \[#+\]  100%\s*\r\x1b\[K\S+ \S+ WARNING test: in between", seen)


def test_without_a_terminal_there_is_a_log_line_and_no_bar(data_dir):
    """Without a terminal the log has a line with the number of messages and the time, and there is no bar (CM-34)."""
    with start(data_dir, AT_ONCE + LOGGED, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        await_start(process)
        process.terminate()
        _, said = process.communicate(timeout=300)
    assert re.search(
        rf"vhost '/': recovered {MESSAGES} messages in 1 queues in \d+\.\d s, after an unclean stop\n", said
    )
    assert "queue indexes" not in said
    with start(data_dir, LOGGED, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        await_start(process)
        process.terminate()
        assert f"recovered {MESSAGES} messages in 1 queues in 0.0 s, after a clean stop" in re.sub(
            r"0\.\d s", "0.0 s", process.communicate(timeout=300)[1]
        )


def slow_scan(seconds):
    return (
        "from warren.store.index import segment_scan; was = segment_scan.scan_segment\n"
        f"segment_scan.scan_segment = lambda *a: (print('scanning', flush=True), time.sleep({seconds}), was(*a))[2]\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_recovery_and_the_next_start_finds_everything(data_dir, number):
    with start(data_dir, slow_scan(0.3), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "scanning\n"
        process.send_signal(number)
        out, said = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "")
    assert f"stopped on {number.name} while it was starting" in said
    assert not re.search("Traceback|ERROR|WARNING", said), said
    with Broker(data_dir=data_dir) as broker:
        assert broker.queue("kept").messages == MESSAGES


def test_signals_end_a_recovery_whose_disk_does_not_answer(data_dir):
    with start(data_dir, slow_scan(60), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "scanning\n"
        process.terminate()
        said = process.communicate(timeout=300)[1]
    assert process.returncode == 0
    assert "Traceback" not in said
    with start(data_dir, slow_scan(60), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "scanning\n"
        while process.poll() is None:
            process.terminate()
            time.sleep(0.05)
    assert process.returncode == 130
