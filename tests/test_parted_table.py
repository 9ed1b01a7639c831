"""`PartedTable` behaves as a dict, and adding an entry never copies many others."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.parted_table import SPLIT_AT, PartedTable

MANY = 50_000

KEYS = {
    "numbers": int,
    "texts": lambda number: f"abcdefghijklmnop.{number}",
    "pairs": lambda number: ("queue", number),
}


def size(table):
    return sum(map(sys.getsizeof, table._parts))


@pytest.mark.parametrize("kind", KEYS)
def test_no_few_entries_copy_many_others(kind):
    """Adding a few entries copies few others. A dict of 43,690 entries takes 2 to 5 MB more when it grows, and the
    parts of the table must not all do so at once.

    64 entries are about as many as a client adds in one turn.
    """
    table = PartedTable()
    most = 0
    for number in range(0, MANY, 64):
        before = size(table)
        for each in range(number, number + 64):
            table[KEYS[kind](each)] = None
        most = max(most, size(table) - before)
    assert most < 300_000
    assert len(table) == len(list(table)) >= MANY


CHANGES = st.lists(
    st.tuples(st.sampled_from(["set", "del", "pop", "get", "fill", "clear", "popitem"]), st.integers(0, 30)),
    max_size=40,
)


@given(CHANGES)
def test_it_does_what_a_dict_does(changes):
    table, model = PartedTable(), {}
    for kind, key in changes:
        if kind == "set":
            table[key] = model[key] = len(model)
        elif kind == "del" and key in model:
            del table[key], model[key]
        elif kind == "pop":
            assert table.pop(key, None) == model.pop(key, None)
        elif kind == "fill":
            for more in range(500 * key, 500 * key + SPLIT_AT):
                table[more] = model[more] = -more
        elif kind == "popitem" and model:
            popped, value = table.popitem()
            assert model.pop(popped) == value
        elif kind == "clear":
            table.clear()
            model.clear()
        assert table.get(key) == model.get(key) and table.get(key, 5) == model.get(key, 5)
        assert (key in table) == (key in model)
        assert len(table) == len(model) and bool(table) == bool(model)
    assert sorted(table) == sorted(model)
    assert sorted(table.items()) == sorted(model.items())
    assert sorted(table.values()) == sorted(model.values()) == sorted(sum(table.parts(), []))
    assert dict(PartedTable(model.items()).items()) == model


def test_a_key_that_is_missing_is_an_error():
    table = PartedTable([("a", 1)])
    with pytest.raises(KeyError):
        table["b"]
    with pytest.raises(KeyError):
        del table["b"]
    assert table["a"] == 1 and len(table) == 1


def test_few_entries_are_in_the_order_in_which_they_were_added():
    """Few entries are in the order in which they were added, because a simulation must do the same in each run,
    whatever the hashes of texts are.
    """
    keys = [f"key {number}" for number in range(SPLIT_AT - 1, 0, -1)]
    assert list(PartedTable((key, None) for key in keys)) == keys
