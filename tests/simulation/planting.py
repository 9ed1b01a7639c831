"""How bugs are planted: `MUTANTS` are context managers by name; inside, the bug is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

MUTANTS: dict[str, Callable[[], Any]] = {}


def mutant(function: Callable[[], Iterator[None]]) -> Callable[[], Any]:
    MUTANTS[function.__name__] = found = contextmanager(function)
    return found


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """`make(original)` in place of a function of a class, or of a module."""
    with mock.patch.object(owner, name, make(vars(owner)[name])):
        yield
