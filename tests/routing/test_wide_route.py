"""Routes to very many queues, which are looked up a part at a time."""

from __future__ import annotations

import pytest

from warren.amqp.fields import Table
from warren.routing.changes import BindingAdded, ExchangePut, QueueRemoved
from warren.routing.rows import Binding, ExchangeRow, QueueRow
from warren.routing.table import RoutingTable
from warren.routing.wide_route import WideRoute

WIDE = 4
MANY = 10


@pytest.fixture
def table():
    """A fanout exchange with `MANY` queues, to which another exchange is bound."""
    table = RoutingTable(wide=WIDE)
    table.add_vhost("/")
    for name in ("many", "outer"):
        table.publish([ExchangePut(ExchangeRow("/", name, "fanout"))])
    for number in range(MANY):
        table.put_queue(row(f"q{number}"))
        table.publish([BindingAdded("/", Binding("many", "queue", f"q{number}", "", Table()), True)])
    table.publish([BindingAdded("/", Binding("outer", "exchange", "many", "", Table()), True)])
    return table


def row(name, queue_id="", **others):
    return QueueRow("/", name, "address", queue_id or name, **others)


def names(rows):
    return [row.name for row in rows]


@pytest.mark.parametrize("exchange", ["many", "outer"])
def test_the_queues_are_looked_up_a_part_at_a_time(table, exchange):
    """The result is that of a route which is looked up at once."""
    route = table.begin_route("/", exchange, ("",))
    assert isinstance(route, WideRoute)
    assert (route.look_up(4), route.rows) == (4, None)
    assert (route.look_up(4), route.rows) == (4, None)
    assert route.look_up(4) == 2
    assert names(route.rows) == [f"q{number}" for number in range(MANY)]
    assert route.look_up(4) == 0
    assert route.rows == table.route("/", exchange, ("",))


def test_a_queue_that_goes_before_its_look_up_is_left_out_and_its_successor_found(table):
    route = table.begin_route("/", "many", ("",))
    route.look_up(4)
    for number in (7, 8):
        table.publish([QueueRemoved(row(f"q{number}"))])
    table.put_queue(row("q8", "another"))
    route.look_up(MANY)
    assert names(route.rows) == [f"q{number}" for number in range(MANY) if number != 7]
    assert route.rows[7].queue_id == "another"


def test_who_publishes_to_the_same_queues_shares_the_route_until_the_table_changes(table):
    """Only the first message after a change waits."""
    route = table.begin_route("/", "many", ("",))
    assert table.begin_route("/", "many", ("another",)) is route
    table.put_queue(row("another"))
    assert table.begin_route("/", "many", ("",)) is not route


def test_extra_queues_are_found_and_each_queue_once(table):
    table.put_queue(row("q1", extra_queue="extra"))
    table.put_queue(row("q2", extra_queue="q1"))
    table.put_queue(row("extra"))
    route = table.begin_route("/", "many", ("",))
    while route.rows is None:
        route.look_up(3)
    assert sorted(names(route.rows)) == sorted([*(f"q{number}" for number in range(MANY)), "extra"])


def test_few_queues_are_looked_up_at_once(table):
    assert names(table.begin_rows("/", ["q1", "gone", "q3"])) == ["q1", "q3"]
    route = table.begin_rows("/", ["q1", "gone", "q3", "q4", "q5"])
    assert isinstance(route, WideRoute)
    route.look_up(MANY)
    assert names(route.rows) == ["q1", "q3", "q4", "q5"]
