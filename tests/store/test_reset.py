"""A data directory that a reset marked is emptied when it is claimed, or at a later claim."""

from __future__ import annotations

import os

import pytest

from warren.store.data_dir import reset
from warren.store.data_dir.data_dir import claim


@pytest.fixture
def used(tmp_path):
    """A directory with metadata, messages and an identity."""
    claim(str(tmp_path), "warren@test").release()
    for name in ("metadata", "vhosts/0", "control"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("kept?")
    (tmp_path / "cluster.json").write_text("the old identity")
    return tmp_path


def names(directory):
    return set(os.listdir(directory)) - {"lock", "format", "reserve"}


def test_nothing_is_deleted_that_nobody_has_asked_for(used):
    claim(str(used), "warren@test").release()
    assert names(used) == {"metadata", "vhosts", "control", "cluster.json"}


@pytest.mark.parametrize("identity", [b"", b"the new identity"])
def test_a_requested_reset_leaves_the_place_of_commands_and_the_new_identity(used, identity):
    reset.request(str(used), identity)
    assert names(used) == {"metadata", "vhosts", "control", "cluster.json", "reset"}, "the node may still use them"
    claim(str(used), "warren@test").release()
    assert names(used) == {"control"} | ({"cluster.json"} if identity else set())
    if identity:
        assert (used / "cluster.json").read_bytes() == identity
    claim(str(used), "warren@test").release()


@pytest.mark.parametrize("crashes_at", range(10))
def test_a_crash_delays_a_reset_and_leaves_no_half_of_it(used, crashes_at, monkeypatch):
    class Crash(Exception):
        pass

    def stopping(function):
        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash
            return function(*arguments, **options)

        return call

    reset.request(str(used), b"the new identity")
    left = crashes_at
    with monkeypatch.context() as patched:
        patched.setattr(reset.shutil, "rmtree", stopping(reset.shutil.rmtree))
        patched.setattr(reset.os, "unlink", stopping(reset.os.unlink))
        patched.setattr(reset, "write_whole", stopping(reset.write_whole))
        try:
            claim(str(used), "warren@test").release()
        except Crash:
            assert "reset" in names(used)
    claim(str(used), "warren@test").release()
    assert names(used) == {"control", "cluster.json"}
    assert (used / "cluster.json").read_bytes() == b"the new identity"
