"""Topic patterns (AB-70): RabbitMQ's test cases, a slow matcher to compare with, and the cost of the worst patterns."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.routing.exchanges.topic_trie import TopicTrie

# The bindings of RabbitMQ's test suite, each to a destination of its own.
BINDINGS = {
    "t1": "a.b.c", "t2": "a.*.c", "t3": "a.#.b", "t4": "a.b.b.c", "t5": "#", "t6": "#.#", "t7": "#.b", "t8": "*.*",
    "t9": "a.*", "t10": "*.b.c", "t11": "a.#", "t12": "a.#.#", "t13": "b.b.c", "t14": "a.b.b", "t15": "a.b",
    "t16": "b.c", "t17": "", "t18": "*.*.*", "t19": "vodka.martini", "t20": "a.b.c", "t21": "*.#", "t22": "#.*.#",
    "t23": "*.#.#", "t24": "#.#.#", "t25": "*", "t26": "#.b.#",
}  # fmt: skip

MATCHES = {
    "a.b.c": "t1 t2 t5 t6 t10 t11 t12 t18 t20 t21 t22 t23 t24 t26",
    "a.b": "t3 t5 t6 t7 t8 t9 t11 t12 t15 t21 t22 t23 t24 t26",
    "a.b.b": "t3 t5 t6 t7 t11 t12 t14 t18 t21 t22 t23 t24 t26",
    "": "t5 t6 t17 t24",
    "b.c.c": "t5 t6 t18 t21 t22 t23 t24 t26",
    "a.a.a.a.a": "t5 t6 t11 t12 t21 t22 t23 t24",
    "vodka.gin": "t5 t6 t8 t21 t22 t23 t24",
    "vodka.martini": "t5 t6 t8 t19 t21 t22 t23 t24",
    "b.b.c": "t5 t6 t10 t13 t18 t21 t22 t23 t24 t26",
    "nothing.here.at.all": "t5 t6 t21 t22 t23 t24",
    "un_der_sc.ore": "t5 t6 t8 t21 t22 t23 t24",
    "oneword": "t5 t6 t21 t22 t23 t24 t25",
}

REMOVED = {"t1", "t5", "t11", "t19", "t21"}


def queue(name: str) -> tuple[str, str]:
    return "queue", name


def trie_of(bindings: dict[str, str]) -> TopicTrie:
    trie = TopicTrie()
    for name, pattern in bindings.items():
        trie.insert(pattern, queue(name))
    return trie


def names(trie: TopicTrie, *keys: str) -> set[str]:
    found = trie.match(keys)
    assert len(found) == len(set(found)), "a destination was found twice"
    return {name for _, name in found}


@pytest.mark.parametrize("key", MATCHES)
def test_keys_match_the_patterns_of_rabbitmqs_suite(key):
    assert names(trie_of(BINDINGS), key) == set(MATCHES[key].split())


@pytest.mark.parametrize("key", MATCHES)
def test_keys_match_the_patterns_that_were_not_removed(key):
    trie = trie_of(BINDINGS)
    for name in REMOVED:
        trie.remove(BINDINGS[name], queue(name))
    assert names(trie, key) == set(MATCHES[key].split()) - REMOVED


def test_removing_all_patterns_leaves_an_empty_trie():
    trie = trie_of(BINDINGS)
    for name, pattern in BINDINGS.items():
        trie.remove(pattern, queue(name))
    assert all(not names(trie, key) for key in MATCHES)
    assert not trie._root.edges and trie._root.bound is None


def test_removing_one_of_two_equal_insertions_keeps_the_other():
    """Of two bindings that differ only in their arguments, and so insert the same pattern twice, removing one keeps the
    other.
    """
    trie = TopicTrie()
    trie.insert("a.*", queue("q"))
    trie.insert("a.*", queue("q"))
    trie.remove("a.*", queue("q"))
    assert names(trie, "a.b") == {"q"}
    trie.remove("a.*", queue("q"))
    assert names(trie, "a.b") == set()


def test_removing_a_pattern_that_was_not_inserted_is_an_error():
    trie = TopicTrie()
    trie.insert("a.b", queue("q"))
    for pattern in ("a", "a.b.c", "x"):
        with pytest.raises(KeyError):
            trie.remove(pattern, queue("q"))
    with pytest.raises(KeyError):
        trie.remove("a.b", queue("other"))
    assert names(trie, "a.b") == {"q"}


def test_empty_words_are_words():
    trie = trie_of({"lead": ".a", "trail": "a.", "double": "a..b", "star": "a.*.b", "two": ".", "stars": "*.*"})
    assert names(trie, ".a") == {"lead", "stars"}
    assert names(trie, "a.") == {"trail", "stars"}
    assert names(trie, "a..b") == {"double", "star"}
    assert names(trie, ".") == {"two", "stars"}


def test_wildcards_inside_a_word_are_ordinary_characters():
    trie = trie_of({"q": "a*.#b"})
    assert names(trie, "a*.#b") == {"q"}
    assert names(trie, "ax.b") == set()


def test_wildcards_in_a_routing_key_are_ordinary_words():
    trie = trie_of({"exact": "a.b", "star": "a.*", "hash": "a.#", "deep": "a.#.c"})
    assert names(trie, "a.*") == {"star", "hash"}
    assert names(trie, "a.#") == {"star", "hash"}
    assert names(trie, "#") == set()


def test_several_keys_find_each_destination_once():
    trie = trie_of({"q1": "a.#", "q2": "b"})
    assert names(trie, "a.b", "a.c", "b") == {"q1", "q2"}
    assert names(trie) == set()


def obviously_matches(pattern: list[str], words: list[str]) -> bool:
    """The definition of matching, written without regard to cost."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(obviously_matches(pattern[1:], words[count:]) for count in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and obviously_matches(pattern[1:], words[1:])


def split(key: str) -> list[str]:
    return key.split(".") if key else []


keys = st.lists(st.sampled_from(["a", "b", ""]), max_size=5).map(".".join)
patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#", "#"]), max_size=5).map(".".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(patterns, max_size=8), st.data(), st.lists(keys, min_size=1, max_size=3))
def test_the_trie_agrees_with_the_definition(bound, data, routing_keys):
    bindings = {f"q{number}": pattern for number, pattern in enumerate(bound)}
    trie = trie_of(bindings)
    removed = data.draw(st.sets(st.sampled_from(sorted(bindings)))) if bindings else set()
    for name in removed:
        trie.remove(bindings.pop(name), queue(name))
    wanted = {
        name
        for name, pattern in bindings.items()
        if any(obviously_matches(split(pattern), split(key)) for key in routing_keys)
    }
    assert names(trie, *routing_keys) == wanted


def test_the_worst_patterns_cost_words_times_nodes():
    """`#.a.#.a. … .b` can match `a.a.a. …` in exponentially many ways, and matching does not try them one by one."""
    trie = TopicTrie()
    trie.insert(".".join(["#", "a"] * 60 + ["b"]), queue("never"))
    trie.insert(".".join(["#"] * 127), queue("always"))
    trie.insert(".".join(["*", "#"] * 63), queue("long"))
    started = time.process_time()
    assert names(trie, ".".join(["a"] * 128)) == {"always", "long"}
    assert time.process_time() - started < 2.0  # measured: 0.02 s
