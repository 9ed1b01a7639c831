"""Plans: what the clients of a schedule do, and what happens to their node, as lines of text.

    node store=1 credit=8,4 queues=orders,news
    alice/1 publish queue=orders count=2 persistent=1 size=5000 then=12
    bob/2 consume queue=orders prefetch=2 then=40
    machine power-cut after=3 then=0

Who does it (a client and one of its channels, or the machine), what, how, and how many steps the world takes `then`. Values that are 0 are left out. Channels 1 confirm, 2 are
plain, 3 are in transactions. A plan needs nothing to be valid: who is not connected connects, what is not declared is declared, what there is nothing for is not done; so any
line may be taken out, which is how a failing plan is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .book import KINDS

Below = Callable[[int], int]

CLIENTS = ("alice", "bob", "carol")
CONFIRMING, PLAIN, TRANSACTIONAL = 1, 2, 3
SIZES = (20, 400, 4_000, 4_200, 9_000)
STEPS = (3, 8, 0, 20, 1, 60, 2, 150)
CREDITS = ((400, 200), (8, 4), (2, 1))
CRASHING = ("Queue", "Queue", "Channel", "Connection", "Journal", "MessageStore")


@dataclass(frozen=True, slots=True)
class Action:
    """A line of a plan. `who` is a client or `machine`."""

    who: str
    channel: int
    what: str
    values: dict[str, int | str] = field(default_factory=dict)
    then: int = 0

    def number(self, key: str) -> int:
        return int(self.values.get(key, 0))

    def text(self, key: str) -> str:
        return str(self.values.get(key, ""))

    def __str__(self) -> str:
        words = [f"{self.who}/{self.channel}" if self.channel else self.who, self.what]
        words += [f"{key}={value}" for key, value in self.values.items() if value != 0]
        return " ".join(words + [f"then={self.then}"] * bool(self.then))


@dataclass(frozen=True, slots=True)
class Plan:
    """`credit` is the pair of settings; `queues` are names of `book.KINDS`."""

    has_store: bool
    queues: tuple[str, ...]
    credit: tuple[int, int]
    actions: tuple[Action, ...]

    def with_actions(self, actions: Sequence[Action]) -> Plan:
        return Plan(self.has_store, self.queues, self.credit, tuple(actions))

    def __str__(self) -> str:
        head = f"node store={int(self.has_store)} credit={self.credit[0]},{self.credit[1]} queues={','.join(self.queues)}"
        return "\n".join([head, *map(str, self.actions)])


def parse_plan(text: str) -> Plan:
    """The inverse of `str`. Empty lines and what follows a # are left out. Raises ValueError that names the line."""
    lines = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    if not lines or not lines[0].startswith("node"):
        raise ValueError("a plan begins with a line 'node store=... credit=... queues=...'")
    head = _values(lines[0].split()[1:], lines[0])
    initial, more = str(head.get("credit", "400,200")).split(",")
    actions = []
    for line in lines[1:]:
        who, *words = line.split()
        if not words:
            raise ValueError(f"this line does not say what {who} does: {line}")
        name, _, channel = who.partition("/")
        values = _values(words[1:], line)
        then = int(values.pop("then", 0))
        actions.append(Action(name, int(channel or 0), words[0], values, then))
    return Plan(bool(head.get("store", 0)), tuple(str(head.get("queues", "orders")).split(",")), (int(initial), int(more)), tuple(actions))


def _values(words: Sequence[str], line: str) -> dict[str, int | str]:
    values: dict[str, int | str] = {}
    for word in words:
        key, mark, value = word.partition("=")
        if not mark:
            raise ValueError(f"'{word}' is not key=value: {line}")
        values[key] = int(value) if value.isdigit() else value
    return values


# -- drawing ---------------------------------------------------------------------------------------------

_CLIENT_ACTIONS = (
    ("publish", 26), ("settle", 16), ("consume", 9), ("get", 5), ("commit", 3), ("cancel", 2), ("recover", 2), ("purge", 1), ("delete", 1), ("bind", 3), ("unbind", 1),
    ("qos", 1), ("close-channel", 2), ("close", 2), ("reset", 2), ("hang-up", 1), ("stall", 1), ("rollback", 1),
)
_MACHINE_ACTIONS = (("rest", 8), ("power-cut", 3), ("kill", 2), ("stop", 1), ("crash", 4), ("memory", 1), ("disk", 1))
_CLIENT_LINE = [what for what, weight in _CLIENT_ACTIONS for _ in range(weight)]
_MACHINE_LINE = [what for what, weight in _MACHINE_ACTIONS for _ in range(weight)]
MACHINE_ONE_IN = 8
AGAIN_ONE_IN = 10  # lines that another client repeats at once


def draw_plan(below: Below, longest: int = 34) -> Plan:
    """A plan, decided by `below`; of 0s it is the plainest there is."""
    has_store = below(4) != 3
    first = below(len(KINDS))
    names = [KINDS[(first + step) % len(KINDS)].name for step in range(1 + below(3))]
    credit = CREDITS[below(len(CREDITS))]
    actions: list[Action] = []
    for _ in range(4 + below(longest - 3)):
        if actions and below(AGAIN_ONE_IN) == AGAIN_ONE_IN - 1 and actions[-1].who != "machine":
            last = actions[-1]
            actions.append(Action(CLIENTS[below(len(CLIENTS))], last.channel, last.what, last.values, STEPS[below(len(STEPS))]))
        else:
            actions.append(draw_action(below, names, has_store))
    return Plan(has_store, tuple(names), credit, tuple(actions))


def draw_action(below: Below, queues: Sequence[str], has_store: bool) -> Action:
    """One line."""
    then = STEPS[below(len(STEPS))]
    if below(MACHINE_ONE_IN) == MACHINE_ONE_IN - 1:
        return _draw_machine_action(below, has_store, then)
    who, channel = CLIENTS[below(len(CLIENTS))], 1 + below(3)
    what = _CLIENT_LINE[below(len(_CLIENT_LINE))]
    queue = queues[below(len(queues))]
    values: dict[str, int | str] = {}
    if what == "publish":
        values = {"queue": queue, "count": (1, 2, 3, 5)[below(4)], "persistent": int(below(4) != 3), "size": SIZES[below(len(SIZES))], "priority": below(4),
                  "expiration": 30 * (below(12) == 11), "by": "exchange" if below(5) == 4 else 0}
    elif what == "settle":
        values = {"which": below(8), "multiple": below(2), "how": ("ack", "ack", "ack", "requeue", "reject")[below(5)]}
    elif what == "consume":
        values = {"queue": queue, "no_ack": int(below(5) == 4), "prefetch": (0, 1, 2, 5)[below(4)]}
    elif what == "get":
        values = {"queue": queue, "no_ack": int(below(4) == 3)}
    elif what in ("purge", "delete", "bind", "unbind"):
        values = {"queue": queue}
    elif what == "cancel":
        values = {"which": below(4)}
    elif what == "qos":
        values = {"limit": below(4)}
    elif what in ("commit", "rollback"):
        channel = TRANSACTIONAL
    return Action(who, channel, what, values, then)


def _draw_machine_action(below: Below, has_store: bool, then: int) -> Action:
    what = _MACHINE_LINE[below(len(_MACHINE_LINE))]
    values: dict[str, int | str] = {}
    if what == "power-cut":
        values = {"after": (0, below(12))[below(2)]}
    elif what == "crash":
        values = {"process": CRASHING[below(len(CRASHING) if has_store else 4)], "after": below(10), "late": below(2)}
    elif what in ("memory", "disk"):
        values = {"low": below(2)}
    return Action("machine", 0, what, values, then)
