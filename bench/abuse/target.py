"""`AbusedBroker`: the broker under abuse, and how it is reached."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..load.broker import BrokerFailed
from .witness import Account, account_of


class AbusedBroker(NamedTuple):
    """A broker on this machine."""

    port: int
    #: The command that operates it, to which a subcommand and its arguments are added; empty if there is none.
    command: Sequence[str] = ()
    tls_port: int | None = None
    #: The broker's process, if this program has started it.
    pid: int | None = None

    def operate(self, *arguments: str) -> None:
        """Run a subcommand that RabbitMQ and warren have in common. Raises BrokerFailed."""
        self._run(*arguments)

    def account(self) -> Account | None:
        """The account of the broker's main thread; None if its process is not known."""
        return None if self.pid is None else account_of(self.pid)

    def longest_turn(self, since: float) -> dict[str, Any] | None:
        """What `warren status` has of the longest turn since this time; None if all were short, or for another broker.

        A turn is measured in processor time, so what else the machine does adds nothing to it.
        """
        if not self.command:
            return None
        turns: list[dict[str, Any]] = json.loads(self._run("status", "--formatter", "json")).get("longest_turns", [])
        return next((turn for turn in turns if turn["ended_at"] >= since), None)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise BrokerFailed(f"{' '.join(arguments)} ended with exit code {done.returncode}: {done.stderr}")
        return done.stdout
