"""`claim`: a data directory is refused when it is in use, foreign, damaged, read-only or of a newer format."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from warren.store.data_dir import data_dir, reserve
from warren.store.data_dir.data_dir import FORMAT, DataDir, DataDirError, claim, queue_number

HOLDER = """
import sys, time
from warren.store.data_dir.data_dir import claim
held = claim(sys.argv[1], 'warren@other')
print('held', flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "data")


def refusal(path) -> str:
    with pytest.raises(DataDirError) as caught:
        claim(path, "warren@test")
    assert path in str(caught.value)
    return str(caught.value)


class TestClaim:
    def test_makes_the_directory_and_those_above(self, tmp_path):
        path = str(tmp_path / "a" / "b" / "data")
        claimed = claim(path, "warren@test")
        assert claimed.directory == DataDir(path)
        assert sorted(os.listdir(path)) == ["format", "lock"]
        with open(f"{path}/format") as file:
            assert file.read() == f"warren data directory\nformat {FORMAT}\n"
        claimed.release()
        claimed.release()
        claim(path, "warren@test").release()

    def test_of_a_relative_path(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        claimed = claim("data", "warren@test")
        assert claimed.directory.path == str(tmp_path / "data")
        claimed.release()

    @pytest.mark.parametrize("left", [["lock"], ["lock", "format.new"], ["lost+found"], []])
    def test_what_a_crash_or_a_file_system_leaves_is_no_obstacle(self, path, left):
        os.mkdir(path)
        for name in left:
            open(f"{path}/{name}", "w").close()
        claim(path, "warren@test").release()

    def test_other_files_beside_ours_are_no_obstacle(self, path):
        claim(path, "warren@test").release()
        open(f"{path}/notes.txt", "w").close()
        claim(path, "warren@test").release()


class TestLock:
    def test_names_the_holder_in_this_process(self, path):
        held = claim(path, "warren@first")
        assert f"is in use by warren@first (process {os.getpid()} on " in refusal(path)
        held.release()
        claim(path, "warren@test").release()

    def test_names_the_holder_in_another_and_ends_with_kill_9(self, path):
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE)
        try:
            assert holder.stdout.readline() == b"held\n"
            text = refusal(path)
            assert (
                f"in use by warren@other (process {holder.pid} on " in text
                and "Stop that broker, or choose another data_dir" in text
            )
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            holder.stdout.close()
        claim(path, "warren@test").release()


class TestRefusals:
    def test_a_file(self, path):
        open(path, "w").close()
        assert "is not a directory" in refusal(path)

    def test_below_a_file(self, tmp_path):
        open(tmp_path / "file", "w").close()
        assert "/file' is not a directory" in refusal(str(tmp_path / "file" / "data"))

    def test_foreign_files(self, path):
        os.mkdir(path)
        for number in range(5):
            open(f"{path}/photo{number}.jpg", "w").close()
        assert "it holds photo0.jpg, photo1.jpg, photo2.jpg and 2 more. Choose an empty directory" in refusal(path)
        assert len(os.listdir(path)) == 5

    def test_a_newer_format(self, path):
        claim(path, "warren@test").release()
        with open(f"{path}/format", "w") as file:
            file.write(f"warren data directory\nformat {FORMAT + 1}\n")
        before = sorted(os.listdir(path))
        assert (
            f"was written by a newer warren: it has format {FORMAT + 1}, and this one reads up to {FORMAT}"
            in refusal(path)
        )
        assert sorted(os.listdir(path)) == before

    def test_an_earlier_format(self, path):
        """`claim` makes the format of an older data directory the newest one, so that an earlier warren, which would
        misread what this one writes, refuses it.
        """
        claim(path, "warren@test").release()
        with open(f"{path}/format", "w") as file:
            file.write("warren data directory\nformat 1\n")
        claim(path, "warren@test").release()
        with open(f"{path}/format") as file:
            assert file.read() == f"warren data directory\nformat {FORMAT}\n"

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"\xff\0",
            b"warren data directory",
            b"warren data directory\nformat x\n",
            b"another program\nformat 1\n",
        ],
    )
    def test_a_format_file_with_other_contents(self, path, text):
        os.mkdir(path)
        with open(f"{path}/format", "wb") as file:
            file.write(text)
        assert "is not a data directory of warren: its file 'format' contains" in refusal(path)

    def test_lost_metadata(self, path):
        """A data directory without its metadata is refused: all queues would count as deleted, and C-17 would remove
        their messages.
        """
        claimed = claim(path, "warren@test")
        claimed.directory.make_vhost("/")
        claimed.release()
        assert "has lost its metadata" in refusal(path)
        os.mkdir(f"{path}/metadata")
        claim(path, "warren@test").release()

    # The tests may run as root, who may write everywhere, so they imitate the system's refusals.
    def test_a_read_only_directory(self, path, monkeypatch):
        os.mkdir(path)
        monkeypatch.setattr(data_dir.os, "access", lambda *_: False)
        assert "it cannot be written. Make it writable" in refusal(path)
        assert os.listdir(path) == []

    @pytest.mark.parametrize(
        ("number", "text"),
        [(errno.EROFS, "Make it writable for user"), (errno.ENOSPC, "Free space on that file system")],
    )
    def test_what_the_system_refuses(self, path, monkeypatch, number, text):
        os.mkdir(path)
        real = os.open

        def refuse(name, *arguments, **options):
            if str(name).endswith("/lock"):
                raise OSError(number, os.strerror(number), name)
            return real(name, *arguments, **options)

        monkeypatch.setattr(data_dir.os, "open", refuse)
        reason = refusal(path)
        assert os.strerror(number) in reason and text in reason


class TestNames:
    @pytest.mark.parametrize("name", ["/", "a" * 255, "..", "a/b", "Ä", "\udcff", ""])
    def test_any_vhost_has_a_directory(self, path, name):
        claimed = claim(path, "warren@test")
        directory = claimed.directory.make_vhost(name)
        assert directory == claimed.directory.vhost(name) == claimed.directory.make_vhost(name)
        assert os.path.dirname(directory) == claimed.directory.vhosts
        with open(f"{directory}/name", "rb") as file:
            assert file.read() == name.encode("utf-8", "surrogateescape")
        claimed.release()

    def test_stay_as_they_are(self):
        """Other names would lose the messages in existing directories."""
        assert DataDir("/d").vhost("/") == "/d/vhosts/60b6bbaa0c4d478ffc7afefdb9d75f75"
        assert DataDir("/d").metadata == "/d/metadata"
        assert queue_number("00112233445566778899aabbccddeeff") == 0x00112233445566

    def test_differ_where_a_file_system_ignores_case(self):
        assert DataDir("/d").vhost("A").lower() != DataDir("/d").vhost("a").lower()


def test_a_claim_gives_the_reserve_back(tmp_path):
    """`claim` frees the file that reserves room before it writes anything, because a start on a full disk needs that
    room.
    """
    claim(str(tmp_path), "first").release()
    (tmp_path / reserve.NAME).write_bytes(b"room")
    claim(str(tmp_path), "second").release()
    assert not (tmp_path / reserve.NAME).exists()
