"""What Ctrl-C does in the commands of `warren pipeline`; each test runs a program of its own."""

import signal
import subprocess
import sys

import pytest

IN_ORDER = """
import sys, time
from warren.cli.pipeline.interrupt import ended_in_order
with ended_in_order("Ending after this part") as is_asked:
    print("ready", flush=True)
    while not (is_asked() and {ends}):
        time.sleep(0.01)
print("ended in order")
"""
AT_ONCE = """
import logging, time
from warren.cli.pipeline.interrupt import ended_at_once
try:
    with ended_at_once():
        print("ready", flush=True)
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            logging.exception("as PySpark does it")
            raise
except KeyboardInterrupt:
    print("interrupted")
"""


def run(code, signals):
    """Run the program and send it Ctrl-C as often as `signals` says, each time after it has printed something. Returns
    its standard output, standard error and exit code.
    """
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        shown = ""
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
            if signals > 1:
                shown += process.stderr.readline() + process.stderr.readline()
        output, error = process.communicate(timeout=300)
        return output, shown + error, process.returncode
    finally:
        process.kill()


def test_the_first_one_asks_the_job_to_end():
    output, error, code = run(IN_ORDER.format(ends=True), 1)
    assert (output, code) == ("ended in order\n", 0)
    assert error.strip() == "Ending after this part. Ctrl-C again ends at once."


def test_the_second_one_ends_the_program():
    output, _, code = run(IN_ORDER.format(ends=False), 2)
    assert (output, code) == ("", 130)


def test_a_job_that_has_nothing_to_end_is_interrupted_without_a_word_of_pyspark():
    assert run(AT_ONCE, 1) == ("interrupted\n", "", 0)


@pytest.mark.parametrize("name", ["ended_in_order", "ended_at_once"])
def test_what_handled_it_before_handles_it_afterwards(name):
    from warren.cli.pipeline import interrupt

    before = signal.getsignal(signal.SIGINT)
    with interrupt.ended_in_order("x") if name == "ended_in_order" else interrupt.ended_at_once():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
