"""The offline check of a data directory, `warren store verify`: it reads everything there and writes nothing.

The broker of the directory must be stopped; a shared lock keeps brokers from starting meanwhile and leaves no trace.
The check compares everything that warren stores twice or can count, and reports each finding with what warren will do
about it. Each module checks one thing:

    verify_metadata      rows, and what they refer to
    verify_vhost         one virtual host: how it was stopped, config, recovery terms, and its parts against each other
    verify_journal       the journal, frame by frame
    verify_segments      a queue's index, frame by frame, united with the journal
    verify_bodies        the message store, record by record, and its location index
    verify_references    counts which messages the queues refer to
    verify_environment   checks that an LMDB file is whole before it is opened
    verify_report        the findings and the counts that come out

It needs memory for the journal's messages without bodies, one segment, the locations in one data file, 2 bytes for each
message with a body in the message store, and the page numbers of LMDB files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..data_dir.data_dir import DataDirError, LostMetadata, examine, is_vhost_id, lock_holder, vhost_id
from ..disk.disk import TOMBSTONE
from ..disk.read_only_disk import ReadOnlyDisk
from ..disk.system.boot_id import this_boot
from ..disk.system.file_lock import locks
from .verify_metadata import Interpret, MetadataFound, check_metadata
from .verify_report import Findings, VerifyReport
from .verify_vhost import VhostPlace, check_vhost, data_bytes

LOCK = "lock"


class InUse(DataDirError):
    """A broker uses the directory."""


class CannotVerify(DataDirError):
    """The directory does not exist, is another program's, or has a format that this version cannot read."""


class HasNoMetadata(CannotVerify):
    """The directory has messages, and no metadata any more."""


@contextmanager
def opened(path: str, needs_metadata: bool = True) -> Iterator[str]:
    """Hold the directory's shared lock, which keeps brokers from starting; yields its absolute path.

    Raises InUse, CannotVerify and, if it `needs_metadata`, HasNoMetadata.
    """
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        raise CannotVerify(f"there is no directory '{path}'. Give the data_dir of a broker")
    try:
        _check_is_known(path, needs_metadata)
        lock = _lock(path)
    except OSError as error:
        raise CannotVerify(
            f"data directory '{path}' cannot be read: {error.strerror or error}. "
            "Run this as the user that the broker runs as"
        ) from error
    try:
        yield path
    finally:
        if lock is not None:
            os.close(lock)


def _check_is_known(path: str, needs_metadata: bool) -> None:
    try:
        if examine(path, needs_metadata) is None:
            raise CannotVerify(f"'{path}' is empty: no broker has used it yet")
    except CannotVerify:
        raise
    except LostMetadata as error:
        raise HasNoMetadata(str(error)) from None
    except DataDirError as error:
        raise CannotVerify(str(error)) from None


def _lock(path: str) -> int | None:
    """Lock the lock file; None if there is none, as in a copy, which no broker uses."""
    try:
        lock = os.open(f"{path}/{LOCK}", os.O_RDONLY)
    except FileNotFoundError:
        return None
    if not locks.try_lock(lock, is_shared=True):
        holder = lock_holder(lock)
        os.close(lock)
        raise InUse(
            f"data directory '{path}' is in use by {holder}. "
            "Stop that broker, or verify a copy made while it is stopped"
        )
    return lock


def total_bytes(path: str) -> int:
    """About how many bytes `verify` reports to `advance` in all; 0 if the directory cannot be read."""
    try:
        return sum(data_bytes(ReadOnlyDisk(f"{path}/vhosts/{name}")) for name in ReadOnlyDisk(path).list("vhosts"))
    except OSError:
        return 0


def verify(
    path: str, interpret: Interpret, advance: Callable[[int], None] = lambda size: None, boot_id: str | None = None
) -> VerifyReport:
    """Check a directory while it is `opened`. `advance` receives the bytes checked since its last call.

    `boot_id` is by default that of this run of the operating system.
    """
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
            include_vhost(report, place, advance)
        else:
            _note_missing_directory(report, directory, name, metadata)
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


def include_vhost(report: VerifyReport, place: VhostPlace, advance: Callable[[int], None] = lambda size: None) -> None:
    """Check a virtual host, and add what is found to the report."""
    findings = Findings(place.shown)
    try:
        report.vhosts.append(check_vhost(place, findings, advance))
    except OSError as error:
        where = f"{place.shown}/{os.path.relpath(error.filename, place.path)}" if error.filename else place.shown
        report.findings.unreadable(where, error)
    report.findings.include(findings)


def _note_missing_directory(report: VerifyReport, directory: str, name: str, metadata: MetadataFound) -> None:
    queues = len(metadata.queues.get(name, {}))
    report.findings.note(
        f"vhosts/{directory}",
        f"virtual host '{name}' has no directory, so nothing is in its {queues:,} durable queues",
        "it is made",
    )
