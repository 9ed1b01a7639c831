"""Metadata makes the checks of amqp-broker section 7 in their order, and requests about one name take turns (AB-64 to
AB-66, AB-73, AB-77, AB-82 to AB-91).
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from thespian.actors import ActorExitRequest

from warren.actors.metadata.queues.queues import Queues
from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.runtime.system.address import LoopAddress

from ..meta import MINE, THEIRS, Meta, V

WAIT = 300.0


@pytest.fixture
def meta(client, metadata):
    return Meta(client, metadata)


def refused(code, text, function, *arguments, **options):
    with pytest.raises(AmqpError) as caught:
        function(*arguments, **options)
    assert (caught.value.code, caught.value.text) == (code, text)


DEFAULT = 403, "operation not permitted on the default exchange"


class TestExchangeDeclare:
    def test_creates_a_row(self, meta, routing):
        """A declare puts the exchange into the routing table; an equivalent one leaves its row as it is."""
        assert meta.exchange("x", "topic", durable=True, internal=True, alternate_exchange="ae") is None
        row = routing.exchange(V, "x")
        assert (row.type, row.durable, row.auto_delete, row.internal, row.alternate) == (
            "topic",
            True,
            False,
            True,
            "ae",
        )
        meta.exchange("x", "topic", durable=True, internal=True, alternate_exchange="ae", other=1)
        assert routing.exchange(V, "x") is row

    def test_checks_in_order(self, meta):
        """Only the first fault is reported: type, default exchange, reserved prefix, arguments."""
        refused(503, "unknown exchange type 'x-odd'", meta.exchange, "", "x-odd")
        refused(*DEFAULT, meta.exchange, "")
        reserved = "exchange name 'amq.x' contains reserved prefix 'amq.*'"
        refused(403, reserved, meta.exchange, "amq.x", alternate_exchange=1)
        invalid = "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
        refused(406, invalid, meta.exchange, "x", alternate_exchange=1)

    def test_declaring_a_default_exchange_as_it_is_succeeds(self, meta):
        """A predefined exchange may be declared with its own properties; others are refused with 406 (AB-65)."""
        meta.exchange("amq.direct", durable=True)
        text = (
            "inequivalent arg 'durable' for exchange 'amq.direct' in vhost '/': received 'false' but current is 'true'"
        )
        refused(406, text, meta.exchange, "amq.direct")

    def test_differences_are_refused(self, meta):
        """A declare with another type is refused with 406; the type is compared first (AB-66)."""
        meta.exchange("x")
        text = "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"
        refused(406, text, meta.exchange, "x", "fanout", durable=True)


class TestExchangeDelete:
    def test_checks_in_order(self, meta, routing):
        """System exchanges are never deleted, absent ones are no error, and `if_unused` refuses a bound one."""
        refused(*DEFAULT, meta.delete_exchange, "")
        for name in ("amq.direct", "amq.absent"):
            refused(403, f"deletion of system exchange '{name}' in vhost '/' not allowed", meta.delete_exchange, name)
        assert meta.delete_exchange("absent") is None
        meta.exchange("x")
        meta.queue("q")
        meta.bind("q", "x")
        refused(406, "exchange 'x' in vhost '/' in use", meta.delete_exchange, "x", if_unused=True)
        meta.delete_exchange("x")
        assert routing.exchange(V, "x") is None

    def test_being_a_destination_is_not_use(self, meta, routing):
        """`if_unused` counts bindings from the exchange, not bindings to it."""
        meta.exchange("x")
        meta.bind("x", "amq.direct", kind="exchange")
        meta.delete_exchange("x", if_unused=True)
        assert routing.exchange(V, "x") is None and not meta.is_source("amq.direct")


class TestBind:
    def test_queue_checks_in_order(self, meta, routing):
        """Only the first fault is reported: default exchange, exchange, queue, arguments, owner."""
        refused(*DEFAULT, meta.bind, "absent", "")
        refused(404, "no exchange 'absent' in vhost '/'", meta.bind, "absent", "absent")
        refused(
            404, "no queue 'absent' in vhost '/'", meta.bind, "absent", "amq.headers", arguments={"x-match": "some"}
        )
        meta.queue("q", owner=THEIRS)
        invalid = 'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'
        refused(406, invalid, meta.bind, "q", "amq.headers", arguments={"x-match": "some"})
        with pytest.raises(AmqpError) as caught:
            meta.bind("q", "amq.headers")
        assert caught.value.code == 405
        assert meta.bind("q", "amq.headers", connection=THEIRS) is None
        assert meta.is_source("amq.headers")

    def test_exchange_checks_in_order(self, meta, routing):
        """Only the first fault is reported: default exchange, source, destination."""
        refused(*DEFAULT, meta.bind, "", "amq.direct", kind="exchange")
        refused(*DEFAULT, meta.bind, "amq.direct", "", kind="exchange")
        refused(404, "no exchange 'source' in vhost '/'", meta.bind, "destination", "source", kind="exchange")
        refused(404, "no exchange 'destination' in vhost '/'", meta.bind, "destination", "amq.direct", kind="exchange")
        assert meta.bind("amq.fanout", "amq.direct", kind="exchange") is None
        assert meta.is_source("amq.direct")

    def test_unbind_succeeds_whatever_is_missing(self, meta):
        """An unbind of what does not exist succeeds; the owner of a queue is checked if the binding exists."""
        refused(*DEFAULT, meta.unbind, "q", "")
        refused(*DEFAULT, meta.unbind, "", "amq.direct", kind="exchange")
        assert meta.unbind("absent", "absent") is None
        meta.queue("q", owner=THEIRS)
        assert meta.unbind("q", "amq.direct") is None  # Without a binding the owner of the queue is not checked.
        meta.bind("q", "amq.direct", connection=THEIRS)
        with pytest.raises(AmqpError) as caught:
            meta.unbind("q", "amq.direct")
        assert caught.value.code == 405
        assert meta.unbind("q", "amq.direct", connection=THEIRS) is None

    def test_unbind_ends_an_auto_delete_exchange(self, meta, routing):
        """An auto-delete exchange is deleted with its last binding (AB-77)."""
        meta.exchange("x", auto_delete=True)
        meta.queue("q")
        meta.bind("q", "x")
        meta.bind("q", "x")
        meta.unbind("q", "x")
        assert routing.exchange(V, "x") is None


class TestQueueDeclare:
    def test_creates_a_queue_and_its_row(self, meta, routing, client):
        """A declare starts the process of the queue and puts its row into the routing table."""
        row, created = meta.queue("q", durable=True, auto_delete=True, arguments={"x-max-length": 5})
        assert created and routing.queue(V, "q") == row
        assert (row.durable, row.auto_delete, row.exclusive_owner, row.type, row.state) == (
            True,
            True,
            None,
            "classic",
            "running",
        )
        assert client.ask(row.address, ("row",), WAIT) == (row, False)
        assert meta.queue("q", durable=True, auto_delete=True, arguments={"x-max-length": 5}) == (row, False)

    def test_server_named(self, meta, routing):
        """An empty name makes the broker generate a new `amq.gen-` name, for classic queues only (AB-82)."""
        row, created = meta.queue("")
        assert created and row.name.startswith("amq.gen-") and len(row.name) == 8 + 22
        assert meta.queue("")[0].name != row.name
        text = "Cannot declare a server-named queue for type rabbit_quorum_queue"
        refused(406, text, meta.queue, "", arguments={"x-queue-type": "quorum"})
        # A client cannot declare the name itself, because it is reserved like all names with this prefix (AB-65).
        refused(403, f"queue name '{row.name}' contains reserved prefix 'amq.*'", meta.queue, row.name)

    def test_checks_in_order(self, meta):
        """A new queue is checked for its name, then its arguments; an existing one for equivalence only."""
        refused(
            403, "queue name 'amq.q' contains reserved prefix 'amq.*'", meta.queue, "amq.q", arguments={"x-expires": 0}
        )
        text = "invalid arg 'x-expires' for queue 'q' in vhost '/': {value_zero,0}"
        refused(406, text, meta.queue, "q", arguments={"x-expires": 0})
        meta.queue("q")
        text = "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'"
        refused(406, text, meta.queue, "q", durable=True, arguments={"x-expires": 0})
        text = (
            "inequivalent arg 'x-expires' for queue 'q' in vhost '/': "
            "received the value '0' of type 'signedint' but current is none"
        )
        refused(406, text, meta.queue, "q", arguments={"x-expires": 0})

    def test_ownership_is_strict(self, meta):
        """Even the owner must declare an exclusive queue as exclusive again (AB-84)."""
        meta.queue("q", owner=MINE, durable=True)
        meta.queue("q", owner=MINE)
        for options in ({"owner": THEIRS}, {"connection": MINE}, {"connection": THEIRS}):
            with pytest.raises(AmqpError) as caught:
                meta.queue("q", **options)
            assert caught.value.code == 405
        meta.queue("shared")
        with pytest.raises(AmqpError) as caught:
            meta.queue("shared", owner=MINE)
        assert caught.value.code == 405

    def test_exclusive_queues_are_not_durable(self, meta):
        """An exclusive queue is declared as transient, whatever the client asks for (AB-83)."""
        assert meta.queue("q", owner=MINE, durable=True)[0].durable is False

    def test_a_new_queue_under_an_old_name_has_another_id(self, meta):
        """A queue declared again after its deletion is another queue, with an id of its own."""
        row, _ = meta.queue("q")
        meta.delete("q")
        assert meta.queue("q")[0].queue_id != row.queue_id

    def test_an_unknown_vhost(self, meta):
        """A declare in a virtual host that does not exist is refused with 320."""
        refused(
            320, "vhost 'none' is deleted", meta.ask, "declare_queue", "none", "q", False, None, False, Table(), MINE
        )


class TestQueueDelete:
    def test_answers_with_the_count_and_takes_the_row(self, meta, routing):
        """A deletion returns the number of ready messages and removes the row with its bindings."""
        meta.queue("q")
        meta.bind("q", "amq.direct")
        assert meta.delete("q") == 7
        assert routing.queue(V, "q") is None and not meta.is_source("amq.direct")
        assert meta.delete("q") == 0

    def test_of_somebody_else(self, meta):
        """The exclusive queue of another connection cannot be deleted (405)."""
        meta.queue("q", owner=THEIRS)
        with pytest.raises(AmqpError) as caught:
            meta.delete("q")
        assert caught.value.code == 405

    def test_the_queue_may_refuse(self, meta, routing, client):
        """A queue that refuses its deletion, because it is not empty, stays in the routing table."""
        row, _ = meta.queue("q")
        client.ask(row.address, ("refuse", "queue 'q' in vhost '/' not empty"), WAIT)
        refused(406, "queue 'q' in vhost '/' not empty", meta.delete, "q", if_empty=True)
        assert routing.queue(V, "q") == row

    def test_of_a_crashed_queue(self, meta, routing):
        """A queue that crashed for good refuses declares with 404 until it is deleted (AB-63)."""
        row, _ = meta.queue("q")
        meta.client.tell(meta.address, ("queue_crashed", V, "q", row.queue_id))
        refused(404, "queue 'q' in vhost '/' has crashed and failed to restart", meta.queue, "q")
        assert routing.queue(V, "q").state == "crashed"
        assert meta.delete("q") == 0
        assert routing.queue(V, "q") is None

    def test_that_crashes_meanwhile(self, meta, routing, client, ask_all):
        """A queue that crashes while it is being deleted is deleted all the same, and the next declare creates another
        one.
        """
        row, _ = meta.queue("q")
        client.ask(row.address, ("hold",), WAIT)
        client.tell(meta.address, ("delete_queue", V, "q", False, False, MINE))
        client.tell(row.address, ("crash",))
        assert meta.queue("q")[1] is True  # The declare waited for the deletion.
        assert routing.queue(V, "q").queue_id != row.queue_id


class TestQueueGone:
    def test_takes_the_row(self, meta, routing, client, eventually):
        """A queue that ends by itself leaves the routing table."""
        row, _ = meta.queue("q", owner=MINE)
        client.tell(row.address, ("leave",))
        eventually(lambda: routing.queue(V, "q") is None)
        assert meta.queue("q")[1] is True

    def test_of_an_older_queue_changes_nothing(self, meta, routing):
        """`queue_gone` with the id of an earlier queue does not remove the queue that has the name now."""
        old, _ = meta.queue("q")
        meta.delete("q")
        new, _ = meta.queue("q")
        assert meta.ask("queue_gone", V, "q", old.queue_id) is None
        assert routing.queue(V, "q") == new
        assert meta.ask("queue_gone", V, "absent", "id") is None

    def test_of_a_process_that_has_crashed_says_nothing_of_the_next_process(self):
        """When a queue's crashed process has asked to end the queue, its next process is not ended by that request.
        Both had asked to end by themselves, and the supervisor once killed the second before it had answered its asks.
        """
        changing = SimpleNamespace(leaving={}, note=lambda command: asyncio.sleep(0))
        queues = SimpleNamespace(
            _changing=changing, _deletion_of=lambda *_: None, _is_restarted=lambda *_: False, _deleted_by={}
        )
        first, second = (Queues.leaves(queues, V, "q", "id", LoopAddress(name)) for name in ("first", "second"))
        first.send(None)
        second.send(None)
        with pytest.raises(StopIteration):
            first.send(None)
        assert changing.leaving == {"id": LoopAddress("second")}
        with pytest.raises(StopIteration):
            second.send(None)
        assert not changing.leaving


class TestAtTheSameTime:
    def test_many_declare_one_queue(self, meta, ask_all):
        """Of 50 declares of one name at the same time exactly one creates the queue."""
        answers = ask_all(meta.address, *[meta.queue_message("q")] * 50)
        assert [created for _, created in answers] == [True] + [False] * 49
        assert len({row.queue_id for row, _ in answers}) == 1

    def test_a_slow_deletion_holds_up_its_own_name_alone(self, meta, routing, client, ask_all):
        """While a queue is slow to end, requests for other names are served, and requests for its own name wait."""
        slow, _ = meta.queue("slow")
        client.ask(slow.address, ("hold",), WAIT)
        client.tell(meta.address, meta.delete_message("slow"))
        assert meta.queue("other")[1] is True
        meta.exchange("x")
        assert meta.bind("slow", "x") is None  # The row stays until the queue has answered.
        client.tell(meta.address, meta.queue_message("slow"))
        assert meta.delete("other") == 7
        assert routing.queue(V, "slow") == slow
        client.tell(slow.address, ("release",))
        row, created = meta.queue("slow")
        assert not created and row.queue_id != slow.queue_id
        assert not meta.is_source("x")

    def test_declare_and_delete_in_a_row(self, meta, ask_all, routing):
        """Declares and deletions of one name take effect in the order of their requests."""
        messages = [meta.queue_message("q"), meta.delete_message("q")] * 20
        answers = ask_all(meta.address, *messages)
        assert all(created for _, created in answers[::2]) and answers[1::2] == [7] * 20
        assert routing.queue(V, "q") is None

    def test_refusals_reach_their_own_asker(self, meta, ask_all):
        """A declare that is refused between two accepted ones gets the error alone."""
        answers = ask_all(
            meta.address, meta.queue_message("q"), meta.queue_message("q", durable=True), meta.queue_message("q")
        )
        assert answers[0][1] is True and answers[2][1] is False
        assert isinstance(answers[1], AmqpError)


class TestExclusiveQueues:
    def test_go_with_their_connection(self, meta, routing):
        """The end of a connection deletes its exclusive queues and no others (AB-84)."""
        for name in ("a", "b"):
            meta.queue(name, owner=MINE)
        meta.queue("theirs", owner=THEIRS)
        meta.queue("shared")
        assert meta.ask("delete_exclusive", MINE) is None
        assert {row.name for row in routing.queues(V)} == {"theirs", "shared"}
        assert meta.ask("delete_exclusive", MINE) is None

    def test_one_that_is_slow_does_not_keep_the_others(self, meta, routing, client, eventually):
        """The exclusive queues of a connection are deleted at the same time, so one that is slow does not delay the
        others.
        """
        row, _ = meta.queue("a", owner=MINE)
        meta.queue("b", owner=MINE)
        client.ask(row.address, ("hold",), WAIT)
        client.tell(meta.address, ("delete_exclusive", MINE))
        eventually(lambda: [row.name for row in routing.queues(V)] == ["a"])
        client.tell(row.address, ("release",))
        assert meta.ask("delete_exclusive", MINE) is None
        assert routing.queues(V) == ()


class TestVhosts:
    def test_creating_one_again_is_success(self, meta, routing):
        """Creating a virtual host that exists changes nothing (AB-169)."""
        meta.queue("q")
        assert meta.ask("create_vhost", V) is None
        assert routing.queue(V, "q") is not None

    def test_one_that_is_down(self, meta, routing):
        """In a virtual host that is down, queues count as stopped, declares are refused, and deletions work."""
        meta.queue("q")
        meta.client.tell(meta.address, ("vhost_down", V))
        refused(404, "queue 'q' in vhost '/' process is stopped by supervisor", meta.queue, "q")
        refused(541, "vhost '/' is down", meta.queue, "new")
        assert meta.delete("q") == 0

    def test_one_that_goes_down_meanwhile(self, meta, client, stub_node):
        """A virtual host whose supervisor has just ended refuses declares before `vhost_down` arrives."""
        meta.queue("q", owner=MINE)
        supervisor = client.ask(stub_node, ("queue_supervisor", V), WAIT)
        client.tell(supervisor, ActorExitRequest())
        refused(541, "vhost '/' is down", meta.queue, "new")
        assert meta.ask("delete_exclusive", MINE) is None


class TestReplyChannels:
    def test_are_forgotten_when_they_end(self, meta, routing, client, system, eventually):
        """A channel for direct replies leaves the routing table when it unregisters or ends."""
        row, _ = meta.queue("stands in for a channel")
        assert meta.ask("register_reply", "c", row.address) is None
        assert routing.reply_channel("c") == row.address
        assert meta.ask("unregister_reply", "c") is None
        assert routing.reply_channel("c") is None
        meta.ask("register_reply", "c", row.address)
        client.tell(row.address, ActorExitRequest())
        eventually(lambda: routing.reply_channel("c") is None)


class TestList:
    def test_kinds(self, meta):
        """Every kind of listing has rabbitmqctl's info items."""
        meta.exchange("x", "topic", durable=True, alternate_exchange="ae")
        meta.queue("q", owner=MINE)
        meta.bind("q", "x", key="a.b", arguments={"n": 1})
        assert meta.ask("list", "vhosts", None) == [{"name": V}]
        exchanges = {row["name"]: row for row in meta.ask("list", "exchanges", V)}
        assert len(exchanges) == 8
        assert (exchanges["x"]["type"], exchanges["x"]["durable"]) == ("topic", True)
        [queue] = meta.ask("list", "queues", None)
        assert (queue["name"], queue["exclusive"], queue["state"]) == ("q", True, "running")
        implicit, explicit = meta.ask("list", "bindings", V)
        assert (implicit["source_name"], implicit["routing_key"]) == ("", "q")
        assert explicit == {
            "vhost": V,
            "source_name": "x",
            "source_kind": "exchange",
            "destination_name": "q",
            "destination_kind": "queue",
            "routing_key": "a.b",
            "arguments": table_from({"n": 1}),
        }
