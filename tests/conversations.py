"""Conversations as text: the commands, and under each what it leads to.

A file of `tests/testdata` has one conversation and is named after the story that it tells. `>` begins a command, `#` a
comment. A test repeats the commands and compares the results. With WARREN_REWRITE_SCENARIOS in the environment it
writes the files anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

TESTDATA = Path(__file__).parent / "testdata"
IS_REWRITING = "WARREN_REWRITE_SCENARIOS" in os.environ


def files(folder: str, least: int) -> list[Path]:
    """The conversations of a folder of `tests/testdata`; fails if there are fewer than `least`."""
    found = sorted((TESTDATA / folder).glob("*.txt"))
    assert len(found) >= least, f"{TESTDATA / folder} has {len(found)} conversations"
    return found


def check(path: Path, played: Callable[[str], str]) -> None:
    """Compare a file with the text that `played` returns for it."""
    text = path.read_text()
    result = played(text)
    if IS_REWRITING:
        path.write_text(result)
    assert result == text


def interpreted(text: str, perform: Callable[[list[str]], list[str]]) -> str:
    """The text with the results of each command, which are the lines that `perform` returns for its words."""
    lines = []
    for line in text.splitlines():
        if line.startswith(">"):
            lines += [line, *perform(line[1:].split())]
        elif line.startswith("#") or not line.strip():
            lines.append(line)
    return "\n".join(lines) + "\n"
