"""What the page shows of alarms, and of what blocks connections."""

from urllib.parse import quote

import pika
import pytest

from ..conftest import until


@pytest.fixture
def publisher(broker):
    """A client with a channel and a queue; a resource alarm blocks it at its first publish."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("held back")
    yield channel
    connection.close()


def test_an_alarm_and_its_effect_are_shown_and_end(screen, publisher, broker, api):
    """An alarm shows a warning, and the overview names the alarm as the bottleneck of the blocked connection; both
    disappear with the alarm (CM-380, CM-390).
    """
    broker._node.operate("set_vm_memory_high_watermark", value=0.0)
    try:
        screen.shows("is short of memory: publishers are blocked.", ".warning")
        publisher.basic_publish("", "held back", b"x")
        screen.shows("The bottleneck is the resource alarm: low memory", ".flow")
        screen.shows("It holds back 1 connection", ".flow")
        assert "Connection" in screen.text(".chain .bottleneck")
        assert [each.splitlines()[0] for each in screen.texts(".chain .stage")] == [
            *("Connection", "Channel", "Queue", "Store")
        ]
    finally:
        broker._node.operate("set_vm_memory_high_watermark", value=0.4)
    screen.shows("Nothing holds a connection back.", ".flow")
    screen.until(lambda: not screen.find(".warning").is_displayed())


def test_the_stages_of_a_connection(publisher, api):
    def stages():
        """The stages of the connection that has a channel. The list may have those of earlier tests, and have this one
        before the statistics of its stages have arrived.
        """
        for each in api.get("/api/connections"):
            status, rows = api("GET", f"/api/flow/{quote(each['name'], safe='')}")
            if status == 200 and len(rows) == 2:
                return each["name"], rows
        return None

    name, rows = until(stages)
    assert [(row["stage"], row["name"], row["bottleneck"]) for row in rows] == [
        ("connection", name, False),
        ("channel", "1", False),
    ]
    assert api("GET", "/api/flow/nosuch")[0] == 404
