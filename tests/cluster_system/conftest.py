"""The fixture by which tests run commands at nodes."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

import pytest

from warren.cli.main import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch, capfd):
    """`command(node, *words)` runs a command at a node of `nodes.py`, in this process."""

    def run(node, *words):
        monkeypatch.setattr(sys, "argv", ["warren", "--data-dir", str(node.data_dir), *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return Ran(end.value.code, out, err)

    def document(node, *words):
        ran = run(node, "--formatter", "json", *words)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    run.json = document
    return run
