"""Brokers, drivers, Python processes and queries that the tests inside Spark run, kill and start again."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow

from warren.amqp import methods
from warren.amqp.fields import table_from
from warren.amqp.frames import content_body, content_properties
from warren.amqp.properties import decode_properties
from warren.spark.options import SinkOptions
from warren.spark.wire import BrokerConnection
from warren.spark.writer import RowPublisher

#: The error of a query whose Python process did not start within ten seconds, which no setting of Spark changes. On a
#: busy machine it may take longer, and then the query ends before it has read anything.
SLOW_START = "Python worker failed to connect back"


def run_to_its_end(start):
    """Run the query that `start` starts until it ends. If it ends with `SLOW_START`, start it again."""
    while True:
        query = start()
        try:
            query.awaitTermination()
            return query
        except Exception as error:
            if SLOW_START not in str(error):
                raise


def run_until(start, reached):
    """Run the query that `start` starts until `reached()`, and return it. If it ends with `SLOW_START`,
    start it again.
    """
    while True:
        query = start()
        try:
            wait_for(reached, query)
            return query
        except Exception as error:
            if SLOW_START not in str(error):
                raise


def kill_driver(code, url, folder, reached):
    """Run a driver in a child process until `reached()`, and then kill it with its Java, which is in its
    process group.
    """
    while not reached():
        command = [sys.executable, "-c", code, url, str(folder)]
        driver = subprocess.Popen(command, cwd="/", start_new_session=True, stderr=subprocess.PIPE, text=True)
        output = []
        reader = threading.Thread(target=lambda driver=driver, output=output: output.append(driver.stderr.read()))
        reader.start()
        try:
            while not reached() and driver.poll() is None:
                threading.Event().wait(0.01)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            code_of_end = driver.wait()
            reader.join()
            driver.stderr.close()
        assert reached() or (code_of_end > 0 and SLOW_START in output[0]), output[0]


def publish_rows(url, queue, numbers):
    """Publish a message for each number, and wait for the confirms."""
    options = SinkOptions.parse({"url": url, "routingKey": queue})
    batch = pyarrow.RecordBatch.from_pydict({"body": pyarrow.array([b"%d" % number for number in numbers])})
    RowPublisher(options, 0, "test").publish(iter([batch]))


class Killable:
    """A broker in a child process, which can be killed with SIGKILL and started again on the same port."""

    CODE = (
        "import sys; from warren import Broker\n"
        "with Broker(port=int(sys.argv[1]), data_dir=sys.argv[2]) as broker:\n"
        "    print(broker.port, flush=True); sys.stdin.read()"
    )

    def __init__(self, folder):
        self.folder, self.port = folder, 0
        self.start()

    def start(self):
        command = [sys.executable, "-c", self.CODE, str(self.port), str(self.folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        self.port = int(self.process.stdout.readline())
        self.url = f"amqp://127.0.0.1:{self.port}/%2F"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def publish(self, numbers):
        """Publish a message for each number, and wait for the confirms."""
        connection = BrokerConnection(SinkOptions.parse({"url": self.url}), "test")
        connection.call(methods.QueueDeclare(queue="orders", durable=True), methods.QueueDeclareOk)
        connection.close()
        publish_rows(self.url, "orders", numbers)

    def declare(self, queue, arguments):
        connection = BrokerConnection(SinkOptions.parse({"url": self.url}), "test")
        declare = methods.QueueDeclare(queue=queue, durable=True, arguments=table_from(arguments))
        connection.call(declare, methods.QueueDeclareOk)
        connection.close()

    def count(self, queue="orders"):
        connection = BrokerConnection(SinkOptions.parse({"url": self.url}), "test")
        try:
            declare = methods.QueueDeclare(queue=queue, passive=True)
            return connection.call(declare, methods.QueueDeclareOk).message_count
        finally:
            connection.close()

    def drained(self, queue):
        """Take all messages from the queue, and return the body and message id of each."""
        connection = BrokerConnection(SinkOptions.parse({"url": self.url}), "test")
        found = []
        for delivery in connection.consume(queue, {"x-warren-read-from": "first", "x-warren-read-to": "last"}):
            properties = decode_properties(content_properties(delivery.content))
            found.append((content_body(delivery.content), properties.message_id))
        connection.close()
        return found


def wait_for(condition, running):
    deadline = time.monotonic() + 300
    while not condition():
        if running.exception() is not None:
            raise running.exception()
        if not running.isActive:
            return
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def kill_workers():
    """Kill the Python workers of Spark below this process with SIGKILL, but not the daemons that start new ones."""
    commands, parents = {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            commands[int(process.name)] = (process / "cmdline").read_bytes()
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue

    def is_daemon(pid):
        return b"pyspark.daemon" in commands.get(pid, b"")

    def is_ours(pid):
        while pid and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid != 0

    for pid in commands:
        if is_daemon(pid) and is_daemon(parents[pid]) and is_ours(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
