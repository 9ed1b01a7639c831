"""Topic patterns in a trie of words (AB-70).

A binding key is cut at every `.` into words, and each word is an edge of the trie; the empty key is the root itself. Two
words are special: `*` stands for any one word, `#` for any number of words, none included.

Matching walks the trie with all possibilities at once. The *frontier* is the set of nodes that can be reached after the
words read so far:

    start   {root}, closed under '#' edges
    word w  each node's edge `w` and edge `*`, and the node itself if a '#' edge led to it; closed under '#' edges
    end     whatever is bound at the nodes of the last frontier

A node is in a frontier once, however many ways lead to it, so that `#.#.#.#` costs words x nodes and never more: there is
no choice to be undone, hence nothing exponential. A key has at most 128 words (255 octets).
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
        """Undo one `insert`; branches that lead nowhere any more are cut off. Raises KeyError if there was none."""
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
        cells = []
        for key in routing_keys:
            for node in self._reached(_words(key)):
                if node.bound is not None:
                    cells.append(node.bound.cell)
        if len(cells) == 1:
            return cells[0]
        return tuple(dict.fromkeys(destination for cell in cells for destination in cell))

    def _reached(self, words: list[str]) -> Iterable[_Node]:
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
    """The nodes and whatever `#` edges lead to without reading a word. Ordered, so that one seed decides everything."""
    closed: dict[_Node, None] = {}
    for node in nodes:
        following: _Node | None = node
        while following is not None and following not in closed:
            closed[following] = None
            following = following.edges.get("#")
    return closed


def _words(key: str) -> list[str]:
    return key.split(".") if key else []
