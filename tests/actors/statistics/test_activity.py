"""A reader of statistics reads only the processes that had a turn since it read last."""

from itertools import chain

from warren.actors.statistics.activity import PASSED, Activity


class Thing:
    """Stands for a process, with the attributes that statistics read."""

    def __init__(self, activity, name):
        self.activity = activity
        self.name = name
        self.round = 0
        self.flow = {}
        activity.enter(name, "queue", self)

    def turn(self):
        if self.activity.round != self.round:
            self.round = self.activity.round
            self.activity.note(self.name)

    def statistics(self):
        return {"name": self.name, **self.flow}


def things(activity, *names):
    return [Thing(activity, name) for name in names]


def take(feed, most=100):
    """The ids of all processes that may have changed, and of those that have ended."""
    parts, ended = feed.take(most)
    return list(chain.from_iterable(parts)), ended


def test_the_first_reading_has_everything_and_later_ones_what_had_a_turn():
    activity = Activity()
    first, second = things(activity, "first", "second")
    feed = activity.open()
    assert take(feed) == (["first", "second"], [])
    assert take(feed) == ([], [])
    second.turn()
    second.turn()
    assert take(feed) == (["second"], [])
    first.turn()
    second.turn()
    assert take(feed) == (["first", "second"], [])
    assert feed.read("first") == ("queue", {"name": "first"})


def test_what_was_blocked_lately_is_read_again_without_a_turn():
    """A process that was blocked a short time ago is read again without a turn, because its share of the last seconds
    falls.
    """
    activity = Activity()
    (thing,) = things(activity, "thing")
    feed = activity.open()
    for thing.flow in ({"state": "flow"}, {"state": "running", "blocked_share": 0.4}, {"blocked_share": 0.0}):
        assert take(feed)[0] == ["thing"]
        feed.read("thing")
    assert take(feed)[0] == []


def test_what_begins_and_ends_between_two_readings_is_told():
    activity = Activity()
    feed = activity.open()
    (short,) = things(activity, "short")
    activity.leave("short")
    assert take(feed) == ([], [("queue", "short")])
    assert feed.read("short") is None
    (other,) = things(activity, "other")
    assert take(feed) == (["other"], [])
    other.turn()
    activity.leave("other")
    activity.leave("other")
    changed, ended = take(feed)
    assert ended == [("queue", "other")]
    assert [feed.read(each) for each in changed if feed.read(each) is not None] == []


def test_each_reader_has_all_that_changed():
    activity = Activity()
    (thing,) = things(activity, "thing")
    one, other = activity.open(), activity.open()
    assert take(one)[0] == take(other)[0] == ["thing"]
    thing.turn()
    assert take(one)[0] == ["thing"]
    assert take(other)[0] == ["thing"]
    assert take(one)[0] == take(other)[0] == []


def test_while_nobody_reads_nothing_piles_up():
    activity = Activity()
    (thing,) = things(activity, "thing")
    feed = activity.open()
    take(feed)
    feed.close()
    assert activity.round == 0
    for _ in range(100):
        thing.turn()
    things(activity, *(f"more {number}" for number in range(10)))
    for number in range(10):
        activity.leave(f"more {number}")
    assert activity._changed == []
    assert take(activity.open()) == (["thing"], [])


def test_what_changed_comes_in_parts_each_process_once():
    """Changes come in parts, each process once. A reader pauses between two parts, so a process may end before its part
    comes.
    """
    activity = Activity()
    many = things(activity, *map(str, range(250)))
    feed, other = activity.open(), activity.open()
    take(feed), take(other)
    late = things(activity, "late")
    for _ in range(3):
        for thing in (*many, *late):
            thing.turn()
        take(other)
    parts, _ = feed.take(100)
    first = next(parts)
    activity.leave("249")
    found = [first, *parts]
    assert max(map(len, found)) <= 100
    assert sorted(chain.from_iterable(found)) == sorted(["late", *map(str, range(249))])


def test_a_reader_pauses_between_processes_that_have_ended():
    activity = Activity()
    many = things(activity, *map(str, range(5 * PASSED)))
    feed = activity.open()
    for thing in many:
        activity.leave(thing.name)
    parts, ended = feed.take(10)
    assert len(list(parts)) >= 5
    assert len(ended) == len(many)
