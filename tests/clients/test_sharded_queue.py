"""Client libraries use a sharded queue as any other queue. A broker without sharded queues ignores the arguments, and
the same tests pass against its ordinary queue.
"""

import asyncio
import shutil
import subprocess

import aio_pika
import kombu
import pytest

import amqp

ARGUMENTS = {"x-warren-shards": 4}


async def test_aio_pika(broker_url, name):
    async with await aio_pika.connect(broker_url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=3)
        queue = await channel.declare_queue(name, arguments=ARGUMENTS)
        send = channel.default_exchange.publish
        await asyncio.gather(*(send(aio_pika.Message(b"%d" % n), name) for n in range(100)))
        assert (await channel.declare_queue(name, passive=True)).declaration_result.message_count == 100
        first = await queue.get(timeout=300)
        await first.ack()
        seen = [int(first.body)]
        async with queue.iterator(timeout=300) as messages:
            async for message in messages:
                async with message.process():
                    seen.append(int(message.body))
                if len(seen) == 100:
                    break
        assert sorted(seen) == list(range(100))
        await send(aio_pika.Message(b"left"), name)
        assert (await queue.purge()).message_count == 1
        assert (await queue.delete()).message_count == 0


def test_py_amqp(broker_address, name):
    host, port = broker_address
    with amqp.Connection(f"{host}:{port}", "guest", "guest") as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare(name, auto_delete=False, arguments=ARGUMENTS)
        for number in range(20):
            channel.basic_publish_confirm(amqp.Message(b"%d" % number), routing_key=name)
        found, cancelled = [], []

        def deliver(message):
            found.append(int(message.body))
            channel.basic_ack(message.delivery_tag)

        channel.basic_qos(0, 1, False)
        channel.basic_consume(name, callback=deliver, on_cancel=cancelled.append)
        while len(found) < 20:
            connection.drain_events(timeout=300)
        assert sorted(found) == list(range(20))
        connection.channel().queue_delete(name)
        while not cancelled:
            connection.drain_events(timeout=300)
        assert len(cancelled) == 1


def test_kombu(broker_url, name):
    with kombu.Connection(broker_url) as connection:
        queue = kombu.Queue(name, kombu.Exchange(name, "direct"), name, durable=False, queue_arguments=ARGUMENTS)
        with kombu.Producer(connection) as producer:
            for number in range(20):
                producer.publish({"number": number}, exchange=queue.exchange, routing_key=name, declare=[queue])
        found = []

        def deliver(body, message):
            found.append(body["number"])
            message.ack()

        with kombu.Consumer(connection, [queue], callbacks=[deliver], prefetch_count=2):
            while len(found) < 20:
                connection.drain_events(timeout=300)
        assert sorted(found) == list(range(20))
        bound = queue(connection.default_channel)
        bound.delete()
        bound.exchange.delete()


@pytest.mark.skipif(shutil.which("amqp-publish") is None, reason="amqp-tools is not installed (Debian: amqp-tools)")
def test_amqp_tools(broker_address, broker_url, name):
    host, port = broker_address
    with amqp.Connection(f"{host}:{port}", "guest", "guest") as connection:
        connection.channel().queue_declare(name, auto_delete=False, arguments=ARGUMENTS)

        def tool(command, *arguments):
            run = subprocess.run(
                [f"amqp-{command}", f"--url={broker_url}", *arguments], capture_output=True, timeout=300, check=True
            )
            return run.stdout

        for body in ("a", "b"):
            tool("publish", "-r", name, "-b", body)
        assert {tool("get", "-q", name), tool("get", "-q", name)} == {b"a", b"b"}
        tool("publish", "-r", name, "-b", "c")
        assert tool("consume", "-q", name, "-c", "1", "cat") == b"c"
        assert tool("delete-queue", "-q", name).strip() == b"0"
