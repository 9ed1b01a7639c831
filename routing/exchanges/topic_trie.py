"""Topic patterns in a trie of words (AB-70).

A binding key is split at every `.` into words. Each word is an edge of the trie; the empty key is the root. Two words
are wildcards: `*` matches any one word, `#` matches any number of words, including none.

Matching follows all alternatives at once. The *frontier* is the set of nodes that the words read so far can lead to:

    start   {root}, closed under '#' edges
    word w  each node's edge `w` and edge `*`, and the node itself if a '#' edge led to it; closed under '#' edges
    end     the destinations bound at the nodes of the last frontier

A node is in a frontier once, however many paths lead to it. So matching never backtracks, and `#.#.#.#` costs at most
words x nodes. A routing key has at most 256 words, since it has at most 255 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from ...parted_table import SPLIT_AT, Growing, in_parts
from ..destinations import Destination, DestinationSet


class _Node:
    __slots__ = ("edges", "hash", "is_hash", "bound")

    def __init__(self, is_hash: bool) -> None:
        self.edges: Growing[str, _Node] = {}
        #: Where the edge '#' leads.
        self.hash: _Node | None = None
        self.is_hash = is_hash
        self.bound: DestinationSet | None = None


class TopicTrie:
    """Destinations under topic patterns. A destination bound twice under one pattern must be removed twice."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node(False)

    def __bool__(self) -> bool:
        """Whether it has any destination."""
        return bool(self._root.edges) or self._root.bound is not None

    def has_branch(self, word: str) -> bool:
        """Whether any pattern begins with this word itself."""
        return word in self._root.edges

    def insert(self, pattern: str, destination: Destination) -> None:
        node = self._root
        for word in _words(pattern):
            following = node.edges.get(word)
            if following is None:
                following = node.edges[word] = _Node(word == "#")
                if len(node.edges) == SPLIT_AT:
                    node.edges = in_parts(node.edges)
                if word == "#":
                    node.hash = following
            node = following
        if node.bound is None:
            node.bound = DestinationSet()
        node.bound.add(destination)

    def remove(self, pattern: str, destination: Destination) -> None:
        """Undo one `insert` and remove branches without destinations. Raises KeyError if there was no such insert."""
        words = _words(pattern)
        path = [self._root]
        for word in words:
            path.append(path[-1].edges[word])
        bound = path[-1].bound
        if bound is None:
            raise KeyError(destination)
        bound.remove(destination)
        if not bound:
            path[-1].bound = None
        for depth in range(len(words), 0, -1):
            if path[depth].edges or path[depth].bound is not None:
                return
            del path[depth - 1].edges[words[depth - 1]]
            if words[depth - 1] == "#":
                path[depth - 1].hash = None

    def match(self, routing_keys: Iterable[str]) -> tuple[Destination, ...]:
        """The destinations whose pattern matches at least one of the keys, each once."""
        groups = []
        for key in routing_keys:
            for node in self._reached(_words(key)):
                if node.bound is not None:
                    groups.append(node.bound.as_tuple)
        if len(groups) == 1:
            return groups[0]
        return tuple(dict.fromkeys(chain.from_iterable(groups)))

    def _reached(self, words: list[str]) -> Iterable[_Node]:
        """The last frontier, which is empty if no pattern matches.

        A frontier is a dict without values, so that it is ordered and a simulation repeats exactly.
        """
        frontier: dict[_Node, None] = {self._root: None}
        if self._root.hash is not None:
            _add_hashes(frontier, self._root)
        for word in words:
            reached: dict[_Node, None] = {}
            for node in frontier:
                edges = node.edges
                if node.is_hash:
                    reached[node] = None  # what its '#' edges lead to is in the frontier too, and stays as well
                found = edges.get(word)
                if found is not None:
                    reached[found] = None
                    if found.hash is not None:
                        _add_hashes(reached, found)
                found = edges.get("*")
                if found is not None:
                    reached[found] = None
                    if found.hash is not None:
                        _add_hashes(reached, found)
            if not reached:
                return ()
            frontier = reached
        return frontier


def _add_hashes(frontier: dict[_Node, None], node: _Node) -> None:
    """Add the nodes that `#` edges lead to from this node without reading a word."""
    following = node.hash
    while following is not None and following not in frontier:
        frontier[following] = None
        following = following.hash


def _words(key: str) -> list[str]:
    return key.split(".") if key else []
