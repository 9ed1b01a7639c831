"""Recovery terms: what each queue needs at its next start after a clean stop, in an LMDB environment of their own.

    terms   queue number as u64 big-endian  ->  u32 CRC-32 of key and terms | msgpack of the terms that `terminate`
    returned

The version of this layout is that of the data directory (`data_dir.FORMAT`). Every commit is synced.

`take_all` reads and durably clears the table before a start does anything else: a crash from then on is an unclean end
(queue-and-store section 10.1, C-22). A queue without terms is recovered like one that ended uncleanly. That loses
nothing, so `take_terms` deletes a damaged environment.
"""

from __future__ import annotations

import os
import shutil
from struct import Struct
from typing import Any
from zlib import crc32

import lmdb
import msgpack  # type: ignore[import-untyped]

from ...heap import outside_heap
from ..disk.damage_log import VERIFY, log
from ..disk.lmdb_check import DamagedFile, check_file

MAP_SIZE = 1 << 30
_CHECKSUM = Struct(">I")


class DamagedTerms(Exception):
    """A row has a wrong checksum."""


class RecoveryTerms:
    """The environment in the directory `path` of the operating system. Its methods wait for the disk."""

    def __init__(self, path: str) -> None:
        with outside_heap():
            self._env = lmdb.open(path, map_size=MAP_SIZE, max_dbs=1)
        self._terms = self._env.open_db(b"terms")

    def take_all(self) -> dict[int, dict[str, Any]]:
        """Remove and return all terms, by queue, durably. Raises DamagedTerms."""
        with self._env.begin(self._terms, write=True) as transaction:
            taken = _unpacked(transaction)
            transaction.drop(self._terms, delete=False)
        return taken

    def put_all(self, terms: dict[int, dict[str, Any]]) -> None:
        """Write terms in one synced commit: the last step of a stop."""
        with self._env.begin(self._terms, write=True) as transaction:
            for queue, values in terms.items():
                key, packed = queue.to_bytes(8, "big"), msgpack.packb(values)
                transaction.put(key, _CHECKSUM.pack(crc32(packed, crc32(key))) + packed)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def read_terms(path: str) -> dict[int, dict[str, Any]]:
    """What `take_all` would return, without locking or writing anything; for `warren store verify`.

    Raises lmdb.Error, also for a table that was never made, and DamagedTerms. Waits for the disk.
    """
    with lmdb.open(path, map_size=MAP_SIZE, max_dbs=1, readonly=True, lock=False, create=False) as environment:
        terms = environment.open_db(b"terms", create=False)
        with environment.begin(terms) as transaction:
            return _unpacked(transaction)


def take_terms(path: str) -> dict[int, dict[str, Any]]:
    """What `take_all` returns for the environment at `path`; nothing for a damaged one, which is deleted.

    Waits for the disk. Raises lmdb.DiskError if the disk is full.
    """
    try:
        # LMDB would kill the process at a damaged file.
        if os.path.exists(f"{path}/data.mdb"):
            check_file(f"{path}/data.mdb")
        return _taken(path)
    except lmdb.DiskError:
        raise  # the disk is full; the environment is undamaged
    except (DamagedFile, DamagedTerms, lmdb.Error) as error:
        log.warning(
            "%s is damaged: %s. It is deleted: the last stop counts as unclean, so this start reads all files of the "
            "virtual host. No message is lost by that. %s",
            path,
            error,
            VERIFY,
        )
    shutil.rmtree(path)
    return _taken(path)


def _taken(path: str) -> dict[int, dict[str, Any]]:
    terms = RecoveryTerms(path)
    try:
        return terms.take_all()
    finally:
        terms.close()


def _unpacked(transaction: lmdb.Transaction[bytes]) -> dict[int, dict[str, Any]]:
    found = {}
    for key, value in transaction.cursor():
        packed = value[_CHECKSUM.size :]
        if value[: _CHECKSUM.size] != _CHECKSUM.pack(crc32(packed, crc32(key))):
            raise DamagedTerms(f"the terms of queue {key.hex()} have a wrong checksum")
        found[int.from_bytes(key, "big")] = msgpack.unpackb(packed, strict_map_key=False)
    return found
