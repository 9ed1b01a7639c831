"""Rates and samples over time, by a clock that the tests set."""

from warren.management.copy.history import GLOBAL_RETENTION, TRACKS_KEPT, History


def ticked(history, count, values, start=0, seconds=5):
    for number in range(start, start + count):
        history.begin_tick(1_000.0 + number * seconds)
        history.put("thing", [values(number)])


def test_a_rate_is_what_came_in_the_last_interval():
    history = History()
    ticked(history, 3, lambda number: number * 10)
    assert history.get("thing").rate(0, history.tick) == 2.0


def test_the_rate_of_something_that_did_nothing_in_the_last_interval_is_0():
    history = History()
    ticked(history, 3, lambda number: number * 10)
    history.begin_tick(1_015.0)
    assert history.get("thing").rate(0, history.tick) == 0.0
    history.begin_tick(1_020.0)
    history.put("thing", [30])
    assert history.get("thing").rate(0, history.tick) == 2.0


def test_what_a_new_thing_has_counted_came_in_its_first_interval():
    history = History()
    ticked(history, 2, lambda number: number)
    history.begin_tick(1_010.0)
    history.put("new", [50])
    assert history.get("new").rate(0, history.tick) == 10.0


def test_what_was_counted_before_the_first_tick_is_no_rate():
    history = History()
    history.begin_tick(1_000.0)
    history.put("old", [1_000_000])
    assert history.get("old").rate(0, history.tick) == 0.0


def test_samples_come_newest_first_at_the_wanted_distance():
    """Samples are answered newest first, at the distance that the request asks for (CM-249)."""
    history = History()
    ticked(history, 10, lambda number: number)
    found = history.get("thing").range(0, 20, 5, history.time)
    assert found == [(1_045_000, 9), (1_040_000, 8), (1_035_000, 7), (1_030_000, 6), (1_025_000, 5)]


def test_between_two_samples_the_older_one_holds():
    history = History()
    ticked(history, 2, lambda number: number)
    history.begin_tick(1_030.0)
    found = history.get("thing").range(0, 30, 10, history.time)
    assert found == [(1_030_000, 1), (1_020_000, 1), (1_010_000, 1), (1_000_000, 0)]


def test_old_samples_are_kept_at_larger_distances():
    """Older samples are kept at larger distances, so that a day's history takes bounded memory (CM-249)."""
    history = History()
    for number in range(3_000):
        history.begin_tick(600_000.0 + number * 5)
        history.put("thing", [number], GLOBAL_RETENTION)
    track = history.get("thing")
    assert [value for _, value in track.range(0, 60, 5, history.time)] == list(range(2_999, 2_986, -1))
    hours = track.range(0, 10_800, 600, history.time)
    assert len(hours) == 19
    assert all(abs(value - (time / 1000 - 600_000) / 5) <= 120 for time, value in hours)


def test_the_samples_of_many_things_fill_a_bounded_memory():
    history = History()
    for number in range(TRACKS_KEPT + 10):
        history.begin_tick(1_000.0 + 5 * number)
        history.put(number, [1, 2, 3])
    assert sum(bool(history.get(number).rings) for number in range(TRACKS_KEPT + 10)) == TRACKS_KEPT
    assert history.get(TRACKS_KEPT + 9).rings
