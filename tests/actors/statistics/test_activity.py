"""Which processes a reader of statistics looks at: those that had a turn since it looked last."""

from warren.actors.statistics.activity import Activity


class Thing:
    """A process as statistics see it."""

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


def test_the_first_reading_has_everything_and_later_ones_what_had_a_turn():
    activity = Activity()
    first, second = things(activity, "first", "second")
    feed = activity.open()
    assert feed.take() == (["first", "second"], [])
    assert feed.take() == ([], [])
    second.turn()
    second.turn()
    assert feed.take() == (["second"], [])
    first.turn()
    second.turn()
    assert feed.take() == (["first", "second"], [])
    assert feed.read("first") == ("queue", {"name": "first"})


def test_what_was_blocked_lately_is_read_again_without_a_turn():
    """A block ends, and its share of the last seconds falls, while the process has no turn."""
    activity = Activity()
    (thing,) = things(activity, "thing")
    feed = activity.open()
    for thing.flow in ({"state": "flow"}, {"state": "running", "blocked_share": 0.4}, {"blocked_share": 0.0}):
        assert feed.take()[0] == ["thing"]
        feed.read("thing")
    assert feed.take()[0] == []


def test_what_begins_and_ends_between_two_readings_is_told():
    activity = Activity()
    feed = activity.open()
    (short,) = things(activity, "short")
    activity.leave("short")
    assert feed.take() == ([], [("queue", "short")])
    assert feed.read("short") is None
    (other,) = things(activity, "other")
    assert feed.take() == (["other"], [])
    other.turn()
    activity.leave("other")
    activity.leave("other")
    changed, ended = feed.take()
    assert ended == [("queue", "other")]
    assert [feed.read(each) for each in changed if feed.read(each) is not None] == []


def test_each_reader_has_all_that_changed():
    activity = Activity()
    (thing,) = things(activity, "thing")
    one, other = activity.open(), activity.open()
    assert one.take()[0] == other.take()[0] == ["thing"]
    thing.turn()
    assert one.take()[0] == ["thing"]
    assert other.take()[0] == ["thing"]
    assert one.take()[0] == other.take()[0] == []


def test_while_nobody_reads_nothing_piles_up():
    activity = Activity()
    (thing,) = things(activity, "thing")
    feed = activity.open()
    feed.take()
    feed.close()
    assert activity.round == 0
    for _ in range(100):
        thing.turn()
    things(activity, *(f"more {number}" for number in range(10)))
    for number in range(10):
        activity.leave(f"more {number}")
    assert activity._changed == []
    assert activity.open().take() == (["thing"], [])
