"""Lines about a node's status that several commands print."""

from __future__ import annotations

from typing import Any

#: The names of the resources in the lines about alarms.
RESOURCES = {"memory": "Memory", "disk": "Free disk space"}


def alarm_lines(facts: dict[str, Any]) -> list[str]:
    """A line for each alarm in the node's status."""
    return [f"{RESOURCES.get(one['resource'], one['resource'])} alarm on node {one['node']}" for one in facts["alarms"]]


def listener_line(one: dict[str, Any]) -> str:
    """One listener of a node's status."""
    return "Interface: {interface}, port: {port}, protocol: {protocol}, purpose: {purpose}".format_map(one)
