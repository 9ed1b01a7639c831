"""Log files: one line for each event, rotation by size and by time, and files that somebody has renamed."""

import json
import logging
import os
import time

import pytest

from warren.runtime.log_file import LogFile, reopen_log_files
from warren.runtime.log_format import JsonFormatter, LineFormatter


@pytest.fixture
def path(tmp_path):
    return tmp_path / "broker.log"


@pytest.fixture
def log(path):
    """`log(**options)` opens the file; `log.write(text, at)` writes a line at that moment."""
    handlers = []

    class Log:
        def __call__(self, **options):
            self.handler = LogFile(str(path), **options)
            self.handler.setFormatter(logging.Formatter("%(message)s"))
            handlers.append(self.handler)
            return self

        def write(self, text, at=None):
            entry = record(text)
            if at is not None:
                entry.created = at
            self.handler.emit(entry)

    yield Log()
    for handler in handlers:
        handler.close()


def record(text, *arguments, error=None):
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("warren.test", logging.WARNING, "", 0, text, arguments, info)


def files(path):
    return {each.name: each.read_text() for each in sorted(path.parent.iterdir())}


def test_a_file_that_is_full_is_renamed(log, path):
    """A log file that is full is renamed and a new one begun; here two lines of 5 bytes fit in 10 bytes, and a third
    does not.
    """
    log(max_bytes=10, kept=2)
    for number in range(7):
        log.write(f"no {number}")
    assert files(path) == {
        "broker.log": "no 6\n",
        "broker.log.1": "no 4\nno 5\n",
        "broker.log.2": "no 2\nno 3\n",
    }


def test_a_line_that_is_larger_than_a_file_has_one_of_its_own(log, path):
    log(max_bytes=10, kept=5)
    for text in ("a", "b" * 50, "c"):
        log.write(text)
    assert files(path) == {"broker.log": "c\n", "broker.log.1": "b" * 50 + "\n", "broker.log.2": "a\n"}


def test_no_older_files_are_kept(log, path):
    log(max_bytes=5, kept=0)
    for text in ("aaaa", "bbbb"):
        log.write(text)
    assert files(path) == {"broker.log": "bbbb\n"}


@pytest.mark.parametrize(("period", "same", "later"), [("hourly", 1_800, 3_600), ("daily", 40_000, 86_400)])
def test_a_file_of_an_earlier_period_is_renamed(log, path, period, same, later):
    begin = time.mktime((2026, 11, 22, 0, 0, 5, 0, 0, -1))
    path.write_text("before\n")
    os.utime(path, (begin, begin))
    log(period=period)
    log.write("same", begin + same)
    log.write("next", begin + later)
    assert files(path) == {"broker.log": "next\n", "broker.log.1": "before\nsame\n"}


def test_a_file_that_was_renamed_is_opened_anew(log, path):
    log()
    log.write("one")
    path.rename(path.with_name("moved"))
    log.write("two")
    log.handler.reopen()
    log.write("three")
    assert files(path) == {"broker.log": "three\n", "moved": "one\ntwo\n"}


def test_a_file_that_cannot_be_renamed_goes_on(log, path, monkeypatch, capsys):
    """A log file that cannot be renamed is written on, and the next attempt comes a minute later."""
    log(max_bytes=5, kept=1)

    def refuse(*names):
        raise PermissionError(13, "Permission denied")

    begin = time.time()
    log.write("aaaa", begin)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        log.write("bbbb", begin)
    log.write("cccc", begin + 59)
    assert files(path) == {"broker.log": "aaaa\nbbbb\ncccc\n"}
    assert f"the log {path} cannot be rotated: Permission denied" in capsys.readouterr().err
    log.write("dddd", begin + 61)
    assert files(path) == {"broker.log": "dddd\n", "broker.log.1": "aaaa\nbbbb\ncccc\n"}


def test_all_files_of_the_program_are_reopened(log, path):
    log()
    logging.getLogger().addHandler(log.handler)
    try:
        path.unlink()
        assert reopen_log_files() >= 1
        log.write("again")
        assert path.read_text() == "again\n"
    finally:
        logging.getLogger().removeHandler(log.handler)


def test_an_event_is_one_line():
    """Each event is one line of the log, so that nobody can forge a line by what he sends."""
    line = LineFormatter().format(record("user '%s' logged in", "ann\n2026-01-01 error \u2028 \x1b[31m \udcff"))
    assert line.endswith(r" WARNING warren.test: user 'ann\n2026-01-01 error \u2028 \x1b[31m \udcff' logged in")
    assert line.isprintable()


def test_a_traceback_is_in_the_line():
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        entry = record("crashed", error=error)
    line = LineFormatter().format(entry)
    assert line.isprintable() and "crashed | Traceback (most recent call last): | " in line
    assert line.endswith(" | ValueError: first | second")
    found = json.loads(JsonFormatter().format(entry))
    assert found["error"].startswith("Traceback") and found["msg"] == "crashed"


def test_json_lines():
    line = JsonFormatter().format(record("user '%s'", "änn\n\udcff"))
    found = json.loads(line)
    assert line.isascii() and "\n" not in line
    assert (found["level"], found["domain"], found["msg"]) == ("warning", "warren.test", "user 'änn\n\udcff'")
    assert found["pid"] == os.getpid() and found["time"][:2] == "20"


def test_a_file_that_cannot_be_opened_again_loses_lines_and_nothing_else(log, path, capsys):
    """A process that is out of descriptors cannot open the file that follows a renamed one. Whoever logs goes on."""
    log()
    log.write("before")
    folder = path.parent.rename(path.parent.with_name("away"))
    log.handler.reopen()
    for _ in range(3):
        log.write("lost")
    assert capsys.readouterr().err.splitlines() == [f"the log {path} cannot be opened: No such file or directory"]
    folder.rename(path.parent)
    log.write("after")
    assert path.read_text() == "before\nafter\n"
