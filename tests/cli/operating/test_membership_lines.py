"""What the section `Membership` of `cluster_status` says about voters (CM-67)."""

from __future__ import annotations

import pytest

from warren.cli.operating.cluster_commands import _membership_lines

NAMES = ["warren@a", "warren@b", "warren@c"]


def reserve(linked, up, names=NAMES):
    """The line about the voters, as warren@a sees them: `linked` and `up` have the letters of nodes."""
    members = [
        {
            "node": name,
            "role": "data",
            "address": f"{name}:25672",
            "incarnation": "1" if name[-1] in up else "",
            "is_linked": name[-1] in linked,
            "applied": None,
            "reason": "",
        }
        for name in names
    ]
    membership = {
        "voters": names,
        "members": members,
        "leader": "",
        "term": 1,
        "stage": "running",
        "waits_for": "",
        "short_queues": 0,
    }
    return _membership_lines("warren@a", membership)[-1]


@pytest.mark.parametrize(
    ("linked", "up", "line"),
    [
        ("abc", "abc", "3 of 3 voters can be reached: 1 more may fail"),
        ("abc", "ab", "3 of 3 voters can be reached: 1 more may fail"),
        ("ab", "ab", "2 of 3 voters can be reached: 0 more may fail"),
        ("a", "abc", "1 of 3 voters can be reached, which is no majority: 1 more must be reached"),
    ],
    ids=["all", "a-stopped-app-votes", "one-is-down", "cut-off-before-it-learns-of-any-verdict"],
)
def test_the_voters_that_can_be_reached_are_counted(linked, up, line):
    """A node whose app is stopped counts as down, and votes. A node that is cut off still takes the others for running,
    and once said that one more might fail.
    """
    assert reserve(linked, up) == line


def test_an_even_number_of_voters_wants_a_witness():
    assert reserve("ab", "ab", NAMES[:2]).startswith("2 of 2 voters can be reached: 0 more may fail; an even number")
