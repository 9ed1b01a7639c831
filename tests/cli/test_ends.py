"""How a command ends that the user interrupts, or that fails because of a bug in it."""

from __future__ import annotations

import json
import sys

import pytest

from warren.cli import node_command
from warren.cli.main import main


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    """`run(error, *words)` runs a command in which this error is raised; returns its exit code and its error text."""

    def run(error, *words):
        def fails(*arguments):
            raise error

        monkeypatch.setattr(node_command, "NodeClient", fails)
        monkeypatch.setattr(sys, "argv", ["warren", "--data-dir", str(tmp_path), "list_vhosts", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capfd.readouterr().err

    return run


def test_an_interrupted_command(run):
    """Ctrl-C ends a command with exit code 130 and without a traceback (CM-19)."""
    code, err = run(KeyboardInterrupt())
    assert (code, err.strip()) == (130, "")


def test_a_fault_of_the_command_is_one_line(run):
    """A bug in a command shows as one line with type and text of the exception, and exit code 70 (CM-18, CM-19)."""
    text = "the command list_vhosts has failed, which is a fault of warren: ValueError: of two lines."
    code, err = run(ValueError("of two\nlines"))
    assert (code, err) == (70, f"Error: {text} --print-stacktrace shows where.\n")
    code, err = run(ValueError("of two\nlines"), "--formatter", "json")
    assert code == 70 and json.loads(err)["message"].startswith(text)


def test_a_fault_is_shown_with_its_place_on_request(run):
    """`--print-stacktrace` shows where the exception was raised (CM-8)."""
    code, err = run(ValueError("odd"), "--print-stacktrace")
    assert code == 70 and "Traceback" in err and "in fails" in err
    assert err.splitlines()[-1].startswith("Error: the command list_vhosts has failed")
