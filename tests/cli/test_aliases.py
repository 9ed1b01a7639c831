"""Commands that users define themselves, in a file of aliases (CM-7)."""

from __future__ import annotations

import sys

import pytest

from warren import Broker
from warren.cli.main import main


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("node")
    with Broker(control_dir=str(place / "control")) as broker:
        broker.declare_queue("orders")
        broker.place = place
        yield broker


@pytest.fixture
def run(broker, monkeypatch, capfd):
    """`run(*arguments)` runs a command in this process, and returns its exit code, output and error text."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["warren", *arguments])
        monkeypatch.setenv("WARREN_DATA_DIR", str(broker.place))
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capfd.readouterr()

    return run


@pytest.fixture
def aliases(tmp_path, monkeypatch):
    """`aliases(text)` writes a file of aliases, and has the variable RABBITMQ_CLI_ALIASES_FILE name it."""
    path = tmp_path / "aliases"

    def write(text):
        path.write_text(text)
        monkeypatch.setenv("RABBITMQ_CLI_ALIASES_FILE", str(path))
        return str(path)

    return write


def test_an_alias_is_a_command_with_arguments_and_takes_more(run, aliases):
    aliases("# mine\n\nqs = list_queues name messages\nquiet-qs = -q list_queues 'name'\n")
    code, out, err = run("qs")
    assert (code, err) == (0, "") and out.splitlines()[-2:] == ["name\tmessages", "orders\t0"]
    assert run("qs", "consumers", "-s")[1] == "orders\t0\t0\n"
    assert run("-s", "quiet_qs") == (0, "orders\n", "")


def test_an_option_names_the_file_before_and_after_the_alias(run, tmp_path):
    path = tmp_path / "mine"
    path.write_text("qs = list_queues name -s\n")
    for line in (
        ("--aliases-file", str(path), "qs"),
        ("qs", "--aliases-file", str(path)),
        ("qs", f"--aliases-file={path}"),
    ):
        assert run(*line) == (0, "orders\n", "")
    code, _, err = run("qs", "--", "--aliases-file", str(path))
    assert code == 64 and "Command 'qs' not found." in err


def test_the_variable_of_warren_wins(run, aliases, tmp_path, monkeypatch):
    aliases("qs = list_queues messages -s\n")
    own = tmp_path / "own"
    own.write_text("qs = list_queues name -s\n")
    monkeypatch.setenv("WARREN_CLI_ALIASES_FILE", str(own))
    assert run("qs")[1] == "orders\n"


def test_an_alias_hides_no_command_and_leads_to_no_alias(run, aliases):
    path = aliases("list-queues = version\na = b\nb = version\n")
    assert run("list_queues", "name", "-s")[1] == "orders\n"
    code, _, err = run("a")
    assert code == 64 and f"The alias 'a' in '{path}' stands for 'b', which is no command." in err


def test_a_file_that_cannot_be_read_is_a_warning(run, monkeypatch, tmp_path):
    monkeypatch.setenv("WARREN_CLI_ALIASES_FILE", str(tmp_path / "missing"))
    assert run("list_queues", "name", "-s") == (0, "orders\n", "")
    code, _, err = run("qs")
    assert code == 64 and err.startswith("Warning: the file of aliases '") and "Command 'qs' not found." in err


def test_a_line_that_is_no_alias_is_a_warning_and_the_others_count(run, aliases):
    path = aliases("just words\nx = 'open\nnothing =\nqs = list_queues name -s\n")
    code, out, err = run("qs")
    assert (code, out) == (0, "orders\n")
    assert [line.split(" is no alias")[0] for line in err.splitlines()] == [
        f"Warning: line {number} of '{path}'" for number in (1, 2, 3)
    ]


def test_a_name_like_an_alias_proposes_it(run, aliases):
    aliases("overview = status\n")
    assert "Did you mean 'overview'?" in run("overvieu")[2]
