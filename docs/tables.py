"""Writes the generated tables into the documents: `make docs`. Tests compare the documents with the code.

A generated table is the first table below a heading. `TABLES` lists page, heading and the function that returns its
lines.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from warren import Settings

DOCS = Path(__file__).resolve().parent


def settings() -> list[str]:
    """One row for each setting: name, default, meaning."""
    defaults = Settings()
    rows = [
        f"| `{item.name}` | `{getattr(defaults, item.name)!r}` | {item.metadata['doc']} |"
        for item in dataclasses.fields(Settings)
    ]
    return ["| setting | default | meaning |", "|---|---|---|", *rows]


TABLES: list[tuple[str, str, Callable[[], list[str]]]] = [("embedding.md", "## Settings", settings)]


def with_table(text: str, heading: str, lines: list[str]) -> str:
    """`text` with the first table below `heading` replaced."""
    before, found, after = text.partition(f"\n{heading}\n")
    if not found:
        raise ValueError(f"there is no heading '{heading}'")
    table = "".join(f"{line}\n" for line in lines)
    return before + found + re.sub(r"(?:^\|.*\n)+", lambda _: table, after, count=1, flags=re.MULTILINE)


def main() -> None:
    for name, heading, lines in TABLES:
        page = DOCS / name
        page.write_text(with_table(page.read_text(), heading, lines()))


if __name__ == "__main__":
    main()
