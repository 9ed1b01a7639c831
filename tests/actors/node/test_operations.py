"""The registry of operations: which requests it accepts, and how it answers the others."""

from __future__ import annotations

import inspect

import pytest

from warren.actors.node.operations import registry
from warren.actors.node.operations.registry import OperationError, Operator, operation, perform


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """An empty registry for this test."""
    monkeypatch.setattr(registry, "OPERATIONS", {})
    operation()(paint)
    operation(while_booting=True)(look)


async def paint(
    operator: Operator,
    *,
    name: str,
    coats: int = 1,
    colours: list[str] | None = None,
    options: dict[str, int] | None = None,
) -> str:
    return f"{name} {coats} {colours} {options}"


async def look(operator: Operator) -> bool:
    return True


def run(name, arguments, state="running"):
    coroutine = perform(None, name, arguments, state)
    assert inspect.iscoroutine(coroutine)
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    return stop.value.value


def test_arguments_reach_the_operation():
    assert run("paint", {"name": "door"}) == "door 1 None None"
    assert run("paint", {"name": "door", "colours": ["red"], "options": {"a": 1}}) == "door 1 ['red'] {'a': 1}"


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "text"),
    [
        ("pianta", {}, "usage", "Command 'pianta' not found."),
        ("paint", {}, "usage", "paint needs the argument 'name'"),
        ("paint", {"name": "x", "size": 1}, "usage", "paint has no argument 'size'"),
        ("paint", {"name": b"x"}, "data", "'name' of paint cannot be b'x'"),
        ("paint", {"name": "x", "coats": True}, "data", "'coats'"),
        ("paint", {"name": "x", "coats": "1"}, "data", "'coats'"),
        ("paint", {"name": "x", "colours": ["red", 1]}, "data", "'colours'"),
        ("paint", {"name": "x", "colours": "red"}, "data", "'colours'"),
        ("paint", {"name": "x", "options": {"a": "b"}}, "data", "'options'"),
        ("paint", {"name": "x", "operator": 1}, "usage", "no argument 'operator'"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(name, arguments, kind, text):
    with pytest.raises(OperationError, match=".*") as refusal:
        perform(None, name, arguments)
    assert refusal.value.kind == kind
    assert text in refusal.value.text


@pytest.mark.parametrize("state", ["starting", "stopped"])
def test_most_operations_wait_for_the_start(state):
    """While the node is starting, operations that need the app are refused with a text that names `await_startup`
    (CM-21).
    """
    assert run("look", {}, state) is True
    with pytest.raises(OperationError, match="app to be running") as refusal:
        perform(None, "paint", {"name": "door"}, state)
    assert refusal.value.kind == "usage"
