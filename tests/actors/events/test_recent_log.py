"""The newest lines of the log, which a node keeps for its page (CM-411)."""

import logging
import pickle

import pytest

from warren.actors.context.recent_log import LINE_MAX, LINES_KEPT, RecentLog

logger = logging.getLogger("warren.test_recent")


@pytest.fixture
def recent(caplog):
    caplog.set_level(logging.DEBUG, "warren")
    recent = RecentLog()
    recent.open()
    yield recent
    recent.shut()


def texts(recent, lowest="debug", part="", most=LINES_KEPT):
    """The texts of this test's lines; a broker of another test may still log some."""
    return [line.text for line in recent.lines(lowest, part, LINES_KEPT) if line.category == "test_recent"][-most:]


def test_lines_are_chosen_by_level_and_text(recent):
    logger.debug("a detail")
    logger.info("Client Ärger connected")
    logger.warning("low on memory")
    logger.critical("broken")
    assert texts(recent) == ["a detail", "Client Ärger connected", "low on memory", "broken"]
    assert texts(recent, "warning") == ["low on memory", "broken"]
    assert texts(recent, "debug", "ärger") == ["Client Ärger connected"]
    assert len(texts(recent, "debug", "TEST_RECENT")) == 4
    assert [line.text for line in recent.lines("info", "broken", 1)] == ["broken"]


def test_a_line_has_its_number_time_level_and_category(recent):
    logger.error("first")
    logger.error("second")
    first, second = [line for line in recent.lines("error", "", 10) if line.category == "test_recent"]
    assert (first.level, first.category) == ("error", "test_recent")
    assert first.number < second.number and first.time <= second.time


def test_nobody_can_forge_a_line(recent):
    """Line ends and control characters in a client's name cannot forge a line of the log."""
    logger.info("from %s", "x\n2026-01-01 ERROR \x1b[31mforged")
    assert texts(recent) == ["from x\\n2026-01-01 ERROR \\x1b[31mforged"]


def test_a_traceback_is_in_the_line_of_its_error(recent):
    try:
        raise ValueError("the reason")
    except ValueError:
        logger.exception("it failed")
    (text,) = texts(recent)
    assert text.startswith("it failed | Traceback") and text.endswith("ValueError: the reason")


def test_the_memory_is_bounded(recent):
    for number in range(LINES_KEPT + 5):
        logger.info("%s %s", number, "x" * (2 * LINE_MAX))
    found = recent.lines("debug", "", 2 * LINES_KEPT)
    assert len(found) == LINES_KEPT
    assert max(len(line.text) for line in found) == LINE_MAX + 1
    assert "0 x" not in [line.text[:3] for line in found]


def test_a_log_that_is_shut_keeps_nothing(recent):
    logger.info("before")
    recent.shut()
    logger.info("after")
    assert recent.lines("debug", "", 10) == []
    assert recent not in logging.getLogger("warren").handlers


def test_another_process_gets_an_empty_log(recent):
    """A process of Thespian's multiprocess base gets an empty log: the node's context, which has the log, is sent to
    its processes.
    """
    logger.info("here")
    copy = pickle.loads(pickle.dumps(recent))
    assert copy.lines("debug", "", 10) == [] and not copy.is_open
    assert texts(recent) == ["here"]
