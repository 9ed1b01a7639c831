"""Bugs of runs whose messages differ in properties, routing keys or destinations, which the simulation must find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from warren.actors.channel.publishing import Publisher
from warren.actors.queue import dispatch, intake
from warren.amqp.parser import header_patterns, reader, shapes
from warren.store.messages.run import Run

from .planting import mutant, replaced


@mutant
def origins_of_another_piece() -> Iterator[None]:
    """A part of a run gets the origins of the run's first messages."""

    def make(original: Any) -> Any:
        def slice_of(origins: Any, piece: slice) -> Any:
            found = original(origins, piece)
            return origins[: len(found)] if isinstance(found, list) else found

        return slice_of

    with replaced(dispatch, "slice_of", make), replaced(intake, "slice_of", make):
        yield


@mutant
def origin_of_the_first() -> Iterator[None]:
    """A run that grows keeps one origin, that of its first message."""

    def make(original: Any) -> Any:
        def extend(self: Run, contents: Any, origins: Any, body_bytes: int) -> None:
            original(self, contents, self.origins if not isinstance(self.origins, list) else origins, body_bytes)

        return extend

    with replaced(Run, "extend", make):
        yield


@mutant
def priority_overlooked() -> Iterator[None]:
    """Messages with different priorities have the same fate."""

    def make(original: Any) -> Any:
        return lambda props: re.sub(rb"^(H?(?:m.)?)p.", rb"\1", original(props), flags=re.DOTALL)

    with replaced(shapes, "fate", make), replaced(reader, "fate", make):
        yield


@mutant
def pattern_of_any_priority() -> Iterator[None]:
    """A header pattern allows other priorities.

    Patterns are compiled from the first message on, since schedules have few messages.
    """

    def escape(data: bytes) -> bytes:
        return b"[\0-\5]" if data in (b"\0", b"\1", b"\2", b"\3", b"\4", b"\5") else re.escape(data)

    lenient = SimpleNamespace(escape=escape, compile=re.compile, DOTALL=re.DOTALL)
    with mock.patch.object(header_patterns, "re", lenient), mock.patch.object(reader, "_PATTERN_AFTER", 1):
        yield


@mutant
def destinations_of_the_first() -> Iterator[None]:
    """Messages with different routing keys go to the queues of the first one."""

    def make(original: Any) -> Any:
        def resolve(self: Publisher, *arguments: Any) -> Any:
            publication = original(self, *arguments)
            publication.group = min(publication.group, 1)
            return publication

        return resolve

    with replaced(Publisher, "_resolve", make):
        yield
