"""The processes are typed: `Any` is rare in `actors/`, because the type checker finds nothing wrong where it stands."""

import ast

#: Uses of `Any` in `actors/`, at most. What is only passed on is an `object`; a row of a listing is `InfoItems`.
USES = 100


def test_any_is_rare_in_actors(layers, root):
    uses = {}
    for path in layers.sources(root):
        if path.relative_to(root).parts[0] == "actors":
            nodes = ast.walk(ast.parse(path.read_text()))
            uses[str(path.relative_to(root))] = sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)
    most = sorted(uses, key=uses.__getitem__, reverse=True)[:5]
    assert uses, "no file was read"
    assert sum(uses.values()) < USES, {path: uses[path] for path in most}
