"""The core of consensus has no clock, no I/O, no randomness and no process of its own (CL-3)."""

import ast
from pathlib import Path

import warren.cluster.consensus as room

#: Modules that the core may import, because they only compute.
COMPUTING = {"__future__", "collections", "collections.abc", "enum", "typing", "msgpack"}


def imported(path: Path) -> set[str]:
    """The modules that a file imports, warren's own as relative imports with their dots."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def test_the_core_only_computes():
    files = sorted(Path(room.__path__[0]).glob("*.py"))
    assert len(files) > 5
    own = {f".{path.stem}" for path in files}
    assert {name: used for name in files if (used := imported(name) - COMPUTING - own - {"...seams"})} == {}
