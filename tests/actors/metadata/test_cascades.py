"""Requests that arrive while a chain of auto-delete exchanges is being deleted, which takes many turns (AB-77)."""

from __future__ import annotations

import pytest

from warren.runtime.turn_work import STEP

from ..meta import MINE, Meta, V

MANY = 4 * STEP


@pytest.fixture
def meta(client, metadata):
    return Meta(client, metadata)


@pytest.fixture
def chain(meta, ask_all):
    """Auto-delete exchanges `x0` to the last one, each bound to the next, the last one to the queue `q`."""
    meta.queue("q")
    meta.queue("other")
    names = [f"x{number}" for number in range(MANY)]
    bindings = [("bind", V, "exchange", onto, source, "", (), MINE) for source, onto in zip(names, names[1:])]
    declared = [meta.exchange_message(name, "fanout", auto_delete=True) for name in names]
    assert not any(ask_all(meta.address, *declared, *bindings))
    meta.bind("q", names[-1])
    return names


def unbind(exchange, queue="q"):
    return "unbind", V, "queue", queue, exchange, "k", (), MINE


def bind(queue, exchange):
    return "bind", V, "queue", queue, exchange, "k", (), MINE


def left(routing, chain):
    return [name for name in chain if routing.exchange(V, name) is not None]


def test_a_binding_that_would_keep_an_exchange_waits_until_it_is_gone(meta, ask_all, chain, routing):
    """A bind to an exchange that is being deleted waits until it is gone, and is refused: the deletion has begun, and
    the exchange could not stay without the bindings it had.
    """
    answers = ask_all(meta.address, unbind(chain[-1]), bind("other", chain[-2]))
    assert answers[0] is None and answers[1].code == 404
    assert not left(routing, chain) and not meta.is_source(chain[-2])


def test_an_exchange_that_goes_can_be_declared_anew(meta, ask_all, chain, routing):
    answers = ask_all(meta.address, unbind(chain[-1]), meta.exchange_message(chain[-2], "topic"))
    assert answers == [None, None]
    assert left(routing, chain) == [chain[-2]] and routing.exchange(V, chain[-2]).type == "topic"


def test_a_binding_that_came_first_keeps_its_exchange_and_those_bound_to_it(meta, ask_all, chain, routing):
    kept = MANY - 2 * STEP
    assert ask_all(meta.address, bind("other", chain[kept]), unbind(chain[-1])) == [None, None]
    assert left(routing, chain) == chain[: kept + 1]
    assert all(meta.is_source(name) for name in chain[: kept + 1])


def test_an_unbind_that_is_refused_removes_nothing(meta, ask_all, chain, routing):
    """An unbind that is refused, because another connection owns the queue, removes nothing."""
    meta.queue("mine", owner=MINE)
    meta.bind("mine", chain[-1])
    meta.unbind("q", chain[-1])
    message = "unbind", V, "queue", "mine", chain[-1], "k", (), "connection 2"
    (answer,) = ask_all(meta.address, message)
    assert answer.code == 405 and left(routing, chain) == chain


def test_two_deletions_that_take_the_same_chain(meta, ask_all, chain, routing):
    """When two deletions lead to the same chain, both are answered, and later requests do not wait for the
    exchanges.
    """
    assert ask_all(meta.address, unbind(chain[-1]), meta.delete_message("q"))[0] is None
    assert not left(routing, chain)
    meta.exchange(chain[3])
    meta.delete_exchange(chain[3])
