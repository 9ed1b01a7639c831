"""Compares the processes of `warren.actors` and `warren.cluster` with their contracts.

A process names its contract in the class attribute `contract`. Its handlers `on_<name>` must be exactly the messages of
the contract, with the same parameters, annotations and defaults; annotations are compared as text. The answer must fit
too: a plain handler that returns None answers later, by `reply`, or never. A message is made by the contract of its
receiver only, never as a tuple.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import warren.actors
import warren.cluster
from warren.runtime.contract import Contract
from warren.runtime.process import EVENTS, Process


def processes() -> list[type[Process]]:
    """All process classes of `warren.actors` and `warren.cluster`."""
    modules = [
        importlib.import_module(found.name)
        for room in (warren.actors, warren.cluster)
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    ]
    return sorted(
        {
            value
            for module in modules
            for value in vars(module).values()
            if inspect.isclass(value) and issubclass(value, Process) and value.__module__ == module.__name__
        },
        key=lambda process: process.__name__,
    )


def differences(process: type[Process]) -> list[str]:
    """One line of text for each way in which the handlers of `process` do not fit its contract."""
    messages = process.contract.messages
    handlers = {
        name.removeprefix("on_"): getattr(process, name)
        for name in dir(process)
        if name.startswith("on_") and name not in EVENTS and not hasattr(Process, name)
    }
    name = process.__name__
    if process.contract is Contract and process.__subclasses__():
        return []  # no process by itself: its handlers are checked with those of the classes that derive from it
    if process.contract is Contract and handlers:
        return [f"{name} receives messages and names no contract"]
    found = [
        f"{name}.on_{message} is no message of its contract" for message in sorted(handlers.keys() - messages.keys())
    ]
    found += [f"{name} has no handler for {message}" for message in sorted(messages.keys() - handlers.keys())]
    for message in sorted(handlers.keys() & messages.keys()):
        found += [f"{name}.on_{message}: {text}" for text in _unlike(handlers[message], messages[message])]
    return found


def _unlike(handler: Callable[..., Any], declared: Callable[..., Any]) -> Iterator[str]:
    taken, listed = inspect.signature(handler), inspect.signature(declared)
    fields, wanted = list(taken.parameters.values())[2:], list(listed.parameters.values())[1:]
    for field, message_field in zip(fields, wanted):
        if field != message_field:
            yield f"takes `{field}`, the contract has `{message_field}`"
    if len(fields) != len(wanted):
        yield f"takes {len(fields)} fields, the contract has {len(wanted)}"
    answer, promised = taken.return_annotation, listed.return_annotation
    answers_later = answer == "None" and not inspect.iscoroutinefunction(handler)
    coroutine = f"Coroutine[object, None, {promised}]"
    slices = f"Slices[{promised}]"
    fitting = promised, coroutine, f"{promised} | {coroutine}", slices, f"{promised} | {slices}", f"Slices[{coroutine}]"
    if answer not in fitting and str(answer).removesuffix(" | None") not in fitting and not answers_later:
        yield f"returns `{answer}`, the contract promises `{promised}`"


def raw_messages(source: str) -> list[int]:
    """The lines of a module on which `send` or `ask` is given a tuple instead of a message made by a contract."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("send", "ask")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Tuple)
    ]
