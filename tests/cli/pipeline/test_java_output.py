"""What of the standard error of Java and its child processes reaches the user."""

import subprocess

import pytest

from warren.cli.pipeline.java_output import JavaOutput

NOISE = """WARNING: Using incubator modules: jdk.incubator.vector
Picked up JAVA_TOOL_OPTIONS: -XX:+UseSerialGC
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/24 16:15:28 WARN Utils: Your hostname, vm, resolves to a loopback address
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
Setting Spark log level to "OFF".
"""
TRACE = """Exception in thread "main" java.lang.IllegalStateException: no room
\tat org.apache.spark.A.b(A.scala:1)
\t... 3 more
"""


def started(text):
    """A process that writes the text to standard error at once, and again when it has read a line."""
    code = 'printf %s "$1" >&2; read line; printf %s "$1" >&2'
    return subprocess.Popen(["sh", "-c", code, "sh", text], stdin=subprocess.PIPE)


def test_only_words_about_java_itself_are_kept_back(capfd):
    java = JavaOutput()
    with java.inherited():
        process = started(f"{NOISE}queue 'orders': 3 messages were gone\n{TRACE}")
        process.stdin.write(b"\n")
        process.stdin.close()
        process.wait()
    java.join()
    assert capfd.readouterr().err == "queue 'orders': 3 messages were gone\n" * 2
    assert java.reason() == ""


def test_words_come_as_they_are_written_and_not_before_java_has_started(capfd):
    java = JavaOutput()
    with java.inherited():
        process = started("early\n")
        subprocess.run(["true"], check=True)
        assert "early" not in capfd.readouterr().err
    process.stdin.write(b"\n")
    process.stdin.close()
    process.wait()
    java.join()
    assert capfd.readouterr().err == "early\nearly\n"


def test_a_java_that_does_not_start_says_why(capfd):
    java = JavaOutput()
    with pytest.raises(RuntimeError), java.inherited():
        process = started(NOISE + TRACE)
        process.communicate(b"\n")
        raise RuntimeError
    assert java.reason() == " ".join(['Exception in thread "main" java.lang.IllegalStateException: no room'] * 2)
    assert capfd.readouterr().err == ""


def test_the_end_of_a_thread_is_not_shown_later_on(capfd):
    java = JavaOutput()
    with java.inherited():
        process = subprocess.Popen(["sh", "-c", 'read line; printf %s "$1" >&2', "sh", TRACE], stdin=subprocess.PIPE)
    process.communicate(b"\n")
    java.join()
    assert capfd.readouterr().err == ""


def test_a_worker_whose_rows_are_not_needed_is_no_error(capfd):
    """A query with a limit ends tasks early, and Spark's workers then write a traceback. All others are shown whole."""
    head = "Traceback (most recent call last):\n"
    daemon = '  File "/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker\n    outfile.flush()\n'
    own = '  File "/lib/warren/spark/wire.py", line 9, in send\n'
    unneeded = f"{head}{daemon}{daemon}BrokenPipeError: [Errno 32] Broken pipe\n"
    shown = [f"{head}{daemon}{own}BrokenPipeError: [Errno 32] Broken pipe\n", f"{head}{daemon}ValueError: a fault\n"]
    text = f"{unneeded}{shown[0]}between\n{unneeded}{shown[1]}{head}{own}"
    java = JavaOutput()
    with java.inherited():
        process = subprocess.Popen(["sh", "-c", 'read line; printf %s "$1" >&2', "sh", text], stdin=subprocess.PIPE)
    process.communicate(b"\n")
    java.join()
    assert capfd.readouterr().err == f"{shown[0]}between\n{shown[1]}{head}{own}"
