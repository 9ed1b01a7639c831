"""The bounds that keep the code easy to find: files in a folder, lines in a file, and rings of imports."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

#: Folders with other people's code, and with copies that a build makes.
NOT_OURS = {"build", "dist", "node_modules"}
#: How many Python files a folder may list.
FILES = 16
#: The folders that may list more, each with the reason.
LARGER_FOLDERS = {
    "bench": "one file for each benchmark, because `python -m warren.bench.NAME` and `make bench` run them by name",
}
#: How many lines a file may have.
LINES = 500
#: The files of the broker that have more lines, each with the reason. A file leaves this list when it has been cut.
LONGER_FILES = {
    "actors/channel/process.py": (
        "its parts own the state of publishing, consuming and so on; the state, the backlog and whether the "
        "channel is busy are left, and each event reads all three"
    ),
    "actors/connection/process.py": (
        "its parts own the rest; input, output, blocking and leases together decide whether the socket is read"
    ),
    "actors/queue/master/master.py": (
        "its thirteen parts own the state; the order in which they are called is left, and no part could decide "
        "it without nearly all others"
    ),
    "amqp/methods.py": ("one class for each method of AMQP in the order of its specification, and nothing else"),
    "amqp/parser/reader.py": (
        "each step reads and moves the buffer's position, and a step in another object would cost a call for "
        "each publish"
    ),
    "runtime/process.py": (
        "what a subclass of Process may override and call, with the docstrings; a part for asks or monitors "
        "would cost every process an object"
    ),
    "settings/settings.py": (
        "one field for each setting with its limits and its help; the code besides takes 80 lines"
    ),
    "store/queue/variable/variable_queue.py": (
        "the methods of the interfaces that it implements, most of them a call or two of its parts; publishes "
        "and acks stay whole, because each call costs there"
    ),
}
#: The files of tests that have more lines. Each is about one thing, and none may be added.
LONGER_TESTS = frozenset(
    """
    tests/actors/disk/test_journal.py
    tests/actors/metadata/test_durable_metadata.py
    tests/behaviour/dead_lettering/test_dead_lettering_suite.py
    tests/behaviour/queues/types/test_sharded_queues.py
    tests/cli/test_node_commands.py
    tests/routing/test_table.py
    tests/runtime/test_process.py
    tests/runtime/test_thespian_contracts.py
    tests/store/bodies/test_message_store_cases.py
    tests/store/data_dir/test_crash_points.py
    tests/store/index/test_queue_index.py
    tests/store/sim_vhost.py
    tests/store/verify/test_verify.py
    tests/system_crash/churns.py
    """.split()
)
#: How many rings of imports there are; the number may only fall. Imports for the type checker alone count too.
RINGS = 6


#: Modules of processes' folders that contracts and context may import: values, and the protocol of replications.
VALUES = {
    ("actors", "metadata", "state"),
    ("actors", "queue", "mirroring"),
}


@pytest.fixture(scope="module")
def files(root, layers) -> list[Path]:
    """All Python files of the project, tests and benchmarks among them."""
    found = sorted(path.relative_to(root) for place in layers.places(root, NOT_OURS) for path in place)
    return [path for path in found if not any(part.startswith(".") or part in NOT_OURS for part in path.parts)]


def test_a_folder_lists_few_files(files):
    counts = Counter(path.parent.as_posix() for path in files)
    assert {folder: count for folder, count in counts.items() if count > FILES and folder not in LARGER_FOLDERS} == {}


def test_an_exception_for_a_folder_is_needed(files):
    counts = Counter(path.parent.as_posix() for path in files)
    assert [folder for folder in LARGER_FOLDERS if counts[folder] <= FILES] == []


def test_files_are_short_but_for_those_that_were_long(root, files):
    long = {path.as_posix() for path in files if len((root / path).read_text("utf-8").splitlines()) > LINES}
    known = LONGER_FILES.keys() | LONGER_TESTS
    assert sorted(long - known) == [], f"files of over {LINES} lines: cut them along what they keep or are about"
    assert sorted(known - long) == [], "these files are short or gone: take them off their list"


@pytest.fixture(scope="module")
def rings(root, layers):
    return layers.rings(root)


def test_there_are_no_more_rings_of_imports(rings):
    assert len(rings) == RINGS, "fewer: lower the number; more: the new ring wants an import cut"


def test_no_ring_of_imports_goes_through_the_processes(rings):
    """Processes import contracts, which import no process (docs/internals/architecture.md)."""
    assert [ring for ring in rings if any(file.startswith("actors/") for file in ring)] == []


def test_contracts_import_no_process(root, layers):
    """Contracts import values, the context imports contracts, and the processes import both."""
    found = {
        f"{path.relative_to(root)} imports {'.'.join(module)}"
        for folder, allowed in (("contracts", ()), ("context", ("contracts", "statistics")))
        for path, modules in layers.imported_modules((root / "actors" / folder).glob("*.py"), root).items()
        for module in modules
        if module[0] == "actors" and module[1] not in (folder, *allowed) and module[:3] not in VALUES
    }
    assert found == set()


def test_a_ring_is_found(tmp_path, layers):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "one.py").write_text("from .two import Two")
    (tmp_path / "store" / "two.py").write_text("if TYPE_CHECKING:\n    from . import one")
    (tmp_path / "store" / "three.py").write_text("from .one import One")
    assert layers.rings(tmp_path) == [["store/one.py", "store/two.py"]]
