"""`MUTANTS`: bugs that can be planted, by name. Each is a context manager; the bug is there inside its `with`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

MUTANTS: dict[str, Callable[[], Any]] = {}


def mutant(function: Callable[[], Iterator[None]]) -> Callable[[], Any]:
    """Add a generator function, which yields while the bug is there, to `MUTANTS`."""
    MUTANTS[function.__name__] = found = contextmanager(function)
    return found


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a function of a class or module by `make(original)`."""
    with mock.patch.object(owner, name, make(vars(owner)[name])):
        yield
