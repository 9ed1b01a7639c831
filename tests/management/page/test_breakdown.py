"""What a broker in detailed mode shows of single exchanges, channels and queues."""

from urllib.parse import quote

import pika
import pytest

from warren import Broker

from ..conftest import ports


@pytest.fixture(scope="module")
def broker():
    settings = {"management": True, "management_port": 0, "prometheus_port": 0, "management_interval": 100}
    with Broker(**settings, management_rates_mode="detailed") as broker:
        ports(broker)
        yield broker


def test_each_page_shows_what_goes_to_the_others(screen, broker):
    """The pages of a queue, an exchange and a channel have a row for each other that they exchange messages with, which
    leads to its page (CM-396, CM-400, CM-406).
    """
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("<seen>")
        channel.queue_bind("<seen>", "amq.fanout")
        for _ in range(3):
            channel.basic_publish("amq.fanout", "", b"x")
        for _ in range(2):
            assert channel.basic_get("<seen>", auto_ack=True)[2] == b"x"
        screen.go(f"#/queues/%2F/{quote('<seen>')}")
        screen.until(lambda: "amq.fanout 3" in screen.text('[aria-label="Incoming, by exchange"] tbody'))
        rows = '[aria-label="Deliveries, by channel"] tbody'
        screen.until(lambda: "(1) 2" in screen.text(rows))
        screen.click(f"{rows} a")
        screen.until(lambda: "amq.fanout 3" in screen.text('[aria-label="Publishes"] tbody'))
        screen.until(lambda: "<seen> 2" in screen.text('[aria-label="Deliveries, by queue"] tbody'))
        screen.click('[aria-label="Publishes"] tbody a')
        screen.until(lambda: "<seen> 3" in screen.text('[aria-label="Outgoing, by queue"] tbody'))
        screen.until(lambda: "(1) 3" in screen.text('[aria-label="Incoming, by channel"] tbody'))
