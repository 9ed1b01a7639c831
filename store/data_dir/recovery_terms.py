"""What queues want to know at their next start if they stopped cleanly: an LMDB environment of its own, synced at every commit.

    terms   queue id as u64 big-endian  ->  u32 CRC-32 of key and terms | msgpack of the terms that `terminate` returned

`take_all` reads and durably clears the table before anything else happens: from then on a crash is an unclean end
(section 10.1, C-22). A queue without terms is recovered as one that ended uncleanly. That loses nothing, so a damaged
environment is just thrown away (`take_terms`).
"""

from __future__ import annotations

import os
import shutil
from struct import Struct
from typing import Any
from zlib import crc32

import lmdb
import msgpack  # type: ignore[import-untyped]

from ..disk.damage_log import VERIFY, log
from ..disk.lmdb_check import DamagedFile, check_file

MAP_SIZE = 1 << 30
_CHECKSUM = Struct(">I")


class DamagedTerms(Exception):
    """A row is not what was written."""


class RecoveryTerms:
    """See the module. `path` is a directory of the operating system, this environment's alone."""

    def __init__(self, path: str) -> None:
        self._env = lmdb.open(path, map_size=MAP_SIZE, max_dbs=1)
        self._terms = self._env.open_db(b"terms")

    def take_all(self) -> dict[int, dict[str, Any]]:
        """Terms by queue; afterwards, durably, there are none. Raises DamagedTerms."""
        with self._env.begin(self._terms, write=True) as transaction:
            taken = _unpacked(transaction)
            transaction.drop(self._terms, delete=False)
        return taken

    def put_all(self, terms: dict[int, dict[str, Any]]) -> None:
        """Keep terms, in one synced commit; the last thing of a shutdown."""
        with self._env.begin(self._terms, write=True) as transaction:
            for queue, values in terms.items():
                key, packed = queue.to_bytes(8, "big"), msgpack.packb(values)
                transaction.put(key, _CHECKSUM.pack(crc32(packed, crc32(key))) + packed)

    def close(self) -> None:
        self._env.close()


def read_terms(path: str) -> dict[int, dict[str, Any]]:
    """What `take_all` would return, for whoever only looks: nothing is locked or written. Raises lmdb.Error, also for a table that was never made."""
    with lmdb.open(path, map_size=MAP_SIZE, max_dbs=1, readonly=True, lock=False, create=False) as environment:
        terms = environment.open_db(b"terms", create=False)
        with environment.begin(terms) as transaction:
            return _unpacked(transaction)


def take_terms(path: str) -> dict[int, dict[str, Any]]:
    """What `take_all` says of the environment at `path`; one that is damaged is thrown away, and there are none. Waits for the disk.

    Raises lmdb.DiskError on a full one.
    """
    try:
        # LMDB would end the process at a damaged file.
        if os.path.exists(f"{path}/data.mdb"):
            check_file(f"{path}/data.mdb")
        return _taken(path)
    except lmdb.DiskError:
        raise  # no room: it is as good as it was
    except (DamagedFile, DamagedTerms, lmdb.Error) as error:
        log.warning(
            "%s is damaged: %s. It is thrown away: the last stop counts as unclean, so that all is looked through, and nothing is lost by it. %s",
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
