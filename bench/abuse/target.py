"""`Target`: the broker under abuse, and how it is reached."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from ..load.broker import BrokerFailed


class Target(NamedTuple):
    """A broker on this machine."""

    port: int
    #: The command that operates it, to which a subcommand and its arguments are added; empty if there is none.
    command: Sequence[str] = ()
    tls_port: int | None = None

    def operate(self, *arguments: str) -> None:
        """Run a subcommand that RabbitMQ and warren have in common. Raises BrokerFailed."""
        done = subprocess.run([*self.command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise BrokerFailed(f"{' '.join(arguments)} ended with exit code {done.returncode}: {done.stderr}")
