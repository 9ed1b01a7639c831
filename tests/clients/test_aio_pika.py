"""aio-pika: robust connections, confirms by default, iterators, and its RPC pattern."""

import asyncio
import functools

import aio_pika
import pytest
from aio_pika.exceptions import DeliveryError
from aio_pika.patterns import RPC, JsonMaster


@pytest.fixture
async def connection(broker_url):
    connection = await aio_pika.connect_robust(broker_url)
    async with connection:
        yield connection


async def test_publish_and_get(connection, name):
    channel = await connection.channel()
    queue = await channel.declare_queue(name, exclusive=True)
    message = aio_pika.Message(
        b"hello", headers={"n": 1}, correlation_id="c", delivery_mode=aio_pika.DeliveryMode.PERSISTENT
    )
    await channel.default_exchange.publish(message, name)
    received = await queue.get(timeout=300)
    assert (received.body, received.headers, received.correlation_id) == (b"hello", {"n": 1}, "c")
    await received.ack()


async def test_many_publishes_at_once_are_all_confirmed(connection, name):
    channel = await connection.channel()
    queue = await channel.declare_queue(name, exclusive=True)
    await asyncio.gather(
        *(channel.default_exchange.publish(aio_pika.Message(str(n).encode()), name) for n in range(200))
    )
    assert (await queue.purge()).message_count == 200


async def test_the_queue_iterator(connection, name):
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=10)
    queue = await channel.declare_queue(name, exclusive=True)
    for number in range(20):
        await channel.default_exchange.publish(aio_pika.Message(str(number).encode()), name)
    seen = []
    async with queue.iterator(timeout=300) as messages:
        async for message in messages:
            async with message.process():
                seen.append(int(message.body))
            if len(seen) == 20:
                break
    assert seen == list(range(20))


async def test_an_unroutable_publish_raises(connection, name):
    channel = await connection.channel(on_return_raises=True)
    with pytest.raises(DeliveryError):
        await channel.default_exchange.publish(aio_pika.Message(b"lost"), name)


async def test_topic_exchange_and_exchange_binding(connection, name):
    channel = await connection.channel()
    source = await channel.declare_exchange(name + "-source", aio_pika.ExchangeType.TOPIC, auto_delete=True)
    target = await channel.declare_exchange(name + "-target", aio_pika.ExchangeType.FANOUT, auto_delete=True)
    queue = await channel.declare_queue(name, exclusive=True)
    await queue.bind(target)
    await target.bind(source, "a.#")
    await source.publish(aio_pika.Message(b"through two"), "a.b.c")
    assert (await queue.get(timeout=300, no_ack=True)).body == b"through two"


async def test_transactions(connection, name):
    channel = await connection.channel(publisher_confirms=False)
    queue = await channel.declare_queue(name, exclusive=True)
    async with channel.transaction():
        await channel.default_exchange.publish(aio_pika.Message(b"in"), name)
    assert (await queue.get(timeout=300, no_ack=True)).body == b"in"


async def test_rpc_pattern(connection):
    channel = await connection.channel()
    rpc = await RPC.create(channel)

    async def multiply(*, x, y):
        return x * y

    await rpc.register("multiply", multiply, auto_delete=True)
    assert await asyncio.gather(*(rpc.proxy.multiply(x=n, y=2) for n in range(20))) == [n * 2 for n in range(20)]
    await rpc.close()


async def test_master_and_worker_pattern(connection, name):
    channel = await connection.channel()
    master = JsonMaster(channel)
    done = asyncio.Queue()

    async def work(*, task_id):
        await done.put(task_id)

    worker = await master.create_worker(name, work, auto_delete=True)
    for number in range(10):
        await master.create_task(name, {"task_id": number})
    assert [await asyncio.wait_for(done.get(), 5) for _ in range(10)] == list(range(10))
    await worker.close()


async def test_delayed_retry_by_dead_lettering(connection, name):
    """A retry queue: messages wait for their TTL and return through the dead-letter exchange."""
    channel = await connection.channel()
    queue = await channel.declare_queue(name, exclusive=True)
    await channel.declare_queue(
        name + "-wait",
        exclusive=True,
        arguments={"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name},
    )
    await channel.default_exchange.publish(aio_pika.Message(b"later"), name + "-wait")
    async with queue.iterator(timeout=300) as messages:
        async for message in messages:
            assert message.headers["x-death"][0]["reason"] == "expired"
            await message.ack()
            break


class Relay:
    """A TCP relay to the broker that can cut its connections without closing them on either side, as a network does."""

    def __init__(self, host, port):
        self.target = (host, port)
        self.writers = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        self.cut()

    def cut(self):
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def serve(self, reader, writer):
        upstream_reader, upstream_writer = await asyncio.open_connection(*self.target)
        self.writers += [writer, upstream_writer]
        await asyncio.gather(
            self.pump(reader, upstream_writer), self.pump(upstream_reader, writer), return_exceptions=True
        )

    async def pump(self, reader, writer):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()


async def test_a_robust_connection_comes_back(broker_address, name):
    """The client loses its socket, then reconnects, declares and consumes again without help from the test."""
    async with Relay(*broker_address) as relay:
        connection = await aio_pika.connect_robust(
            f"amqp://guest:guest@127.0.0.1:{relay.port}/%2F", reconnect_interval=0.05
        )
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, auto_delete=False)
            seen = asyncio.Queue()
            await queue.consume(seen.put, no_ack=True)
            back = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: back.set())
            relay.cut()
            await asyncio.wait_for(back.wait(), 10)
            await channel.default_exchange.publish(aio_pika.Message(b"after"), name)
            assert (await asyncio.wait_for(seen.get(), 10)).body == b"after"
            await queue.delete(if_unused=False, if_empty=False)


async def test_two_consumers_of_a_stream(connection, name):
    """Each of two consumers reads the whole stream, from the offset that it asks for."""
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=5)
    queue = await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
    for number in range(20):
        await channel.default_exchange.publish(aio_pika.Message(str(number).encode()), name)
    seen = {begin: [] for begin in (0, 10)}
    done = {begin: asyncio.Event() for begin in seen}

    async def receive(begin, message):
        async with message.process():
            assert message.headers["x-stream-offset"] == int(message.body)
            seen[begin].append(int(message.body))
            if len(seen[begin]) == 20 - begin:
                done[begin].set()

    for begin in seen:
        await queue.consume(functools.partial(receive, begin), arguments={"x-stream-offset": begin})
    for event in done.values():
        await asyncio.wait_for(event.wait(), 30)
    assert seen == {begin: list(range(begin, 20)) for begin in seen}
    await queue.delete()
