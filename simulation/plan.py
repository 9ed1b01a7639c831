"""Plans: what the clients of a schedule do, and what happens to their node, as lines of text.

    node store=1 files=small credit=8,4 heartbeat=1 queues=orders,news
    alice/1 publish queue=orders count=2 persistent=1 size=5000 then=12
    bob/2 consume queue=orders prefetch=2 then=40
    machine power-cut after=3 then=0

Who does it (a client and one of its channels, or the machine), what, how, and how many steps the world takes `then`. Values that are 0 are left out. Channels 1 confirm, 2 are
plain, 3 are in transactions. With small files the node's journal, segments and message store begin new ones after a few messages. `heartbeat` is carol's, in seconds. A disk
that is `low` takes nothing more, or so many octets as there is `room` for; only plans that somebody has written say that.

A plan needs nothing to be valid: who is not connected connects, what is not declared is declared, what there is nothing for is not done; so any
line may be taken out, which is how a failing plan is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..store.data_dir.file_limits import REAL_FILES, FileLimits
from .clients.kinds import GRAVES, KINDS, NAMES

Below = Callable[[int], int]

CLIENTS = ("alice", "bob", "carol")
CONFIRMING, PLAIN, TRANSACTIONAL = 1, 2, 3
SIZES = (20, 400, 700, 4_000, 400, 4_200, 400, 9_000)
STEPS = (3, 8, 0, 20, 1, 60, 2, 150)
CREDITS = ((400, 200), (8, 4), (2, 1))
WITH_HEARTBEAT = "carol"
CORE = ("Metadata", "Alarms", "Listener")
"""Processes without which a node ends."""
CRASHING = (
    "Queue",
    "Queue",
    "Queue",
    "Channel",
    "Connection",
    *CORE,
    "QueueSupervisor",
    "VhostSupervisor",
    "Journal",
    "MessageStore",
    "MessageStore",
)
CRASHING_IN_MEMORY = CRASHING[:-3]
SMALL_FILES = FileLimits(journal=600, store=1_000, segment_entries=4, embed_below=300)
"""A few messages to a file."""


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
    """`credit` is the pair of settings; `queues` are names of `kinds.KINDS`; `heartbeat` is in seconds, 0: none."""

    has_store: bool
    queues: tuple[str, ...]
    credit: tuple[int, int]
    actions: tuple[Action, ...]
    has_small_files: bool = False
    heartbeat: int = 0

    @property
    def limits(self) -> FileLimits:
        return SMALL_FILES if self.has_small_files else REAL_FILES

    def with_actions(self, actions: Sequence[Action]) -> Plan:
        return replace(self, actions=tuple(actions))

    def __str__(self) -> str:
        files = " files=small" if self.has_small_files else ""
        heartbeat = f" heartbeat={self.heartbeat}" if self.heartbeat else ""
        head = f"node store={int(self.has_store)}{files} credit={self.credit[0]},{self.credit[1]}{heartbeat} queues={','.join(self.queues)}"
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
    queues = tuple(str(head.get("queues", "orders")).split(","))
    for queue in queues:
        if queue not in NAMES:
            raise ValueError(f"there is no queue '{queue}': {lines[0]}; queues are {', '.join(NAMES)}")
    return Plan(
        bool(head.get("store", 0)),
        queues,
        (int(initial), int(more)),
        tuple(actions),
        head.get("files") == "small",
        int(head.get("heartbeat", 0)),
    )


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
    ("publish", 26),
    ("settle", 22),
    ("consume", 11),
    ("get", 5),
    ("commit", 3),
    ("cancel", 2),
    ("recover", 2),
    ("purge", 1),
    ("delete", 1),
    ("bind", 3),
    ("unbind", 1),
    ("qos", 1),
    ("close-channel", 2),
    ("close", 2),
    ("reset", 2),
    ("hang-up", 1),
    ("stall", 1),
    ("rollback", 1),
    ("silence", 1),
)
_MACHINE_ACTIONS = (
    ("rest", 8),
    ("power-cut", 3),
    ("kill", 2),
    ("stop", 1),
    ("crash", 5),
    ("memory", 1),
    ("disk", 1),
    ("pause", 1),
)
_CLIENT_LINE = [what for what, weight in _CLIENT_ACTIONS for _ in range(weight)]
_MACHINE_LINE = [what for what, weight in _MACHINE_ACTIONS for _ in range(weight)]
MACHINE_ONE_IN = 8
AGAIN_ONE_IN = 10  # lines that another client repeats at once


def draw_plan(below: Below, longest: int = 34) -> Plan:
    """A plan, decided by `below`; of 0s it is the plainest there is."""
    has_store = below(4) != 3
    first = below(len(KINDS))
    names = with_graves([KINDS[(first + step) % len(KINDS)].name for step in range(1 + below(3))])
    credit = CREDITS[below(len(CREDITS))]
    has_small_files, heartbeat = has_store and below(2) == 1, int(below(3) == 2)
    actions: list[Action] = []
    for _ in range(4 + below(longest - 3)):
        if actions and below(AGAIN_ONE_IN) == AGAIN_ONE_IN - 1 and actions[-1].who != "machine":
            last = actions[-1]
            actions.append(
                Action(CLIENTS[below(len(CLIENTS))], last.channel, last.what, last.values, STEPS[below(len(STEPS))])
            )
        else:
            actions.append(draw_action(below, names, has_store))
    if has_small_files and below(2) == 1:
        at = below(len(actions) + 1)
        actions[at:at] = _draw_garbage(below, names)
    return Plan(has_store, tuple(names), credit, tuple(actions), has_small_files, heartbeat)


def _draw_garbage(below: Below, queues: Sequence[str]) -> list[Action]:
    """Files of the message store in which little is wanted: random lines alone hardly ever leave any that are worth combining."""
    queue, giver, taker = queues[below(len(queues))], CLIENTS[below(len(CLIENTS))], CLIENTS[below(len(CLIENTS))]
    return [
        Action(
            giver,
            CONFIRMING,
            "publish",
            {"queue": queue, "count": 12, "persistent": 1, "size": SIZES[1]},
            STEPS[below(len(STEPS))] + 60,
        ),
        Action(taker, PLAIN, "consume", {"queue": queue}, 60),
        Action(taker, PLAIN, "settle", {"which": below(8), "all_but": 3}, STEPS[below(len(STEPS))]),
    ]


def with_graves(names: Sequence[str]) -> list[str]:
    """The queues, and that of their dead letters if some have any."""
    dies = any(NAMES[name].has_dead_letters for name in names)
    return [*names, *[GRAVES] * (dies and GRAVES not in names)]


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
        values = {
            "queue": queue,
            "count": (1, 2, 3, 5, 1, 2, 3, 12)[below(8)],
            "persistent": int(below(4) != 3),
            "size": SIZES[below(len(SIZES))],
            "priority": below(4),
            "expiration": 30 * (below(12) == 11),
            "by": (0, 0, 0, 0, 0, 0, 0, "exchange", "exchange", "nowhere")[below(10)],
            "mandatory": int(below(4) == 3),
        }
    elif what == "settle":
        several = below(3)
        values = {
            "which": below(8),
            "multiple": int(several == 1),
            "all_but": 3 * (several == 2),
            "how": ("ack", "ack", "ack", "requeue", "reject", "reject")[below(6)],
            "any": 1,
        }
    elif what == "consume":
        values = {"queue": queue, "no_ack": int(below(5) == 4), "prefetch": (0, 1, 2, 5)[below(4)]}
    elif what == "get":
        values = {"queue": queue, "no_ack": int(below(4) == 3)}
    elif what in ("purge", "delete", "bind", "unbind"):
        values = {"queue": queue}
    elif what == "cancel":
        values = {"which": below(4)}
    elif what == "silence":
        who, values = WITH_HEARTBEAT, {"both": below(2)}
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
        processes = CRASHING if has_store else CRASHING_IN_MEMORY
        values = {"process": processes[below(len(processes))], "after": below(10), "late": below(2)}
    elif what == "pause":
        values = {"for": (1, 20, 300, 2_500)[below(4)]}
    elif what in ("memory", "disk"):
        values = {"low": below(2)}
    return Action("machine", 0, what, values, then)
