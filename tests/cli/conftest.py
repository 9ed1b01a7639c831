"""Gives each test a home directory of its own, so that commands do not write to the one of the person who runs the
tests.
"""

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return home
