"""The HTML reports of the jobs `analyse` and `flow`, made of given tables: no Spark is needed (SP-98, SP-99)."""

import math
import re
from datetime import UTC, datetime, timedelta

import pytest

from warren.spark.jobs.flow_report import flow_page
from warren.spark.jobs.flow_windows import STAGES, FlowRow
from warren.spark.jobs.report import report_page
from warren.spark.jobs.report_parts import LABEL, POINTS, label, line

BEGAN = datetime(2026, 11, 24, tzinfo=UTC)


def tables(queue="orders", key="eu.nwe", seconds=(0,), width=60):
    """The tables of one queue with a bucket of time at each of these multiples of the width."""
    times = [BEGAN + timedelta(seconds=width * each) for each in seconds]
    rates = [{"bucket": at, "queue": queue, "messages": 60, "bytes": 6000, "peak_second": 9} for at in times]
    latency = [{"bucket": at, "queue": queue, "in_queue_p99": 2.5} for at in times]
    sizes = {**dict.fromkeys(("p50", "p90", "p99", "most"), 100), "share_embedded": 1.0, "properties_p50": 3}
    deaths = {"queue": queue, "reason": "expired", "source": queue, "messages": 1, "first": BEGAN, "last": BEGAN}
    return {
        "rates": rates,
        "latency": latency,
        "sizes": [{"queue": queue, "messages": 60, **sizes}],
        "keys": [{"exchange": "", "routing_key": key, "messages": 60, "share": 1.0}],
        "dead_letters": [deaths],
        "redelivery": [{"queue": queue, "share_redelivered": 0.5, "repeated_ids": 0}],
        "holes": [],
    }


NAMES = ["$x^^$", "a $5 and b $6", r"\$", "_hidden", "<script>alert(1)</script>", "--><b>", "日本🐇", "line\nbreak\0"]


@pytest.mark.parametrize("name", NAMES)
def test_a_report_shows_every_name_that_a_client_may_choose(name, recwarn):
    """Names are neither formulas nor HTML, and no line is left out of a legend."""
    page = report_page(tables(queue=name, key=name), 60, "1m")
    assert "<script" not in page and "<b>" not in page and page.count("<svg") == 4
    assert len(re.findall(r'<g id="legend_1">.*?</g>\s*</g>', page, re.DOTALL)) == 3
    # The plots of rates, sizes, waiting times and keys, beside the tables and the sentences.
    shown = label(name).replace(r"\$", "$").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert page.count(shown.strip()) >= 4
    assert not [each for each in recwarn if "Glyph" in str(each.message)]


def test_long_names_leave_room_for_the_plot(recwarn):
    page = report_page(tables(queue="q" * 255, key="k" * 255), 60, "1m")
    assert "q" * (LABEL - 1) + "…" in page and not recwarn.list


def test_two_long_names_are_two_bars():
    rows = tables()
    one, other = ({**rows["keys"][0], "routing_key": "k" * 200 + end} for end in "ab")
    page = report_page({**rows, "keys": [one, other]}, 60, "1m")
    assert page.count("<text") > 0 and len(re.findall("k{20}…", page)) == 2


def test_a_report_of_months_stays_small():
    """The report has less than 2 MB, however many buckets of time the tables have."""
    rows = [tables(f"queue {number}", seconds=range(20_000)) for number in range(3)]
    page = report_page({name: sum((each[name] for each in rows), []) for name in rows[0]}, 60, "1m")
    assert len(page) < 2_000_000


def test_a_line_is_at_zero_where_nothing_came():
    at = [BEGAN + timedelta(minutes=each) for each in range(5)]
    times, values = line({at[0]: 5.0, at[1]: 6.0, at[4]: 7.0}, at[0], at[4], 60, 0.0)
    assert (times, values) == (at, [5.0, 6.0, 0.0, 0.0, 7.0])
    assert math.isnan(line({at[0]: 5.0, at[4]: 7.0}, at[0], at[4], 60, math.nan)[1][2])
    assert line({at[0]: 5.0}, at[0], at[0], 60, 0.0) == ([at[0]], [5.0])


def test_with_too_many_buckets_a_point_shows_the_greatest_of_several():
    """A publisher may date a message as it likes, so that buckets may be centuries apart."""
    late = datetime(9999, 12, 31, tzinfo=UTC)
    times, values = line({BEGAN: 1.0, BEGAN + timedelta(minutes=1): 8.0, late: 3.0}, BEGAN, late, 60, 0.0)
    assert len(times) == len(values) <= POINTS
    assert (times[0], values[0], values[-1]) == (BEGAN, 8.0, 3.0) and set(values[1:-1]) == {0.0}


def test_the_rates_of_a_node_are_interrupted_where_no_sample_came():
    def row(second):
        begin = BEGAN + timedelta(seconds=second)
        what = (None, 0.0, None, 0, None, None, None)
        return FlowRow(begin, begin + timedelta(seconds=10), "$a$@h", STAGES[0], *what, 5.0, 5.0, 5.0, 5.0)

    whole, interrupted = (flow_page([row(each) for each in some], [], 10) for some in ((0, 10, 20, 30), (0, 30)))
    segments = []
    for page in (whole, interrupted):
        # The first path of this colour is the line; others are its marks and its place in the legend.
        first, *_ = re.findall(r'<path d="([^"]*)"[^>]*stroke: #1f77b4', page)
        segments.append(first.count("L"))
    assert segments == [3, 0]
