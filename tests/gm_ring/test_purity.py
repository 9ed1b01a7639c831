"""The core of the ring has no clock, no I/O, no randomness and no process of its own (CL-3)."""

import ast
from pathlib import Path

import pytest

import warren.gm_ring as room

#: Modules that the core may import, because they only compute.
COMPUTING = {"__future__", "collections", "collections.abc", "dataclasses", "itertools", "typing", "..seams"}
#: The modules of the core.
CORE = ["frames", "receiver", "retained", "ring", "stream_state", "turn", "view"]


@pytest.mark.parametrize("name", CORE)
def test_the_core_only_computes(name):
    used = set()
    for node in ast.walk(ast.parse((Path(room.__path__[0]) / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            used.add("." * node.level + (node.module or ""))
    assert used - COMPUTING - {f".{module}" for module in CORE} == set()
