"""`crc32`: the checksum of everything that a store writes for messages.

It is the CRC-32 of `zlib`. The package `isal` computes the same value with the instructions that processors have for
it, ten times as fast. Where it is not installed, because its authors publish no build of it for the machine, `zlib`
computes it.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32 as crc32_of_all
except ImportError:
    from zlib import crc32 as crc32_of_all

#: Up to this many bytes both libraries keep the interpreter, and give it up for more.
KEEPING_BYTES = 5 * 1024
#: From this many bytes on the interpreter is given up. A thread that gives it up gets it back only when the thread of
#: the event loop waits, or after Python's switch interval; the sum of 16 KiB takes 1 µs, and of 128 KiB 8 µs.
GIVING_UP_BYTES = 256 * 1024


def crc32(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The CRC-32 of `data`, continued from `value`."""
    size = len(data)
    if size <= KEEPING_BYTES or size >= GIVING_UP_BYTES:
        return crc32_of_all(data, value)
    view = memoryview(data)
    for at in range(0, size, KEEPING_BYTES):
        value = crc32_of_all(view[at : at + KEEPING_BYTES], value)
    return value
