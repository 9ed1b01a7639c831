"""`apply` only computes: nothing it calls uses a clock, random numbers, I/O or a process, so that states which apply
the same commands stay equal.

The test reads the modules of `state`, and all modules of warren that they import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import warren.actors.metadata.state as room

STATE = Path(room.__path__[0])
ROOT = STATE.parents[2]
#: The modules of other packages that a state may use. All but the last four only compute.
ALLOWED = {
    "__future__",
    *("base64", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "decimal", "enum"),
    *("functools", "hashlib", "itertools", "json", "math", "operator", "re", "struct", "types", "typing"),
    "regex",  # gives up a search after 2 ms; `definitions/patterns.py` has what keeps that from deciding anything
    "datetime",  # the type of timestamps in tables; `test_nothing_asks_for_the_time` finds calls of its clock
    "sys",  # `sys.maxsize`
    "logging",  # a pattern that takes too long to match, and a decorator that fails, are logged
}
#: The packages of warren that a state may use. `runtime` and `store` are not among them.
ROOMS = {"actors", "amqp", "definitions", "routing"}
#: The modules at the root that it may use. A large `PartedTable` has another order in each process, so no command may
#: depend on the order of its bindings.
MODULES = {"parted_table.py", "seams.py"}
CLOCKS = {"now", "today", "utcnow"}


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module's syntax tree, without those that only the type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from nodes(node)


def file_of(module: Path) -> Path | None:
    """The file of a module of warren; None for a package or for a name that is no module."""
    path = module.with_suffix(".py")
    return path if path.is_file() else None


def imported(path: Path, tree: ast.AST) -> tuple[set[str], set[Path]]:
    """The modules of other packages that a file imports, and the files of warren that it imports."""
    others: set[str] = set()
    own: set[Path] = set()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            others |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            others.add(node.module or "")
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            found = [file_of(base), *(file_of(base / alias.name) for alias in node.names)]
            own |= {file for file in found if file is not None}
    return others, own


def reachable() -> dict[Path, ast.AST]:
    """The modules of the state, and all that they reach by imports, by their path from the root of warren."""
    trees: dict[Path, ast.AST] = {}
    waiting = sorted(STATE.glob("*.py"))
    while waiting:
        path = waiting.pop()
        if path not in trees:
            trees[path] = ast.parse(path.read_text("utf-8"))
            waiting += imported(path, trees[path])[1]
    return trees


def test_a_state_reaches_only_modules_that_compute():
    trees = reachable()
    assert len(trees) > 30
    assert {path.relative_to(ROOT).parts[0] for path in trees} - ROOMS - MODULES == set()
    found = {str(path.relative_to(ROOT)): imported(path, tree)[0] - ALLOWED for path, tree in trees.items()}
    assert {name: others for name, others in found.items() if others} == {}


def test_nothing_waits():
    waits = (ast.Await, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith)
    assert [
        path.name for path, tree in reachable().items() if any(isinstance(node, waits) for node in nodes(tree))
    ] == []


def test_nothing_asks_for_the_time():
    asks = [
        (path.name, node.attr)
        for path, tree in reachable().items()
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS
    ]
    assert asks == []
