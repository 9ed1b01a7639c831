"""Gives each test a home directory of its own, so that commands do not write to that of the person who runs the tests,
and restores the default handling of SIGHUP.
"""

import signal

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    # Nodes without a data directory have their run files below it. A directory for each test keeps nodes of the same
    # name in other tests out of its way.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return home


@pytest.fixture(autouse=True)
def hangups_are_not_ignored():
    """A test run that was started with `nohup` ignores SIGHUP, and its child processes inherit that, so the signal is
    reset here.
    """
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)
