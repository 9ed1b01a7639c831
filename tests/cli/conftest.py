"""Gives each test a home directory of its own, so that commands do not write to the one of the person who runs the
tests, and lets nodes react to SIGHUP.
"""

import signal

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    # Nodes without a data directory are found there; other tests run nodes of the same name.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return home


@pytest.fixture(autouse=True)
def hangups_are_not_ignored():
    """As they are in a test run that was started with `nohup`, whose children inherit that."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)
