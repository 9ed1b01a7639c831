"""RocketMQ's index files: bytes and hashes of the specification, chains, times and full files (QP-5 to QP-14)."""

import errno
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.store.message_index import hash_files
from warren.store.message_index.hash_files import (
    ENTRY,
    HEADER,
    DamagedIndexFile,
    HashFile,
    HashFiles,
    crc_hash,
    java_hash,
)

AT = 1_700_000_000_123


@pytest.mark.parametrize(
    ("text", "expected", "slot"),
    [
        ("orders#ORDER-1", 1_597_395_380, 2_395_380),
        ("orders#Aa", 390_724_962, 724_962),
        ("orders#BB", 390_724_962, 724_962),
        ("订单#键", 1_085_449_374, 449_374),
        ("polygenelubricants", 0, 0),
    ],
)
def test_java_hashes(text, expected, slot):
    assert java_hash(text) == expected
    assert expected % hash_files.ROCKETMQ_SLOTS == slot


def test_java_hash_counts_utf_16_units():
    """The hash is that of Java, which counts units of UTF-16: a character outside the basic plane is two of them."""
    assert java_hash("\U0001f600") == abs((0xD83D * 31 + 0xDE00) & 0xFFFFFFFF)


@given(st.text(), st.sampled_from([java_hash, crc_hash]))
def test_hashes_are_not_negative_integers_of_31_bits(text, hashed):
    assert 0 <= hashed(text) < 1 << 31


def test_bytes_of_the_example(tmp_path):
    """QP-14: a file with 4 slots."""
    file = HashFile(str(tmp_path / "file"), 4, 16, is_new=True)
    for text, position, at in (("orders#Aa", 100, AT), ("orders#BB", 200, AT + 1876), ("orders#Aa", 300, AT + 4877)):
        file.put([(java_hash(text), position, at)])
    data = (tmp_path / "file").read_bytes()
    assert data[:40].hex(" ", 4) == (
        "0000018b cfe5687b 0000018b cfe57b88 00000000 00000064 00000000 0000012c 00000001 00000004"
    )
    assert data[40:56].hex(" ", 4) == "00000000 00000000 00000003 00000000"
    assert data[56:76] == bytes(20), "entry 0 is never used"
    assert data[76:136].hex(" ", 20) == (
        "1749fd62000000000000006400000000" + "00000000 "
        "1749fd6200000000000000c80000000100000001 "
        "1749fd62000000000000012c0000000400000002"
    )
    assert len(data) == 40 + 4 * 4 + 16 * 20
    assert list(file.chain(java_hash("orders#Aa"), 0)) == [300, 200, 100]


def test_one_message_is_found(tmp_path):
    """A search finds the first message too: counting begins at 1, because entry 0 means none (QP-6)."""
    file = HashFile(str(tmp_path / "file"), 4, 16, is_new=True)
    file.put([(7, 1, AT)])
    assert list(file.chain(7, 0)) == [1]
    assert list(file.chain(3, 0)) == [None], "another hash in the same slot"
    assert list(file.chain(4, 0)) == []


def test_file_is_full_with_one_entry_less_than_it_has_places(tmp_path):
    files = HashFiles(str(tmp_path), "crc32", 4, 16, lambda: 1e9)
    files.put([(number, number, AT) for number in range(1, 17)])
    names = sorted(name for name in os.listdir(tmp_path) if not name.endswith(".meta"))
    assert names == ["20010909014640000", "20010909014640001"], "named by the time, and never twice"
    assert [file.room for file in files._files] == [0, 14]
    assert all(number in files.newest_first(number, 0) for number in range(1, 17))


def test_files_are_read_again(tmp_path):
    files = HashFiles(str(tmp_path), "java", 4, 16)
    files.put([(number % 5, number, AT + number) for number in range(1, 40)])
    files.sync()
    again = HashFiles(str(tmp_path), "java", 8, 32)
    assert again.end == 39
    for key_hash in range(5):
        expected = [number for number in range(39, 0, -1) if number % 5 == key_hash]
        assert [position for position in again.newest_first(key_hash, 0) if position is not None] == expected
    again.put([(1, number, AT + number) for number in range(40, 90)])
    assert [file.sizes for file in again._files] == [(4, 16)] * 3 + [(8, 32)] * 2, "sizes are those of new files"


