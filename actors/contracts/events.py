"""The messages of `EventHub`, which passes events on to the commands and consumers that watch the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ...runtime.contract import message
from .membership import ToLinkSender
from .resources import ToAlarmListener

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..metadata.state.commands import Command
    from ..metadata.state.effects import Change

#: The fields of an event by name: texts, numbers, booleans, None, tables of AMQP, lists of texts, and dicts of these.
Fields: TypeAlias = "Mapping[str, object]"


class ToEventHub(ToAlarmListener, ToLinkSender):
    """What `EventHub` receives."""

    @message
    def event(self, name: str, fields: Fields) -> None:
        """From connections and channels: this has happened."""

    @message
    def applied(self, command: Command, changes: Sequence[Change]) -> None:
        """From Metadata: the command made these changes."""

    @message
    def flow_sample(self, body: bytes) -> None:
        """From `FlowSampler`: publish this as `flow.sample`. Commands that watch do not get it."""

    @message
    def vhost_down(self, name: str) -> None:
        """From Metadata: a process of this virtual host failed, so that it serves nobody."""

    @message
    def subscribe(self, pattern: str, is_log: bool) -> int:
        """From operations: gather the events whose name matches the topic pattern, or lines of the log by level.

        Answered with a number for `take`. The subscription ends with the process that asked.
        """

    @message
    def take(self, number: int) -> list[dict[str, object]]:
        """From operations: answered at once with what the subscription has gathered since the last `take`."""


to_event_hub = ToEventHub()
