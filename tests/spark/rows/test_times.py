"""Times of a search are compared to the microsecond with those of messages."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from warren.spark.jobs.rows_in_utc import micros_of


@given(st.integers(-(1 << 55), 1 << 57), st.integers(-23, 23))
@example(1_795_516_200_000_003, 1)
def test_a_time_in_microseconds_is_exact(micros, hours):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    assert micros_of(moment.astimezone(timezone(timedelta(hours=hours)))) == micros
