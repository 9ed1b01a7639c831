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

from .destinations import Destination, DestinationSet


class _Node:
    __slots__ = ("edges", "is_hash", "bound")

    def __init__(self, is_hash: bool) -> None:
        self.edges: dict[str, _Node] = {}
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

    def insert(self, pattern: str, destination: Destination) -> None:
        node = self._root
        for word in _words(pattern):
            following = node.edges.get(word)
            if following is None:
                following = node.edges[word] = _Node(word == "#")
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

    def match(self, routing_keys: Iterable[str]) -> tuple[Destination, ...]:
        """The destinations whose pattern matches at least one of the keys, each once."""
        groups = []
        for key in routing_keys:
            for node in self._reached(_words(key)):
                if node.bound is not None:
                    groups.append(node.bound.as_tuple)
        if len(groups) == 1:
            return groups[0]
        return tuple(dict.fromkeys(destination for group in groups for destination in group))

    def _reached(self, words: list[str]) -> Iterable[_Node]:
        """The last frontier, which is empty if no pattern matches."""
        frontier = _closed([self._root])
        for word in words:
            reached = []
            for node in frontier:
                edges = node.edges
                if node.is_hash:
                    reached.append(node)
                if word in edges:
                    reached.append(edges[word])
                if "*" in edges:
                    reached.append(edges["*"])
            if not reached:
                return ()
            frontier = _closed(reached)
        return frontier


def _closed(nodes: list[_Node]) -> dict[_Node, None]:
    """The nodes, and those that `#` edges lead to without reading a word.

    The result is ordered, so that a simulation repeats exactly.
    """
    closed: dict[_Node, None] = {}
    for node in nodes:
        following: _Node | None = node
        while following is not None and following not in closed:
            closed[following] = None
            following = following.edges.get("#")
    return closed


def _words(key: str) -> list[str]:
    return key.split(".") if key else []
