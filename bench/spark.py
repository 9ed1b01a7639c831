"""How fast Spark reads a queue, beside what the machine can do at most, and beside RabbitMQ read by pika.

    python -m warren.bench.spark                          a queue of 1,000,000 messages of 100 and of 1,000 bytes
    python -m warren.bench.spark --messages 100000        a short look
    python -m warren.bench.spark --rabbitmq 127.0.0.1:5673

Each row is the median of the rounds: messages a second, and seconds of processor time of the broker, of Python and of
Java for a million messages. `blocks, dropped` is the physical limit: the broker sends blocks to readers that drop them.
`rabbitmq, pika` consumes the same bodies with pika, without acknowledgements, and does nothing with them.

`memory of a task` is by how much the memory of a process grows in which one task archives the whole queue, and then 256
messages of a megabyte.

At the end another client publishes persistent messages to a queue of its own, first alone and then beside an archive
and a stream: its rate, and how long the confirm of a message takes that a second client publishes now and then.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..amqp import methods
from ..amqp.fields import table_from
from ..spark.options import BatchOptions, SinkOptions
from ..spark.reading.offsets import QueueRange
from ..spark.sessions import session
from ..spark.wire import BrokerConnection
from ..spark.writer import RowPublisher

ROUNDS = 3
#: Messages in a record batch.
BATCH = 10_000
#: How many messages of a megabyte are archived to measure a task's memory.
LARGE = 256


def processor_seconds(pids: set[int]) -> float:
    """Seconds of processor time that these processes, and their children that have ended, have used."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> set[int]:
    """The processes below this one."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found and child not in found}:
        found |= more
    return found - {pid}


def program(pid: int) -> bytes:
    """The program that a process runs; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except (FileNotFoundError, ProcessLookupError):
        return b""


class ProcessorMeter:
    """Counts the processor time of the broker, of Python and of Java while something runs."""

    def __init__(self, broker: int) -> None:
        self._broker = broker

    def _now(self) -> dict[str, float]:
        own = below(os.getpid()) - {self._broker} - below(self._broker)
        java = {pid for pid in own if b"java" in program(pid)}
        return {
            "broker": processor_seconds({self._broker}),
            "java": processor_seconds(java),
            "python": processor_seconds((own - java) | {os.getpid()}),
        }

    def run(self, work: Callable[[], Any]) -> tuple[float, dict[str, float]]:
        """Seconds that it took, and seconds of processor time."""
        before, began = self._now(), time.perf_counter()
        work()
        took = time.perf_counter() - began
        after = self._now()
        return took, {name: max(0.0, after[name] - before[name]) for name in after}


@contextmanager
def broker_process(folder: Path) -> Iterator[tuple[int, str]]:
    """A broker of its own process with a data directory: its process id and its URL."""
    code = (
        "import sys; from warren import Broker\n"
        f"with Broker(port=0, data_dir={str(folder)!r}) as broker:\n"
        "    print(broker.url, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait()


def random_batch(count: int, size: int) -> Any:
    """A record batch of messages; half of each body is random."""
    import pyarrow as pa

    half = size // 2
    bodies = [os.urandom(half) + b"." * (size - half) for _ in range(count)]
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})


def fill(url: str, queue: str, count: int, size: int) -> None:
    """Declare a durable queue and publish into it. All bodies are different."""
    publish(url, queue, (random_batch(min(BATCH, count - start), size) for start in range(0, count, BATCH)))


def publish(url: str, queue: str, batches: Iterable[Any]) -> None:
    """Declare a durable queue and publish these record batches into it."""
    connection = BrokerConnection(SinkOptions.parse({"url": url}), "bench")
    connection.call(methods.QueueDeclare(queue=queue, durable=True), methods.QueueDeclareOk)
    connection.close()
    RowPublisher(SinkOptions.parse({"url": url, "routingKey": queue}), 0, "bench").publish(iter(batches))


