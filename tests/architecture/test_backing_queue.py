"""The interface of backing queues has exactly the operations that the processes of queues call.

A backing queue that wraps another one passes on every operation, so a call in a method of the same name does not count.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from warren.store.queue.backing_queue import BackingQueue


def used_in(node: ast.AST, inside: str = "") -> Iterator[str]:
    """The names of attributes that are used, but not in a function of the same name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Attribute) and child.attr != inside:
            yield child.attr
        yield from used_in(child, child.name if isinstance(child, ast.FunctionDef) else inside)


def test_processes_call_every_member_of_the_interface(root: Path) -> None:
    members = {name for name, value in vars(BackingQueue).items() if not name.startswith("_")}
    files = [path for room in ("actors/queue", "mirror") for path in sorted((root / room).rglob("*.py"))]
    used = {name for path in files for name in used_in(ast.parse(path.read_text("utf-8")))}
    assert 20 < len(members) < 27
    assert members - used == set()
