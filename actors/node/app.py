"""`App`: whether the part of a node that serves clients runs (CM-40, CM-41).

    stopped ──start_app──► starting ──► running ──stop_app──► (another run of the node, which begins as stopped)

A node whose app is stopped answers commands, and as a member of a cluster it goes on voting and following the log. It
has no queues and no listeners, and the cluster counts it as down. The app stops with its run: the program that runs the
node ends everything in it, and begins another run in the same process whose app is stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.signal import Signal
from ..contracts.membership import AppStopped, StoppedWaiting

if TYPE_CHECKING:
    from ...runtime.contract import Sender
    from ...runtime.process import Process
    from ..contracts.node import AppState

#: The reasons with which `await_end` is answered if the program is to begin another run of the node: one that starts,
#: and one whose app is stopped.
BEGIN_ANEW, BEGIN_STOPPED = "begin anew", "begin anew with the app stopped"


class App:
    """See the module. `process` is the supervisor of the node."""

    def __init__(self, process: Process, is_stopped: bool) -> None:
        self._process = process
        self.state: AppState = "stopped" if is_stopped else "starting"
        self._changed = Signal(process)
        #: Why the program is to end this run before the app has started; empty if it is not.
        self._ends = ""
        #: The unanswered `start_app`.
        self._starting: list[Sender] = []

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    async def until_wanted(self) -> None:
        """Return when an operator wants the app to run. Raises StoppedWaiting if the run is to end."""
        await self._changed.wait_for(lambda: self.state != "stopped" or bool(self._ends))
        if self._ends:
            raise self.end_of_run()

    def start(self, sender: Sender) -> None:
        """Answer `sender` an empty text when the app runs, or with the reason why it cannot."""
        if self.state == "running":
            self._process.reply(sender, "")
            return
        self._starting.append(sender)
        if self.state == "stopped":
            self.state = "starting"
            self._changed.wake_all()

    def started(self) -> None:
        """Note that the app serves clients, and answer those who asked for its start."""
        self.state = "running"
        self._answer("")

    def failed(self, error: Exception) -> None:
        """Answer those who asked for the start of the app that it cannot start."""
        self._answer(str(error))

    def _answer(self, text: str) -> None:
        for sender in self._starting:
            self._process.reply(sender, text)
        self._starting.clear()

    def end(self, reason: str) -> None:
        """Note that the program is to end this run, although the app does not run yet."""
        self._ends = reason
        self._changed.wake_all()

    def end_of_run(self) -> StoppedWaiting:
        """What the start of the node raises after `end`."""
        kind = AppStopped if self._ends == BEGIN_STOPPED else StoppedWaiting
        return kind("the node was stopped before its app had started")

    @property
    def is_ending(self) -> bool:
        """Whether `end` was called."""
        return bool(self._ends)