def drop_blocks(url: str, queue: str, count: int) -> None:
    """Read the queue in blocks, and drop them."""
    options = BatchOptions.parse({"url": url, "queue": queue})
    piece = QueueRange(queue, 0, count, "", 0)
    connection = BrokerConnection(options, "bench")
    wanted = {"x-warren-read-from": piece.first, "x-warren-read-to": piece.next - 1, "x-warren-blocks": True}
    for _ in connection.consume(queue, wanted):
        pass
    connection.close()


def to_parquet(spark: Any, url: str, queue: str, folder: Path, **given: str) -> None:
    """A streaming query from the queue into Parquet."""
    stream = spark.readStream.format("warren").options(url=url, queue=queue, **given).load()
    options = {"path": str(folder / "table"), "checkpointLocation": str(folder / "checkpoint"), "compression": "zstd"}
    stream.writeStream.format("parquet").options(**options).trigger(availableNow=True).start().awaitTermination()


def to_noop(spark: Any, url: str, queue: str, **given: str) -> None:
    """A table of the queue that Spark makes and drops."""
    table = spark.read.format("warren").options(url=url, queue=queue, **given).load()
    table.write.format("noop").mode("append").save()


def with_pika(address: str, queue: str, count: int, size: int, meter: ProcessorMeter) -> float:
    """Messages a second that pika consumes of the broker at this address. The queue is deleted afterwards."""
    import pika

    host, _, port = address.rpartition(":")
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        body = os.urandom(size // 2) + b"." * (size - size // 2)
        for _ in range(count):
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
        while channel.queue_declare(queue, passive=True).method.message_count < count:
            time.sleep(0.1)
        began = time.perf_counter()
        for place, _ in enumerate(channel.consume(queue, auto_ack=True), 1):
            if place == count:
                break
        took = time.perf_counter() - began
        channel.cancel()
        channel.queue_delete(queue)
    return count / took


def copy(spark: Any, url: str, count: int, queue: str, copies: str, folder: Path) -> None:
    """A streaming query that publishes each message of a queue once to a queue that drops what comes twice."""
    connection = BrokerConnection(SinkOptions.parse({"url": url}), "bench")
    arguments = table_from({"x-warren-deduplicate": count})
    connection.call(methods.QueueDeclare(queue=copies, durable=True, arguments=arguments), methods.QueueDeclareOk)
    connection.close()
    rows = spark.readStream.format("warren").options(url=url, queue=queue, columns="queue_id,seq,body").load()
    sink = {"url": url, "routingKey": copies, "deliveryGuarantee": "exactly-once", "messageId": "source"}
    writer = rows.writeStream.format("warren").options(**sink, checkpointLocation=str(folder))
    writer.trigger(availableNow=True).start().awaitTermination()


def from_directory(spark: Any, data: Path, table: Path) -> None:
    """The messages of a data directory into Parquet."""
    rows = spark.read.format("warren").options(path=str(data), queue="bench").load()
    rows.write.option("compression", "zstd").parquet(str(table))


# --- memory of a task -------------------------------------------------------------------------------------------------


def archive_in_one_task(url: str, queue: str, count: int, folder: str, found: Any) -> None:
    """Write the messages of a queue into files as one task does; puts by how many bytes the process has grown."""
    from ..spark.archive.archive_reader import ArchiveOptions, ArchivePartition, ArchiveReader

    reader = ArchiveReader(ArchiveOptions.parse({"url": url, "queue": queue, "target": folder}))
    partition = ArchivePartition(QueueRange(queue, 0, count, "", 0), (), range(count), 0)
    before = own_memory("VmRSS")
    reader.write(partition, "bench")
    found.put(own_memory("VmHWM") - before)


def own_memory(name: str) -> int:
    """Bytes of memory of this process: now (`VmRSS`), or at most (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def show_memory(url: str, queue: str, count: int, size: int, folder: Path) -> None:
    """Show by how much the memory of a process grows in which one task archives a queue."""
    spawn = multiprocessing.get_context("spawn")
    found = spawn.Queue()
    task = spawn.Process(target=archive_in_one_task, args=(url, queue, count, str(folder), found), daemon=True)
    task.start()
    grown = found.get()
    task.join()
    print(f"{size:9,} B  {'memory of a task':28} {grown / 1e6:12,.0f} MB", flush=True)


# --- other clients beside an archive ----------------------------------------------------------------------------------


def publish_on(url: str, size: int, until: Any, found: Any) -> None:
    """Publish until the event is set; puts the confirmed messages in a second."""
    import pyarrow as pa

    publisher = RowPublisher(SinkOptions.parse({"url": url, "routingKey": "beside"}), 0, "bench")
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x" * size] * 2000, pa.binary())})
    began = time.perf_counter()
    while not until.is_set():
        publisher.send(iter([batch]))
    found.put(publisher.send(iter([])).rows / (time.perf_counter() - began))


def confirm_on(url: str, size: int, until: Any, found: Any) -> None:
    """Publish a message each 20 ms until the event is set; puts the seconds until each confirm."""
    import pyarrow as pa

    publisher = RowPublisher(SinkOptions.parse({"url": url, "routingKey": "beside"}), 0, "bench")
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x" * size], pa.binary())})
    waited = []
    while not until.wait(0.02):
        began = time.perf_counter()
        publisher.send(iter([batch]))
        waited.append(time.perf_counter() - began)
    found.put(waited)


def with_others(url: str, size: int, work: Callable[[], Any]) -> tuple[float, list[float]]:
    """Call `work` while others publish. Return their confirmed messages a second, and the sorted waits for confirms."""
    spawn = multiprocessing.get_context("spawn")
    until = spawn.Event()
    results = [spawn.Queue(), spawn.Queue()]
    others = [
        spawn.Process(target=target, args=(url, size, until, result), daemon=True)
        for target, result in zip((publish_on, confirm_on), results)
    ]
    for other in others:
        other.start()
    work()
    until.set()
    rate, waited = (result.get(timeout=60) for result in results)
    for other in others:
        other.join()
    return rate, sorted(waited)


def beside(url: str, size: int, name: str, work: Callable[[], Any]) -> None:
    """Show how fast others publish alone, and beside the work of this name."""
    connection = BrokerConnection(SinkOptions.parse({"url": url}), "bench")
    limit = table_from({"x-max-length": 100_000})
    connection.call(methods.QueueDeclare(queue="beside", durable=True, arguments=limit), methods.QueueDeclareOk)
    alone, _ = with_others(url, size, lambda: time.sleep(5))
    rate, waited = with_others(url, size, work)
    connection.call(methods.QueueDelete(queue="beside"), methods.QueueDeleteOk)
    connection.close()
    slow = waited[int(len(waited) * 0.99)] * 1000
    shown = f"{rate:,.0f}/s of {alone:,.0f}/s alone ({rate / alone:.0%}); p99 of a confirm {slow:.0f} ms"
    print(f"{size:9,} B  {f'others beside {name}':28} {shown}", flush=True)


def show(name: str, size: int, count: int, rounds: list[tuple[float, dict[str, float]]]) -> None:
    took = statistics.median(took for took, _ in rounds)
    cost = {part: statistics.median(used[part] for _, used in rounds) * 1e6 / count for part in rounds[0][1]}
    shown = "  ".join(f"{part} {seconds:6.1f}" for part, seconds in cost.items())
    print(f"{size:9,} B  {name:28} {count / took:12,.0f}/s   {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rabbitmq", metavar="HOST:PORT", help="compare with RabbitMQ there, read by pika")
    arguments = parser.parse_args()
    spark = session("bench", "local[2]", **{"spark.log.level": "ERROR"})
    print("messages a second, and seconds of processor time for a million messages")
    large_messages()
    for size in arguments.sizes:
        folder = Path(tempfile.mkdtemp(prefix="warren-bench-spark-"))
        try:
            with broker_process(folder / "data") as (pid, url):
                meter = ProcessorMeter(pid)
                one_size(spark, meter, url, folder, size, arguments)
            stopped(spark, meter, folder, size, arguments)
        finally:
            shutil.rmtree(folder)
    spark.stop()


def large_messages() -> None:
    """Measure the memory of a task whose messages have a megabyte each."""
    with tempfile.TemporaryDirectory(prefix="warren-bench-spark-") as folder:
        with broker_process(Path(folder, "data")) as (_, url):
            fill(url, "bench", LARGE, 1_000_000)
            show_memory(url, "bench", LARGE, 1_000_000, Path(folder, "archive"))


def one_size(
    spark: Any, meter: ProcessorMeter, url: str, folder: Path, size: int, arguments: argparse.Namespace
) -> None:
    """Measure one size of messages."""
    from ..spark.jobs.archive import archive

    count, rounds = arguments.messages, arguments.rounds
    fill(url, "bench", count, size)
    works: dict[str, Callable[[int], None]] = {
        "blocks, dropped": lambda place: drop_blocks(url, "bench", count),
        "Spark, noop, core": lambda place: to_noop(spark, url, "bench"),
        "Spark, noop, seq and body": lambda place: to_noop(spark, url, "bench", columns="seq,body"),
        "stream to Parquet, core": lambda place: to_parquet(spark, url, "bench", folder / f"core{place}"),
        "stream to Parquet, plain": lambda place: to_parquet(
            spark, url, "bench", folder / f"plain{place}", readMode="plain"
        ),
        "archive": lambda place: _archive(archive, spark, url, folder / f"archive{place}"),
    }
    to_noop(spark, url, "bench", endingOffsets='{"bench": 1000}')  # the first query starts the workers
    for name, work in works.items():
        show(name, size, count, [meter.run(lambda work=work, place=place: work(place)) for place in range(rounds)])
    # Made before, because random bodies of 1,000 bytes cost twice as much as to publish them.
    batch = random_batch(BATCH, size)
    batches = [batch] * (count // BATCH) + [batch.slice(0, count % BATCH)]
    plain = [meter.run(lambda: publish(url, "sink", batches)) for _ in range(rounds)]
    show("sink, at least once", size, count, plain)

    def copy_once(place: int) -> None:
        copy(spark, url, count, "bench", f"copies{place}", folder / f"copying{place}")

    once = [meter.run(lambda place=place: copy_once(place)) for place in range(rounds)]
    show("sink, exactly once", size, count, once)
    beside(url, size, "an archive", lambda: _archive(archive, spark, url, folder / "beside"))
    beside(url, size, "a stream", lambda: to_parquet(spark, url, "bench", folder / "stream beside"))
    show_memory(url, "bench", count, size, folder / "one task")
    if arguments.rabbitmq:
        few = min(count, 100_000)
        rates = [with_pika(arguments.rabbitmq, "warren-bench-spark", few, size, meter) for _ in range(rounds)]
        print(f"{size:9,} B  {'rabbitmq, pika':28} {statistics.median(rates):12,.0f}/s", flush=True)


def stopped(spark: Any, meter: ProcessorMeter, folder: Path, size: int, arguments: argparse.Namespace) -> None:
    """Measure reading the data directory, whose broker has ended."""

    def read(place: int) -> None:
        from_directory(spark, folder / "data", folder / f"offline{place}")

    found = [meter.run(lambda place=place: read(place)) for place in range(arguments.rounds)]
    show("data directory to Parquet", size, arguments.messages, found)


def _archive(job: Callable[..., Any], spark: Any, url: str, folder: Path) -> None:
    job(spark, str(folder), url=url, queue="bench", keep=True)


if __name__ == "__main__":
    main()
