"""Planted bugs: a search proves that it finds faults by finding those that a test makes.

A bug replaces the functions of one seam (`warren.seams`), that is, of one decision that the code has to get right:

    MUTANTS = Bugs()

    @MUTANTS.bug("when a message expires")
    def expired_too_early(of, self, origin): ...

    with MUTANTS["expired_too_early"]():
        ...

The decorated function is called instead of the code's, which it gets as its first argument.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from warren.runtime.process import Process
from warren.seams import SEAMS


class Bugs(dict[str, Callable[[], AbstractContextManager[None]]]):
    """Bugs by name. Each is a function that returns a context manager, inside which the bug is active."""

    def __init__(self) -> None:
        super().__init__()
        #: The seams that the bugs replace.
        self.decisions: set[str] = set()

    def bug(self, *decisions: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Add the decorated function as a bug of these decisions."""

        def add(wrong: Callable[..., Any]) -> Callable[..., Any]:
            self[wrong.__name__] = lambda: replaced(wrong, *decisions)
            self.decisions.update(decisions)
            return wrong

        return add


@contextmanager
def replaced(wrong: Callable[..., Any], *decisions: str) -> Iterator[None]:
    """Have every function of these seams replaced by `wrong(the function itself, its arguments...)`."""
    with ExitStack() as stack:
        for decision in decisions:
            if decision not in SEAMS:
                raise LookupError(
                    f"{wrong.__name__}: no function has the seam {decision!r}. The function that makes this decision "
                    "now needs the decorator"
                )
            for function in SEAMS[decision]:
                _check_arguments(wrong, function)
                for patch in _patches(function, _calling(wrong, function)):
                    stack.enter_context(patch)
        yield


def _check_arguments(wrong: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Raise TypeError unless `wrong` can take the arguments of `function`.

    Otherwise each call would raise it, and the search would find a crash of the broker instead of the bug.
    """
    every = inspect.signature(function).parameters.values()
    positional = [each for each in every if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    try:
        inspect.signature(wrong).bind(function, *positional)
    except TypeError as error:
        raise TypeError(f"{wrong.__name__} cannot replace {function.__qualname__}: {error}") from None


def _calling(wrong: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return wrong(function, *arguments)

    return call


def _patches(function: Callable[..., Any], replacement: Callable[..., Any]) -> Iterator[Any]:
    """The patches that make every caller call `replacement` instead of `function`, under every name that it has."""
    module = sys.modules[function.__module__]
    if "." not in function.__qualname__:
        for other in list(sys.modules.values()):
            if getattr(other, "__name__", "").startswith("warren."):
                for name, value in list(vars(other).items()):
                    if value is function:
                        yield mock.patch.object(other, name, replacement)
        return
    owner: Any = module
    *path, name = function.__qualname__.split(".")
    for step in path:
        owner = getattr(owner, step)
    found = vars(owner)[name]
    yield mock.patch.object(owner, name, property(replacement) if isinstance(found, property) else replacement)
    if issubclass(owner, Process):
        # A class has a table of its handlers, which was made with the class.
        for message, handler in owner._handlers.items():
            if handler is function:
                yield mock.patch.dict(owner._handlers, {message: replacement})
