"""The memory limit that Linux's control groups set for this operating-system process.

Containers and service managers limit memory there; /proc/meminfo shows the whole machine. Two files lead to the limit:

    /proc/self/cgroup       the groups that the process is in
                            version 1: `4:memory:/docker/ab12`
                            version 2: `0::/system.slice/warren.service`
    /proc/self/mountinfo    the folders where groups are mounted
                            version 1: `... ROOT MOUNT_POINT ... - cgroup cgroup rw,memory`
                            version 2: `... ROOT MOUNT_POINT ... - cgroup2 cgroup2 rw`

ROOT is the group that the mount point shows; a container often sees only its own. A limit holds for all groups below
the one it is set on, so the least one on the way up counts. Version 1 expresses "no limit" by a number near 2**63,
version 2 with `max`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_PROC = Path("/proc")


def cgroup_memory_limit(proc: Path = _PROC) -> int | None:
    """The least of all limits that hold for this process, in bytes; None if there is none or none can be read."""
    return min((limit for folder, file in _folders(proc) if (limit := _limit(folder / file)) is not None), default=None)


def _folders(proc: Path) -> Iterator[tuple[Path, str]]:
    """(folder, name of the file with the limit) of each group that this process is in, and of each group above."""
    groups = _groups(proc)
    for line in _lines(proc / "self" / "mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            version, file = "", "memory.max"
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            version, file = "memory", "memory.limit_in_bytes"
        else:
            continue
        if version in groups:
            for folder in _upwards(Path(fields[4]), PurePosixPath(fields[3]), groups[version]):
                yield folder, file


def _upwards(mount_point: Path, root: PurePosixPath, group: PurePosixPath) -> Iterator[Path]:
    """The folders of `group` and of all groups above it that are mounted at `mount_point`, which shows `root`."""
    # If the group is not below the root, the mount point is the nearest group that can be seen.
    below = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
    for part in (below, *below.parents):
        yield mount_point / part


def _groups(proc: Path) -> dict[str, PurePosixPath]:
    """Groups of this process by controller: 'memory' for version 1, '' for version 2."""
    found = {}
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = PurePosixPath(group)
    return found


def _limit(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
