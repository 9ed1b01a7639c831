"""`RecentEvents`: what has happened to the cluster lately: nodes, alarms, policies and masters that have changed.

The management process finds each change by comparing two answers of the broker, so events cost the broker nothing. A
change that is taken back before the next answer is not noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

#: Events that are kept.
KEPT = 200

ALARMS = {"memory": "memory", "disk": "free disk space"}


class RecentEvents:
    """See the module. The newest event is the last one."""

    def __init__(self) -> None:
        self._events: deque[Row] = deque(maxlen=KEPT)
        self._number = 0
        #: What was shown last; None before anything was.
        self._members: dict[str, Row] | None = None
        self._policies: dict[tuple[str, str, str], Row] | None = None
        #: By node: its alarms.
        self._alarms: dict[str, set[str]] = {}

    def newest(self, most: int) -> list[Row]:
        """The newest events, the latest first."""
        return list(self._events)[: -most - 1 : -1]

    def add(self, time: float, kind: str, text: str) -> None:
        """Note an event. `time` is in seconds since the epoch."""
        self._number += 1
        self._events.append({"number": self._number, "time": int(time * 1000), "kind": kind, "text": text})

    def note_members(self, node: Row) -> None:
        """Compare the members of the cluster, as this row of a node has them, with those before."""
        time, members = node["time"], {each["name"]: each for each in node["members"]}
        known, self._members = self._members, members
        if known is None:
            self.add(node["started_at"], "node", f"node '{node['name']}' has started")
            return
        for name in known.keys() - members.keys():
            self.add(time, "node", f"node '{name}' has left the cluster")
        for name, row in members.items():
            before = known.get(name)
            if before is None:
                self.add(time, "node", f"node '{name}' has joined the cluster")
                continue
            if before["is_running"] != row["is_running"]:
                self.add(time, "node", f"node '{name}' {'runs' if row['is_running'] else 'does not run any more'}")
            if before["maintenance"] != row["maintenance"]:
                verb = "is under maintenance" if row["maintenance"] else "is no longer under maintenance"
                self.add(time, "node", f"node '{name}' {verb}")

    def note_alarms(self, node: Row) -> None:
        """Compare the alarms of a node with those before."""
        name, alarms = node["name"], set(node["alarms"])
        known = self._alarms.get(name, set())
        self._alarms[name] = alarms
        for source in sorted(alarms ^ known):
            verb = "began: publishers are blocked" if source in alarms else "ended"
            self.add(node["time"], "alarm", f"the alarm of the {ALARMS.get(source, source)} of node '{name}' {verb}")

    def note_policies(self, time: float, policies: Iterable[Row]) -> None:
        """Compare the policies and operator policies with those before."""
        found = {(_kind(each), each["vhost"], each["name"]): each for each in policies}
        known, self._policies = self._policies, found
        if known is None:
            return
        for key in known.keys() - found.keys():
            self.add(time, "policy", f"{_policy(*key)} was deleted")
        for key, row in found.items():
            if known.get(key) != row:
                self.add(time, "policy", f"{_policy(*key)} was {'changed' if key in known else 'added'}")

    def note_master(self, time: float, queue: Row, before: str) -> None:
        """Note that a queue has another master than before."""
        phrase = f"queue '{queue['name']}' in virtual host '{queue['vhost']}'"
        self.add(time, "promotion", f"node '{queue['node']}' leads {phrase}, and no longer node '{before}'")


def _kind(policy: Row) -> str:
    return "operator policy" if policy["is_operator"] else "policy"


def _policy(kind: str, vhost: str, name: str) -> str:
    return f"{kind} '{name}' in virtual host '{vhost}'"