def test_files_with_another_hash_are_refused(tmp_path):
    HashFiles(str(tmp_path), "java", 4, 16).put([(1, 1, AT)])
    with pytest.raises(DamagedIndexFile, match="has the hash 'java' and not 'crc32'"):
        HashFiles(str(tmp_path), "crc32", 4, 16)


def test_a_file_without_meta_is_opened_as_one_of_rocketmq(tmp_path, monkeypatch):
    monkeypatch.setattr(hash_files, "ROCKETMQ_SLOTS", 4)
    monkeypatch.setattr(hash_files, "ROCKETMQ_ENTRIES", 16)
    HashFiles(str(tmp_path), "java", 4, 16).put([(1, 5, AT)])
    for meta in tmp_path.glob("*.meta"):
        meta.unlink()
    found = HashFiles(str(tmp_path), "java", 100, 400)
    assert list(found.newest_first(1, 0)) == [5]


@pytest.mark.parametrize("begin", [AT, AT + 1, AT + 999, AT + 1000, AT + 1999])
def test_a_chain_is_not_left_too_early(tmp_path, begin):
    """A search does not leave a chain too early: entries have whole seconds, so one of the same second as `begin` must
    be visited (QP-46).
    """
    file = HashFile(str(tmp_path / "file"), 1, 64, is_new=True)
    times = [AT, AT + 1, AT + 998, AT + 999, AT + 1000, AT + 1998, AT + 1999, AT + 5000]
    file.put([(0, number, at) for number, at in enumerate(times, 1)])
    found = list(file.chain(0, begin))
    assert set(found) >= {number for number, at in enumerate(times, 1) if at >= begin}
    assert all(times[number - 1] >= begin - 1000 for number in found)


def test_a_clock_that_goes_back_hides_nothing(tmp_path):
    """A clock that goes back hides no entry: no entry gets an earlier time than those before it, so the search does not
    stop at one (QP-45).
    """
    file = HashFile(str(tmp_path / "file"), 1, 64, is_new=True)
    file.put([(0, 1, AT + 60_000), (0, 2, AT), (0, 3, AT + 61_000)])
    assert list(file.chain(0, AT + 60_000)) == [3, 2, 1]
    assert list(file.chain(0, AT + 62_000)) == []


@pytest.mark.parametrize("refused", ["entries", "header", "slots"])
def test_a_write_that_the_disk_refuses_loses_no_chain(tmp_path, monkeypatch, refused):
    """If the disk refuses a write, whichever part of a put was written, the entries from before are found, in this
    process and in another one.
    """
    files = HashFiles(str(tmp_path), "crc32", 2, 64)
    files.put([(0, 1, AT), (1, 2, AT), (0, 3, AT)])
    file = files._files[0]
    real = os.pwrite

    def pwrite(fd, data, offset):
        part = "header" if offset == 0 else "slots" if offset < HEADER.size + 8 else "entries"
        if part == refused:
            raise OSError(errno.ENOSPC, "no space")
        return real(fd, data, offset)

    monkeypatch.setattr(hash_files.os, "pwrite", pwrite)
    with pytest.raises(OSError):
        files.put([(0, 4, AT), (1, 5, AT)])
    monkeypatch.undo()
    for found in (file, HashFiles(str(tmp_path), "crc32", 2, 64)._files[0]):
        assert [position for position in found.chain(0, 0) if position != 4] == [3, 1]
    files.put([(0, 6, AT), (1, 7, AT)])
    for found in (file, HashFiles(str(tmp_path), "crc32", 2, 64)._files[0]):
        assert [position for position in found.chain(0, 0) if position != 4] == [6, 3, 1]
        assert [position for position in found.chain(1, 0) if position != 5] == [7, 2]


