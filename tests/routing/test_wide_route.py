"""Routes to very many queues, which are looked up a part at a time."""

from __future__ import annotations

import pytest

from warren.amqp.fields import Table
from warren.routing.changes import BindingAdded, BindingRemoved, ExchangePut, ExchangeRemoved, QueueRemoved
from warren.routing.rows import Binding, ExchangeRow, QueueRow
from warren.routing.table import RoutingTable
from warren.routing.wide_route import WideRoute

WIDE = 4
MANY = 10


@pytest.fixture
def table():
    """A fanout exchange with `MANY` queues, and another exchange that is bound to it."""
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
    """A route that is looked up a part at a time is the same as one that is looked up at once."""
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
    """Channels that publish to the same queues share the route until the table changes, so only the first message after
    a change waits.
    """
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


@pytest.fixture
def chain(table):
    """Ten exchanges, each bound to the one before; the third, the sixth and the last have a queue each."""
    for number in range(MANY):
        table.publish([ExchangePut(ExchangeRow("/", f"e{number}", "fanout"))])
        if number:
            table.publish([BindingAdded("/", Binding(f"e{number - 1}", "exchange", f"e{number}", "", Table()), True)])
    for number, queue in ((2, "q2"), (5, "q5"), (MANY - 1, "q9")):
        table.publish([BindingAdded("/", Binding(f"e{number}", "queue", queue, "", Table()), True)])
    return table


def test_a_long_way_through_exchanges_is_followed_a_part_at_a_time(chain):
    """A long chain of exchanges is followed a part at a time: one of 20,000 would take its channel 30 ms in
    one turn.
    """
    route = chain.begin_route("/", "e0", ("",))
    assert isinstance(route, WideRoute)
    assert (route.look_up(4), route.rows) == (4, None)
    assert route.look_up(100) == MANY - WIDE - 4 + 3, "the exchanges that are left, then the queues"
    assert names(route.rows) == ["q2", "q5", "q9"] == names(chain.route("/", "e0", ("",)))


def test_an_exchange_that_goes_before_the_message_comes_is_not_visited(chain):
    route = chain.begin_route("/", "e0", ("",))
    chain.publish([ExchangeRemoved(ExchangeRow("/", "e6", "fanout"))])
    route.look_up(MANY)
    assert names(route.rows) == ["q2", "q5"]


def test_a_long_way_without_any_queue_leads_nowhere(chain):
    for number, queue in ((2, "q2"), (5, "q5"), (MANY - 1, "q9")):
        chain.publish([BindingRemoved("/", Binding(f"e{number}", "queue", queue, "", Table()), True)])
    route = chain.begin_route("/", "e0", ("",))
    while route.rows is None:
        route.look_up(1)
    assert route.rows == ()


def test_behind_very_many_exchanges_any_header_may_decide(chain):
    """Behind very many exchanges every header is taken to matter, because to find out would take as long as following
    the chain.
    """
    assert not chain.depends_on_headers("/", f"e{MANY - WIDE}")
    assert chain.header_names("/", f"e{MANY - WIDE}") == frozenset()
    assert chain.depends_on_headers("/", "e0")
    assert chain.header_names("/", "e0") is None
