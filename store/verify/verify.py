"""The offline check of a data directory: everything that is in it is read, nothing is written.

It looks at a stopped broker's directory, and keeps a broker from starting meanwhile by a shared lock, which leaves no trace. Everything of which warren has several
copies, or that it can count, is compared; what is found comes with what warren will do about it. Each `verify_…` file looks at one thing:

    verify_metadata      rows, and what they refer to
    verify_vhost         one virtual host: how it was stopped, config, recovery terms, and its parts against each other
    verify_journal       the journal, frame by frame
    verify_segments      a queue's index, frame by frame, united with the journal
    verify_bodies        the message store, record by record, and its location index
    walk_frames, walk_records, verify_references, verify_environment, verify_disk        what these walk and count with
    verify_report        what comes out

Memory: what the journal holds, without bodies; a segment; the locations in one data file; 2 bytes for each message with a body in the message store. The pages of the
LMDB files, by their numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..data_dir.data_dir import DataDirError, examine, is_vhost_id, lock_holder, vhost_id
from ..disk.disk import TOMBSTONE
from ..disk.read_only_disk import ReadOnlyDisk
from ..disk.system.boot_id import this_boot
from ..disk.system.file_lock import locks
from .verify_metadata import Interpret, MetadataFound, check_metadata
from .verify_report import Findings, VerifyReport
from .verify_vhost import VhostPlace, check_vhost, data_bytes

LOCK = "lock"


class InUse(DataDirError):
    """A broker has the directory."""


class CannotVerify(DataDirError):
    """The directory is not there, not warren's, or of a format that this warren does not know."""


@contextmanager
def opened(path: str) -> Iterator[str]:
    """The directory's absolute path, while no broker can start with it. Raises InUse and CannotVerify."""
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        raise CannotVerify(f"there is no directory '{path}'. Give the data_dir of a broker")
    try:
        _check_is_known(path)
        lock = _lock(path)
    except OSError as error:
        raise CannotVerify(
            f"data directory '{path}' cannot be read: {error.strerror or error}. Run this as the user that the broker runs as"
        ) from error
    try:
        yield path
    finally:
        if lock is not None:
            os.close(lock)


def _check_is_known(path: str) -> None:
    try:
        if examine(path) is None:
            raise CannotVerify(f"'{path}' is empty: no broker has used it yet")
    except CannotVerify:
        raise
    except DataDirError as error:
        raise CannotVerify(str(error)) from None


def _lock(path: str) -> int | None:
    """None if there is no lock file, as in a copy: then nobody holds it."""
    try:
        lock = os.open(f"{path}/{LOCK}", os.O_RDONLY)
    except FileNotFoundError:
        return None
    if not locks.try_lock(lock, is_shared=True):
        holder = lock_holder(lock)
        os.close(lock)
        raise InUse(
            f"data directory '{path}' is in use by {holder}. Stop that broker, or verify a copy made while it is stopped"
        )
    return lock


def total_bytes(path: str) -> int:
    """How much `verify` walks through: what its `advance` adds up to, roughly; 0 if that cannot be told."""
    try:
        return sum(data_bytes(ReadOnlyDisk(f"{path}/vhosts/{name}")) for name in ReadOnlyDisk(path).list("vhosts"))
    except OSError:
        return 0


def verify(
    path: str, interpret: Interpret, advance: Callable[[int], None] = lambda size: None, boot_id: str | None = None
) -> VerifyReport:
    """Check the directory that `opened` gave. `boot_id` is that of this run of the operating system."""
    report = VerifyReport(path, examine(path) or 0)
    metadata = check_metadata(path, interpret, report.findings)
    names = {vhost_id(name): name for name in metadata.vhosts}
    here = set(ReadOnlyDisk(path).list("vhosts"))
    for directory, name in sorted(names.items(), key=lambda item: item[1]):
        if directory in here:
            shown = f"vhosts/{directory}"
            place = VhostPlace(
                ReadOnlyDisk(f"{path}/{shown}"),
                f"{path}/{shown}",
                shown,
                name,
                metadata.queues.get(name, {}),
                boot_id or this_boot(),
            )
            findings = Findings(shown)
            try:
                report.vhosts.append(check_vhost(place, findings, advance))
            except OSError as error:
                report.findings.unreadable(
                    f"{shown}/{os.path.relpath(error.filename, place.path)}" if error.filename else shown, error
                )
            report.findings.include(findings)
        else:
            _say_without_directory(report, directory, name, metadata)
    for directory in sorted(here - names.keys()):
        if directory.endswith(TOMBSTONE):
            report.findings.note(
                f"vhosts/{directory}", "a virtual host whose deletion a crash interrupted", "the deletion is finished"
            )
        elif not is_vhost_id(directory):
            report.findings.warn(f"vhosts/{directory}", "it is no directory of a virtual host", "it is left alone")
        else:
            outcome = (
                "it is deleted, with all messages in it"
                if metadata.is_whole
                else "not known: the metadata are damaged, and may have named it"
            )
            report.findings.warn(f"vhosts/{directory}", "it belongs to no virtual host of the metadata", outcome)
    return report


def _say_without_directory(report: VerifyReport, directory: str, name: str, metadata: MetadataFound) -> None:
    queues = len(metadata.queues.get(name, {}))
    report.findings.note(
        f"vhosts/{directory}",
        f"virtual host '{name}' has no directory, so nothing is in its {queues:,} durable queues",
        "it is made",
    )
