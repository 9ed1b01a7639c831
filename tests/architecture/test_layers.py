"""Which package may import which (docs/internals, the layout of the house), and how files may be called."""

import ast
from collections import defaultdict

import pytest

#: Names that once stood for several things and were confused. Each may name one class or type alias only.
SINGLE_NAMES = {"Durability", "Folding", "Journal", "Lease", "Message", "Part", "ReadAhead", "Reader", "Reading"}

#: Names of classes that two modules may define, each with the reason.
SHARED_NAMES: dict[str, str] = {}


def test_nothing_imports_upward(layers, root):
    assert layers.violations(root) == []


def test_the_checker_reads_the_whole_package(layers, root):
    """The checker reads the whole package; one that found no files would find no violations either."""
    rooms = {layers.room_of(path, root) for path in layers.sources(root)}
    assert {"amqp", "store", "runtime", "actors", "cli", "broker", "settings"} <= rooms
    assert any(True for path in layers.sources(root) for _ in layers.imported_rooms(path, root))


@pytest.mark.parametrize(
    ("file", "code", "complaint"),
    [
        ("amqp/frames.py", "from ..actors.queue import Queue", "amqp (layer 0) imports actors (layer 1)"),
        ("amqp/frames.py", "import warren.broker", "amqp (layer 0) imports broker (layer 4)"),
        ("amqp/frames.py", "from warren import Broker", "amqp (layer 0) imports __init__ (layer 4)"),
        ("amqp/frames.py", "from .. import store", "the pure room amqp imports the pure room store"),
        ("store/deep/queue.py", "from ...runtime import process", "the pure room store imports the pure room runtime"),
        (
            "actors/node.py",
            "def late():\n    from ..cluster.link import Link",
            "actors (layer 1) imports cluster (layer 3)",
        ),
        (
            "settings.py",
            "from .amqp import frames\nfrom .broker import Broker",
            "settings (layer 0) imports broker (layer 4)",
        ),
        ("attic/things.py", "", "'attic' has no place in the layer table"),
    ],
)
def test_a_violation_is_found(layers, tmp_path, file, code, complaint):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    assert [complaint in line for line in layers.violations(tmp_path)] == [True]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        (
            "actors/queue/process.py",
            "from ...amqp import frames\nfrom ...store.run import Run\nfrom ...routing import table",
        ),
        ("routing/table.py", "from ..amqp.fields import Table\nfrom ..amqp.errors import AmqpError"),
        ("amqp/frames.py", "import struct\nfrom .constants import FRAME_END\nfrom . import errors"),
        ("cli/programs/start.py", "from ...broker import Broker\nfrom ...settings import Settings"),
        ("tests/test_any.py", "from warren import Broker"),
    ],
)
def test_what_is_allowed_is_not_reported(layers, tmp_path, file, code):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    assert layers.violations(tmp_path) == []


def test_the_core_of_a_queue_holds_no_process(root):
    """A role and its parts decide; only the replica sends, sets timers and waits (docs/internals, replica and role)."""
    queue = root / "actors" / "queue"
    shared = ("arrivals", "effects", "disk/head_read", "publisher_confirms", "replica_state", "role")
    folders = ("consumers", "master", "pacing", "stream")
    files = [path for folder in folders for path in sorted((queue / folder).glob("*.py"))]
    files += [queue / f"{name}.py" for name in shared]
    files += [queue / "group" / f"{name}.py" for name in ("group", "members", "schedule")]
    files.append(queue / "message_index" / "index_feed.py")
    assert len(files) > 30
    assert [path.name for path in files if "runtime.process" in path.read_text("utf-8")] == []


def test_files_are_named_after_what_they_are_about(layers, root):
    """No file is called utils, helpers or common: code that two places use gets a name that says what it is about."""
    assert [
        str(path) for path in layers.sources(root) if layers.NAMELESS & {*path.relative_to(root).parts[:-1], path.stem}
    ] == []


def test_a_name_that_was_confused_stands_for_one_thing(layers, root):
    places = defaultdict(list)
    for path in layers.sources(root):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in SINGLE_NAMES.intersection(names):
                places[name].append(str(path.relative_to(root)))
    assert places.keys() & {"Lease", "Message"} == {"Lease", "Message"}, "the names were not looked for"
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_modules_define_a_class_of_one_name(layers, root):
    """A name that stands for two things makes the reader look up which one is meant."""
    shared = layers.shared_class_names(root)
    assert {name: files for name, files in shared.items() if name not in SHARED_NAMES} == {}, "name what each class is"
    assert SHARED_NAMES.keys() - shared.keys() == set(), "these names stand for one class: take them off the list"


def test_a_shared_name_is_found(tmp_path, layers):
    for file, code in (
        ("store/one.py", "class Shared:\n    class Inner: ..."),
        ("mirror/two.py", "if linux:\n    class Shared: ...\nelse:\n    class Shared: ...\n\nclass Inner: ..."),
        ("mirror/twin.py", "try:\n    class Twin: ...\nexcept ImportError:\n    class Twin: ..."),
        ("bench/one.py", "class Alone: ...\n\nclass Inner: ..."),
        ("bench/two.py", "class Alone: ..."),
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(code)
    assert layers.shared_class_names(tmp_path) == {
        "Inner": ["mirror/two.py", "bench/one.py"],
        "Shared": ["mirror/two.py", "store/one.py"],
    }