@pytest.mark.parametrize("refused", ["replace", "ftruncate"])
def test_a_file_that_a_full_disk_refuses_leaves_nothing_behind(tmp_path, monkeypatch, refused):
    """A full disk refuses a new file again and again. Each attempt takes its parts away; otherwise there would be more
    of them with every second, and the next start would take them for damage and make all files anew.
    """

    def refuse(*_):
        raise OSError(errno.ENOSPC, "no space")

    files = HashFiles(str(tmp_path), "crc32", 2, 64)
    with monkeypatch.context() as patch:
        patch.setattr(hash_files.os, refused, refuse)
        for _ in range(3):
            with pytest.raises(OSError):
                files.put([(0, 1, AT)])
    assert not os.listdir(tmp_path)
    files.put([(0, 1, AT)])
    assert list(HashFiles(str(tmp_path), "crc32", 2, 64).newest_first(0, 0)) == [1]


@pytest.mark.parametrize("step", ["replace", "open"])
def test_a_kill_while_a_file_is_made_costs_no_other_file(tmp_path, monkeypatch, step):
    """If the broker is killed while it makes a file, the next start finds the other files whole."""

    class Killed(BaseException):
        """The broker is killed."""

    def kill(*arguments):
        if os.path.basename(arguments[0]).partition(".")[0] not in earlier:
            raise Killed
        return real(*arguments)

    files = HashFiles(str(tmp_path), "crc32", 2, 4)
    files.put([(0, 1, AT), (0, 2, AT)])
    earlier = {os.path.basename(file.path) for file in files._files}
    real = getattr(os, step)
    with monkeypatch.context() as patch:
        patch.setattr(hash_files.os, step, kill)
        with pytest.raises(Killed):
            files.put([(0, number, AT) for number in range(3, 7)])
    assert [*HashFiles(str(tmp_path), "crc32", 2, 4).newest_first(0, 0)] == [3, 2, 1]


def test_garbage_in_a_slot_counts_as_none(tmp_path):
    """Garbage that a crash left in a slot counts as an empty slot (QP-9)."""
    file = HashFile(str(tmp_path / "file"), 2, 64, is_new=True)
    file.put([(0, 1, AT)])
    with open(tmp_path / "file", "r+b") as opened:
        for garbage in (b"\xff\xff\xff\xff", b"\0\0\0\x09", b"\x7f\xff\xff\xff"):
            opened.seek(HEADER.size)
            opened.write(garbage)
            opened.flush()
            assert list(file.chain(0, 0)) == []
    file.put([(0, 2, AT)])
    assert list(file.chain(0, 0)) == [2]


def test_a_chain_that_leads_to_itself_ends(tmp_path):
    file = HashFile(str(tmp_path / "file"), 1, 64, is_new=True)
    file.put([(0, 1, AT), (0, 2, AT)])
    with open(tmp_path / "file", "r+b") as opened:
        opened.seek(HEADER.size + 4 + 2 * ENTRY.size)
        opened.write(ENTRY.pack(0, 2, 0, 2))
    assert list(file.chain(0, 0)) == [2]


@settings(max_examples=50)
@given(
    keys=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4000)), max_size=80),
    cuts=st.lists(st.integers(1, 9), max_size=20),
    begin=st.integers(0, 40_000),
)
def test_all_entries_from_a_time_on_are_visited(tmp_path_factory, keys, cuts, begin):
    """A search visits each entry from `begin` on once, the newest first; few slots and small files, compared with a
    list.
    """
    files = HashFiles(str(tmp_path_factory.mktemp("files")), "crc32", 4, 16)
    now, rows = AT, []
    for position, (key_hash, passed) in enumerate(keys, 1):
        now += passed
        rows.append((key_hash, position, now))
    rest = list(rows)
    for cut in [*cuts, len(rows)]:
        files.put(rest[:cut])
        rest = rest[cut:]
    for key_hash in range(7):
        visited = [each for each in files.newest_first(key_hash, AT + begin) if each is not None]
        assert visited == sorted(visited, reverse=True)
        assert len(visited) == len(set(visited))
        wanted = {position for found, position, at in rows if found == key_hash and at >= AT + begin}
        assert set(visited) >= wanted
        assert all(rows[position - 1][0] == key_hash for position in visited)
