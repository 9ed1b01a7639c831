"""What the commands keep by themselves goes to a home directory of the test's own, and never to that of whoever runs the tests."""

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return home
