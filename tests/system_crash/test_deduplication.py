"""A publisher that repeats what was not confirmed has each message in the queue once, whenever the broker is killed."""

import json
import threading
import time

import pika
import pytest

from warren.tests.torture.broker import SMALL, TorturedBroker

WINDOW = {"x-warren-deduplicate": 100_000}
POLICY = {"vhost": "/", "name": "once", "pattern": "^q$", "definition": {"deduplicate": 100_000}, "apply-to": "queues"}
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
DEFINITIONS = {
    "users": [{"name": "guest", "password": "guest", "tags": []}],
    "vhosts": [{"name": "/"}],
    "permissions": [{"user": "guest", "vhost": "/", **ALL}],
    "policies": [POLICY],
}
LOST = (pika.exceptions.AMQPError, OSError)


class Repeating(threading.Thread):
    """Publishes the bodies 0 to `count`, some of them large, and after each lost connection the last 50 once more."""

    def __init__(self, url, count, by):
        super().__init__(daemon=True)
        self.url, self.count, self.sent, self.repeated = url, count, 0, 0
        self.by = by
        self.start()

    def run(self):
        while self.sent < self.count:
            try:
                self._publish(pika.BlockingConnection(pika.URLParameters(self.url())).channel())
            except LOST:
                time.sleep(0.02)

    def _publish(self, channel):
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True, arguments=WINDOW if self.by == "argument" else None)
        exchange = "events" if self.by == "exchange" else ""
        if exchange:
            channel.exchange_declare(exchange, durable=True, arguments=WINDOW)
            channel.queue_bind("q", exchange)
        first = max(0, self.sent - 50)
        self.repeated += self.sent - first
        for number in range(first, self.count):
            body = b"%d:" % number + b"x" * (6000 if number % 5 == 0 else 10)
            channel.basic_publish(exchange, "q", body, pika.BasicProperties(delivery_mode=2, message_id=f"m-{number}"))
            self.sent = max(self.sent, number + 1)


@pytest.mark.parametrize("by", ["argument", "policy", "exchange"])
def test_killed_broker(tmp_path, by, kills=3):
    definitions = tmp_path / "definitions.json"
    definitions.write_text(json.dumps(DEFINITIONS))
    settings = {"load_definitions": str(definitions)} if by == "policy" else {}
    with TorturedBroker(tmp_path / "data", tmp_path / "log", SMALL, settings=settings) as broker:
        broker.begin()
        urls = [broker.url()]
        publisher = Repeating(lambda: urls[-1], 1200, by)
        for kill in range(kills):
            while publisher.sent < (kill + 1) * 250:
                assert publisher.is_alive()
                time.sleep(0.005)
            broker.kill()
            broker.begin()
            urls.append(broker.url())
        publisher.join(60)
        assert not publisher.is_alive() and publisher.repeated > 0
        channel = pika.BlockingConnection(pika.URLParameters(urls[-1])).channel()
        found = []
        while True:
            method, _, body = channel.basic_get("q", auto_ack=True)
            if method is None:
                break
            found.append(int(body.partition(b":")[0]))
        assert sorted(found) == list(range(1200))
        channel.connection.close()
