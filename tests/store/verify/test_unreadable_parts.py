"""What `store.verify` reports of parts that the broker cannot read, and that one part does not hide the others."""

from __future__ import annotations

from struct import Struct

import pytest

from warren.store.data_dir.metadata_store import MetadataError, MetadataStore

from .test_verify import Directory

_PAGE = 4096
_HEAD = Struct("=QHHHH")
_LEAF = 2
#: Bytes of a node in front of its key.
_NODE = 8


@pytest.fixture
def killed(tmp_path) -> Directory:
    return Directory(tmp_path / "data", False)


def repeat_a_row(path: str, table: str) -> None:
    """Have the second entry of the leaf with this table's rows lead to the first row, in all versions of the page.

    One damaged number in the page has this effect, and each row is whole. The second row is lost.
    """
    store = MetadataStore(path, is_read_only=True)
    (tree,) = [store._env.open_db(table.encode(), create=False)]
    with store._env.begin() as transaction:
        first, second = [key for key, _ in transaction.cursor(tree)][:2]
    store.close()
    with open(f"{path}/data.mdb", "r+b") as file:
        data = bytearray(file.read())
        pages = 0
        for page in range(2 * _PAGE, len(data), _PAGE):
            _, _, flags, lower, _ = _HEAD.unpack_from(data, page)
            if flags != _LEAF:
                continue
            places = list(range(page + _HEAD.size, page + lower, 2))
            nodes = {bytes(data[page + at + _NODE : page + at + _NODE + 16]): at for at in offsets(data, places)}
            if first in nodes and second in nodes:
                pages += 1
                place = places[[*offsets(data, places)].index(nodes[second])]
                data[place : place + 2] = nodes[first].to_bytes(2, "little")
        assert pages
        file.seek(0)
        file.write(data)


def offsets(data: bytearray, places: list[int]) -> list[int]:
    return [int.from_bytes(data[place : place + 2], "little") for place in places]


@pytest.mark.parametrize("table", ["bindings", "queues"])
def test_a_row_that_is_there_twice_and_hides_another_one(killed, table):
    """The broker refuses to start with rows out of order, so the check reports them as well (QS-42)."""
    repeat_a_row(str(killed.path / "metadata"), table)
    store = MetadataStore(str(killed.path / "metadata"), is_read_only=True)
    with pytest.raises(MetadataError, match="out of order"):
        store.load()
    store.close()
    report = killed.verify()
    assert not report.is_fine
    (found,) = [finding for finding in report.findings if "out of order" in finding.found]
    assert found.place == "metadata" and "refuses to start" in found.outcome


def test_a_file_in_place_of_a_queue_does_not_hide_the_other_queues(killed):
    (killed.vhost / "queues" / "abc").touch()
    report = killed.verify()
    assert [queue.messages for queue in report.vhosts[0].queues if queue.name] == [8, 34]
    assert [finding.place for finding in report.findings if "it cannot be read" in finding.found] == [
        f"{killed.place}/queues/abc"
    ]
