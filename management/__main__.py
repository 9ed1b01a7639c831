"""`python -m warren.management`: the process that a node starts beside itself. One line of input configures it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys

from ..actors.management.config import Config
from ..runtime.machine.time_slice import USUAL, set_time_slice
from .service import CannotListen, ToNodeLog, report, serve


def main() -> int:
    # A terminal sends Ctrl-C to all its processes. This one ignores it, because it ends when the node does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The node's short time slice is for its clients.
    set_time_slice(0, USUAL)
    line = _first_line()
    if not line:
        return 0
    root = logging.getLogger()
    root.addHandler(ToNodeLog())
    root.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    gc.freeze()
    try:
        asyncio.run(serve(Config.from_json(line)))
    except CannotListen as error:
        report(failed=str(error))
        return 1
    return 0


def _first_line() -> str:
    """The first line of the input, read byte by byte: what follows is left to the event loop."""
    data = b""
    while not data.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 1)
        if not piece:
            return ""
        data += piece
    return data.decode()


if __name__ == "__main__":
    sys.exit(main())
