"""pika's callback adapters: SelectConnection on its own loop, AsyncioConnection on asyncio's."""

import asyncio

import pika
from pika.adapters.asyncio_connection import AsyncioConnection


class RoundTrip:
    """Open, declare, confirm, publish, consume, acknowledge, close: each step in the previous one's callback."""

    def __init__(self, queue, count, on_end):
        self.queue, self.count, self.on_end = queue, count, on_end
        self.received, self.confirmed, self.error = [], set(), None

    def on_open(self, connection):
        self.connection = connection
        connection.channel(on_open_callback=self.on_channel)

    def on_open_error(self, _connection, error):
        self.error = error
        self.on_end()

    def on_channel(self, channel):
        self.channel = channel
        channel.confirm_delivery(
            self.on_confirm,
            callback=lambda _frame: channel.queue_declare(self.queue, exclusive=True, callback=self.on_declared),
        )

    def on_declared(self, _frame):
        self.channel.basic_qos(
            prefetch_count=5,
            callback=lambda _frame: self.channel.basic_consume(self.queue, self.on_message, callback=self.on_consuming),
        )

    def on_consuming(self, _frame):
        for number in range(self.count):
            self.channel.basic_publish("", self.queue, str(number).encode())

    def on_confirm(self, frame):
        method = frame.method
        first = 1 if method.multiple else method.delivery_tag
        self.confirmed |= set(range(first, method.delivery_tag + 1))
        self.maybe_close()

    def on_message(self, channel, method, _properties, body):
        self.received.append(int(body))
        channel.basic_ack(method.delivery_tag)
        self.maybe_close()

    def maybe_close(self):
        if len(self.received) == len(self.confirmed) == self.count and self.connection.is_open:
            self.connection.close()

    def on_close(self, _connection, reason):
        self.error = reason
        self.on_end()

    def check(self):
        assert isinstance(self.error, pika.exceptions.ConnectionClosedByClient), self.error
        assert self.received == list(range(self.count))
        assert self.confirmed == set(range(1, self.count + 1))


def test_select_connection(broker_url, name):
    trip = RoundTrip(name, 50, lambda: connection.ioloop.stop())
    connection = pika.SelectConnection(
        pika.URLParameters(broker_url),
        on_open_callback=trip.on_open,
        on_open_error_callback=trip.on_open_error,
        on_close_callback=trip.on_close,
    )
    connection.ioloop.start()
    trip.check()


async def test_asyncio_connection(broker_url, name):
    ended = asyncio.Event()
    trip = RoundTrip(name, 50, ended.set)
    AsyncioConnection(
        pika.URLParameters(broker_url),
        on_open_callback=trip.on_open,
        on_open_error_callback=trip.on_open_error,
        on_close_callback=trip.on_close,
    )
    await asyncio.wait_for(ended.wait(), 20)
    trip.check()
