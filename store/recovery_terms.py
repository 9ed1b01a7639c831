"""What queues want to know at their next start if they stopped cleanly: an LMDB environment of its own, synced at every commit.

    terms   queue id as u64 big-endian  ->  msgpack of the terms that `terminate` returned

`take_all` reads and durably clears the table before anything else happens: from then on a crash is an unclean end (section 10.1, C-22).
A queue without terms is recovered as one that ended uncleanly.
"""

from __future__ import annotations

from typing import Any

import lmdb
import msgpack  # type: ignore[import-untyped]

MAP_SIZE = 1 << 30


class RecoveryTerms:
    """See the module. `path` is a directory of the operating system, this environment's alone."""

    def __init__(self, path: str) -> None:
        self._env = lmdb.open(path, map_size=MAP_SIZE, max_dbs=1)
        self._terms = self._env.open_db(b'terms')

    def take_all(self) -> dict[int, dict[str, Any]]:
        """Terms by queue; afterwards, durably, there are none."""
        with self._env.begin(self._terms, write=True) as transaction:
            taken = {int.from_bytes(key, 'big'): msgpack.unpackb(value, strict_map_key=False) for key, value in transaction.cursor()}
            transaction.drop(self._terms, delete=False)
        return taken

    def put_all(self, terms: dict[int, dict[str, Any]]) -> None:
        """Keep terms, in one synced commit; the last thing of a shutdown."""
        with self._env.begin(self._terms, write=True) as transaction:
            for queue, values in terms.items():
                transaction.put(queue.to_bytes(8, 'big'), msgpack.packb(values))

    def close(self) -> None:
        self._env.close()


def read_terms(path: str) -> dict[int, dict[str, Any]]:
    """What `take_all` would return, for whoever only looks: nothing is locked or written. Raises lmdb.Error, also for a table that was never made."""
    with lmdb.open(path, map_size=MAP_SIZE, max_dbs=1, readonly=True, lock=False, create=False) as environment:
        terms = environment.open_db(b'terms', create=False)
        with environment.begin(terms) as transaction:
            return {int.from_bytes(key, 'big'): msgpack.unpackb(value, strict_map_key=False) for key, value in transaction.cursor()}
