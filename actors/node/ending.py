"""`Ending`: how the program that runs the node learns that this run is to end, and whether another one is to begin.

The program waits for the answers of `await_end` and `await_anew`. Whatever asks for the end may come before these
questions, so the answer is kept.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..contracts.membership import to_membership
from .app import BEGIN_ANEW, BEGIN_STOPPED

if TYPE_CHECKING:
    from ...runtime.contract import Address, Sender
    from ...runtime.process import Process
    from ..contracts.membership import ToMembership
    from .app import App

log = logging.getLogger("warren.node")


class Ending:
    """Belongs to `process`, the supervisor of the node `name`. `members` is None on a node that is alone."""

    def __init__(self, process: Process, name: str, app: App, members: Address[ToMembership] | None) -> None:
        self._process = process
        self._name = name
        self._app = app
        self._members = members
        #: The program's unanswered `await_end`.
        self._awaiting_end: list[Sender] = []
        #: Whether the node was asked to begin anew, and the program's unanswered `await_anew`.
        self._begins_anew = False
        self._awaiting_anew: list[Sender] = []
        #: Why the run is to end; empty as long as nothing has requested its end.
        self._reason = ""

    def await_end(self, sender: Sender) -> None:
        """Answer `sender` with the reason when the run is to end."""
        if self._reason:
            self._process.reply(sender, self._reason)
        else:
            self._awaiting_end.append(sender)

    def await_anew(self, sender: Sender) -> None:
        """Answer `sender` when another run is to begin."""
        if self._begins_anew:
            self._process.reply(sender, True)
        else:
            self._awaiting_anew.append(sender)

    def request(self, reason: str) -> bool:
        """Have the program end this run. Returns False if it does not wait for that."""
        if self._app.is_running and not self._awaiting_end:
            return False
        self._reason = reason
        if not self._app.is_running:
            self._app.end(reason)
            if self._members is not None:
                self._process.send(self._members, to_membership.give_up())
        for waiting in self._awaiting_end:
            self._process.reply(waiting, reason)
        self._awaiting_end.clear()
        return True

    def begin_anew(self, reason: str) -> None:
        """Have the program end this run and begin another one."""
        log.warning("%s ends this run of its app and begins another one: %s", self._name, reason)
        self._begins_anew = True
        for waiting in self._awaiting_anew:
            self._process.reply(waiting, True)
        self._awaiting_anew.clear()
        self.request(BEGIN_ANEW)

    def begin_stopped(self) -> bool:
        """Have the program end this run and begin another one whose app is stopped. Returns False as `request` does."""
        log.info("%s stops its app on an operator's command; `warren start_app` starts it", self._name)
        return self.request(BEGIN_STOPPED)
