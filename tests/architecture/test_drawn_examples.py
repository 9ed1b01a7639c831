"""A test run draws the same examples in every order of its tests (tests/conftest.py)."""

from __future__ import annotations

import importlib
import sys

from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[tuple[int, str]]:
    values: list[tuple[int, str]] = []

    @settings(max_examples=200, derandomize=True, database=None, deadline=None)
    @given(st.integers(), st.text())
    def draw(number: int, text: str) -> None:
        values.append((number, text))

    draw()
    return values


def test_examples_do_not_depend_on_what_was_imported_before(tmp_path, monkeypatch):
    before = drawn()
    constants = [f"{(1 << 40) + number}, 'text {number}'" for number in range(40)]
    (tmp_path / "imported_later.py").write_text("\n".join(constants))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("imported_later")
    try:
        assert drawn() == before
    finally:
        del sys.modules["imported_later"]
