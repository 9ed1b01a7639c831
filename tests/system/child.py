"""A broker in its own operating-system process, so that its memory and processor time can be measured."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """
import json, sys
from warren import Broker
broker = Broker(port=0, **json.loads(sys.argv[1])).start()
print(broker.port, flush=True)
sys.stdin.read()
"""

_PAGE = os.sysconf("SC_PAGE_SIZE")


class ChildBroker:
    """A broker in a process of its own. `address` accepts connections while the `with` block runs; `descriptors` limits
    its open files and sockets.
    """

    def __init__(self, descriptors: int | None = None, **settings: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            preexec_fn=None
            if descriptors is None
            else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors)),
        )
        assert self._process.stdout is not None
        self.address = ("127.0.0.1", int(self._process.stdout.readline()))
        self._files = Path(f"/proc/{self._process.pid}")

    def memory(self) -> int:
        """Resident memory in bytes."""
        return int((self._files / "statm").read_text().split()[1]) * _PAGE

    def processor_time(self) -> float:
        """The processor time used so far, in seconds."""
        after_name = (self._files / "stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> ChildBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the child ends when its input does
