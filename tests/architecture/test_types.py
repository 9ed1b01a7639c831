"""The processes are typed: `Any` is rare in `actors/`, because the type checker finds no mistake where it is used."""

import tokenize

#: The most uses of `Any` in `actors/`, imports included. A value that is only passed on is an `object`; a row of a
#: listing is `InfoItems`.
USES = 80


def test_any_is_rare_in_actors(layers, root):
    uses = {}
    for path in layers.sources(root):
        if path.relative_to(root).parts[0] == "actors":
            with tokenize.open(path) as file:
                tokens = tokenize.generate_tokens(file.readline)
                uses[str(path.relative_to(root))] = sum(token[:2] == (tokenize.NAME, "Any") for token in tokens)
    most = sorted(uses, key=uses.__getitem__, reverse=True)[:5]
    assert uses, "no file was read"
    assert sum(uses.values()) < USES, {path: uses[path] for path in most}
