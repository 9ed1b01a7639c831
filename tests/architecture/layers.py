"""The layer table of docs/internals, as a check on the imports of a source tree.

    4  cli  management  spark  broker.py         the faces, with embedded_cluster.py, administration.py, messaging.py,
                                                 running_node.py, listings.py, server.py, extensions.py and
                                                 pytest_plugin.py
    3  cluster  simulation                       nodes
    2  mirror                                    queues across nodes
    1  actors  gm_ring  perf_test  sharding      processes, and two rooms that are clients: a load generator, and a
                                                 library for sharded queues
    0  amqp  definitions  routing  store         pure rooms, with settings, heap.py, parted_table.py, portable.py,
       runtime                                   seams.py and version.py

A room imports from its own layer and from those below, never upward. A pure room imports no other pure room, with one
exception: `routing` and `definitions` use the values of AMQP (field tables, reply codes, `AmqpError`), which are the
modules in `AMQP_VALUES`. Files at the root are rooms of their own.
"""

import ast
import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

LAYERS = {
    0: {
        "amqp",
        "definitions",
        "routing",
        "store",
        "runtime",
        "heap",
        "parted_table",
        "portable",
        "seams",
        "settings",
        "version",
    },
    1: {"actors", "gm_ring", "perf_test", "sharding"},
    2: {"mirror"},
    3: {"cluster", "simulation"},
    4: {
        "cli",
        "management",
        "spark",
        "administration",
        "messaging",
        "broker",
        "embedded_cluster",
        "extensions",
        "listings",
        "running_node",
        "server",
        "pytest_plugin",
        "__init__",
        "__main__",
    },
}
LAYER_OF = {room: layer for layer, rooms in LAYERS.items() for room in rooms}
PURE = {"amqp", "definitions", "routing", "store", "runtime"}
#: What `routing` and `definitions` may import of `amqp`: its values, nothing of the wire.
AMQP_VALUES = {"amqp.constants", "amqp.errors", "amqp.fields"}
NOT_THE_PACKAGE = {"tests", "bench", "docs", "build", "dist"}
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "shared", "lib"}


def sources(root: Path) -> list[Path]:
    """The package's own modules."""
    return sorted(path for place in places(root, NOT_THE_PACKAGE) for path in place)


def places(root: Path, left_out: Collection[str]) -> Iterator[Iterable[Path]]:
    """The Python files of each file and folder at the root, without those whose names are `left_out` or begin with a
    dot: an environment in `.venv` has more files than the project.
    """
    for entry in root.iterdir():
        if not entry.name.startswith(".") and entry.name not in left_out:
            yield entry.rglob("*.py") if entry.is_dir() else [entry] if entry.suffix == ".py" else []


@functools.cache
def _import_nodes(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports of the file, wherever in the file they stand. Each file is parsed once for all tests."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    return [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]


def room_of(path: Path, root: Path) -> str:
    """The folder at the root, or the name of a file at the root."""
    first = path.relative_to(root).parts[0]
    return first.removesuffix(".py")


def imports(path: Path, root: Path) -> Iterator[tuple[int, str, str]]:
    """(line, room, module below the root) for every import of the package's own code in the file, wherever in the file
    it stands.
    """
    package = ["warren", *path.relative_to(root).parts[:-1]]
    for node in _import_nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *((node.module or "").split(".") if node.module else [])]
            names = [".".join([*module, alias.name]) for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "warren" and len(parts) > 1:
                room = parts[1] if parts[1] in LAYER_OF else "__init__"
                yield node.lineno, room, ".".join(parts[1:3])


def imported_rooms(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """(line, room) for every import of the package's own code in the file."""
    return ((line, room) for line, room, _ in imports(path, root))


def violations(root: Path) -> list[str]:
    """One line of text for each import that the table forbids, and each room it does not know."""
    found = []
    for path in sources(root):
        room, name = room_of(path, root), path.relative_to(root)
        if room not in LAYER_OF:
            found.append(f"{name}: '{room}' has no place in the layer table")
            continue
        for line, target, module in imports(path, root):
            if target == room or room in ("routing", "definitions") and module in AMQP_VALUES:
                continue
            if LAYER_OF[target] > LAYER_OF[room]:
                found.append(
                    f"{name}:{line}: {room} (layer {LAYER_OF[room]}) imports {target} (layer {LAYER_OF[target]})"
                )
            elif room in PURE and target in PURE:
                found.append(f"{name}:{line}: the pure room {room} imports the pure room {target}")
    return found


def rings(root: Path) -> list[list[str]]:
    """The rings of imports: files each of which reaches all others of its ring, the largest ring first."""
    modules = {_module(path, root): path.relative_to(root).as_posix() for path in sources(root)}
    imported = {
        modules[_module(path, root)]: {modules[name] for name in _imported_modules(path, root, modules)}
        for path in sources(root)
    }
    reached: dict[str, set[str]] = {}
    for file in imported:
        reached[file], waiting = set(), [file]
        while waiting:
            new = imported[waiting.pop()] - reached[file]
            reached[file] |= new
            waiting.extend(new)
    found = {frozenset(other for other in reached[file] if file in reached[other]) for file in imported}
    return sorted((sorted(ring) for ring in found if len(ring) > 1), key=lambda ring: (-len(ring), ring))


def shared_class_names(root: Path) -> dict[str, list[str]]:
    """The names of classes that two modules define, with these modules. Benchmarks may share a name among themselves,
    because each of them is a program by itself, but not with the package.
    """
    files = defaultdict(list)
    for path in (*sources(root), *sorted((root / "bench").rglob("*.py"))):
        for name in _class_names(path):
            files[name].append(path.relative_to(root).as_posix())
    return {
        name: found
        for name, found in sorted(files.items())
        if len(found) > 1 and not all(file.startswith("bench/") for file in found)
    }


def _class_names(path: Path) -> set[str]:
    """The names of the classes that the module itself defines. A class and its portable twin have one name there."""
    found = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while nodes:
        for node in ast.iter_child_nodes(nodes.pop()):
            if isinstance(node, ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, (ast.If, ast.Try, ast.ExceptHandler)):
                nodes.append(node)
    return found


def _module(path: Path, root: Path) -> tuple[str, ...]:
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported_modules(paths: Iterable[Path], root: Path) -> dict[Path, set[tuple[str, ...]]]:
    """For each of these files the package's own modules that it imports by `from`."""
    modules = {_module(each, root): "" for each in sources(root)}
    return {path: set(_imported_modules(path, root, modules)) for path in paths}


def _imported_modules(path: Path, root: Path, modules: Mapping[tuple[str, ...], str]) -> Iterator[tuple[str, ...]]:
    """The package's own modules that the file imports by `from`, wherever in the file it does so."""
    folder = path.relative_to(root).parts[:-1]
    for node in _import_nodes(path):
        if isinstance(node, ast.ImportFrom):
            named = tuple(node.module.split(".")) if node.module else ()
            if not node.level and named[0] != "warren":
                continue
            base = (*folder[: len(folder) + 1 - node.level], *named) if node.level else named[1:]
            for alias in node.names:
                module = (*base, alias.name) if (*base, alias.name) in modules else base
                if module in modules:
                    yield module
