"""`IndexFeed`: the times of its reports, and which reports it drops when nobody takes them."""

from __future__ import annotations

import pytest

from warren.actors.queue.message_index import index_feed
from warren.actors.queue.message_index.index_feed import IndexFeed
from warren.amqp.frames import build_content

CONTENT = build_content(1, b"\0\0", b"body", 4096)


def test_times_never_go_back():
    """When the wall clock steps back, the last time is given again (QP-33)."""
    seconds = iter((5.0, 3.0, 4.0, 6.0))
    feed = IndexFeed(lambda: next(seconds))
    assert [feed.now() for _ in range(4)] == [5000, 5000, 5000, 6000]


def test_reports_that_nobody_takes_are_dropped_and_read_later(monkeypatch):
    """When nobody takes the reports, they are dropped beyond a bound; which numbers are missing is known, so they are
    read later (QP-31).
    """
    monkeypatch.setattr(index_feed, "MOST_WAITING", 10)
    feed = IndexFeed(lambda: 1.0)
    feed.next_number = lambda: 0
    for first in range(0, 12, 4):
        feed.came(first, [CONTENT] * 4)
    assert feed.take() == [] and feed.behind == range(0, 12)
    feed.came(12, [CONTENT])
    assert [(step.first, len(step.props)) for step in feed.take()] == [(12, 1)]


def test_departures_that_nobody_takes_are_dropped_and_marked_as_lost_later(monkeypatch):
    """When departures are dropped, the queue has to catch up although it has no message to read: then the messages that
    left are marked as lost (QP-26, QP-31).
    """
    monkeypatch.setattr(index_feed, "MOST_WAITING", 10)
    feed = IndexFeed(lambda: 1.0)
    feed.next_number = lambda: 30
    feed.gone("acked", range(10))
    assert not feed.is_behind and feed.waiting == 10
    feed.gone("acked", range(10, 11))
    assert (feed.take(), feed.waiting) == ([], 0) and feed.is_behind and not feed.is_empty


@pytest.mark.parametrize("next_number", [None, lambda: 0])
def test_the_feed_is_bounded_whatever_is_reported(monkeypatch, next_number):
    """Reports of departures count as well, also those of all messages below a number, and in a queue that cannot be
    read by number (QP-31).
    """
    monkeypatch.setattr(index_feed, "MOST_WAITING", 10)
    feed = IndexFeed(lambda: 1.0)
    feed.next_number = next_number
    for number in range(25):
        feed.gone("acked", (number,))
    assert feed.waiting == 3
    for number in range(25):
        feed.rest_is_gone("acked", number)
    assert feed.waiting == 6
    assert (len(feed.take()), feed.waiting) == (6, 0)
    assert feed.is_behind == (next_number is not None)
