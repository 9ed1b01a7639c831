"""Plans: what the clients of a schedule do and what happens to their node, as lines of text.

    node store=1 files=small credit=8,4 heartbeat=1 turn=2 messages=differing groups=1 queues=orders,news
    alice/1 publish queue=orders count=2 persistent=1 size=5000 then=12
    bob/2 consume queue=orders prefetch=2 then=40
    machine power-cut after=3 then=0

The first line describes the node: whether it has a data directory, whether its files are so small that a few messages
fill them (`SMALL_FILES`), the settings of credit flow, carol's heartbeat in seconds, the setting `turn_messages`,
whether every message has properties of its own (`clients.message_properties`), whether consumers are those of groups
around the queues (`clients.grouping`), and the queues (`queue_kinds`).

Each other line is an **action**: who does it (a client and one of its channels, or the machine), what, how, and how
many steps the world then takes. Values that are 0 are left out. A client publishes with confirms on channel 1, in the
plain way on channel 2, and in transactions on channel 3.

    publish               `queue`, `count`, `persistent`, `size`, `priority`, `expiration` in ms, `mandatory`;
                          by=exchange publishes to the exchange, by=nowhere with a routing key that no queue has
    settle                `which` of the unacknowledged messages; multiple=1 settles also all before it, all_but=3 all
                          but every third; `how` is ack, requeue or reject; any=1 settles on another channel if this
                          one has nothing to settle
    consume, get          `queue`, `no_ack`, `prefetch`
    cancel                `which` of the consumers
    qos                   `limit` of the whole channel
    recover, commit, rollback, close-channel
    purge, delete, bind, unbind                  `queue`
    close, reset, hang-up                        close the connection in order, reset it, or close only the socket
    stall                 stop reading, or read again
    silence               cut the link to the node, both=1 also the link from it; only a client with a heartbeat

The machine's actions:

    rest                  run until nothing moves
    kill, stop            kill the node's process, or stop the node in order; either way it starts again
    power-cut             the machine loses its power, at once or after `after` operations of a disk
    crash                 a process of class `process` crashes after `after` messages, before it handles the next one,
                          with late=1 after it has handled that one
    pause                 the process does nothing for `for` ms
    policy                on=1 sets a policy for all queues that changes nothing which clients could see: queues become
                          lazy, and their limits stay as they are because the policy's are wider; on=0 removes it
    memory, disk          low=1 fills it, low=0 frees it; a disk with low=1 takes `room` more bytes, which drawn plans
                          do not use

Every plan is valid: a client that is not connected connects, a queue that is not declared is declared, and an action
that has nothing to act on does nothing. So any line may be left out, which is how a failing plan is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..store.data_dir.file_limits import FileLimits
from .disks import LARGE_FILES
from .queue_kinds import DEAD_LETTER_QUEUE, KINDS, NAMES, VARIANTS

#: Returns a number below its argument, by chance or by a chooser.
Below = Callable[[int], int]

CLIENTS = ("alice", "bob", "carol")
#: The numbers of the channels on which a client publishes with confirms, without them, and in transactions.
CONFIRMING, PLAIN, TRANSACTIONAL = 1, 2, 3
#: Bytes of a body.
SIZES = (20, 400, 700, 4_000, 400, 4_200, 400, 9_000)
#: Steps after an action.
STEPS = (3, 8, 0, 20, 1, 60, 2, 150)
#: Pairs of `credit_flow_default_credit`.
CREDITS = ((400, 200), (8, 4), (2, 1))
#: The only client that may have a heartbeat.
WITH_HEARTBEAT = "carol"
#: Processes without which a node ends.
ESSENTIAL = ("Metadata", "Alarms", "Listener")
#: Processes that crash, some of them more often.
CRASHING = (
    "Queue",
    "Queue",
    "Queue",
    "Channel",
    "Connection",
    *ESSENTIAL,
    "QueueSupervisor",
    "VhostSupervisor",
    "Journal",
    "MessageStore",
    "MessageStore",
)
#: The same on a node without a data directory, which has no journal and no message store.
CRASHING_IN_MEMORY = CRASHING[:-3]
#: The setting `turn_messages` of most brokers, and one so low that settling even a few messages takes several turns.
TURN_MESSAGES, SHORT_TURN = 500, 2
#: Limits that a few messages reach.
SMALL_FILES = FileLimits(journal=600, store=1_000, segment_entries=4, embed_below=300, reserve=0)


@dataclass(frozen=True, slots=True)
class Action:
    """A line of a plan. `who` is a client or `machine`; `then` is how many steps follow."""

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


#: Changes to a plan that make it plainer, for shrinking.
_PLAIN_NODES: tuple[dict[str, Any], ...] = (
    {"heartbeat": 0},
    {"has_differing_messages": False},
    {"has_groups": False},
    {"has_small_files": False},
    {"credit": (400, 200)},
    {"turn_messages": TURN_MESSAGES},
    {"has_store": False, "has_small_files": False},
)
#: The plainest values of an action's parameters, for shrinking.
_PLAIN_VALUES = {
    "count": 1,
    "expiration": 0,
    "priority": 0,
    "by": 0,
    "size": SIZES[0],
    "multiple": 0,
    "all_but": 0,
    "late": 0,
    "prefetch": 0,
    "no_ack": 0,
    "mandatory": 0,
    "both": 0,
    "for": 1,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a schedule does.

    queues      names of `KINDS`
    credit      `credit_flow_default_credit`
    heartbeat   in seconds, 0 for none
    """

    has_store: bool
    queues: tuple[str, ...]
    credit: tuple[int, int]
    actions: tuple[Action, ...]
    has_small_files: bool = False
    heartbeat: int = 0
    #: Whether every message has properties of its own, see `clients/message_properties`.
    has_differing_messages: bool = False
    turn_messages: int = TURN_MESSAGES
    #: Whether clients consume from a queue by way of a group, see `clients/grouping`.
    has_groups: bool = False

    @property
    def limits(self) -> FileLimits:
        return SMALL_FILES if self.has_small_files else LARGE_FILES

    def with_actions(self, actions: Sequence[Action]) -> Plan:
        return replace(self, actions=tuple(actions))

    def plainer(self) -> Iterator[Plan]:
        """The plan with one property of the node made plainer, in each way that there is."""
        names = {str(action.values["queue"]) for action in self.actions if "queue" in action.values}
        used = tuple(with_dead_letter_queue([name for name in self.queues if name in names] or self.queues[:1]))
        for change in ({"queues": used}, *_PLAIN_NODES):
            plainer: Plan = replace(self, **change)
            if plainer != self:
                yield plainer

    def plainer_action(self, action: Action) -> Iterator[Action]:
        """The action with one value made plainer, in each way that there is."""
        values = action.values
        for key, plain in _PLAIN_VALUES.items():
            if values.get(key, plain) != plain:
                yield replace(action, values={**values, key: plain})
        less = [("which", 1)] * (action.number("which") > 1)
        less += [
            ("count", count) for count in (action.number("count") * 2 // 3, action.number("count") - 1) if count > 1
        ]
        for key, number in less:
            yield replace(action, values={**values, key: number})
        if action.who == "machine" and action.what == "crash" and action.number("after"):
            yield replace(action, values={**values, "after": 0})
        if action.then > 1:
            yield replace(action, then=action.then // 2)

    def __str__(self) -> str:
        files = " files=small" if self.has_small_files else ""
        heartbeat = f" heartbeat={self.heartbeat}" if self.heartbeat else ""
        credit = f"credit={self.credit[0]},{self.credit[1]}"
        differing = " messages=differing" if self.has_differing_messages else ""
        groups = " groups=1" if self.has_groups else ""
        turn = f" turn={self.turn_messages}" if self.turn_messages != TURN_MESSAGES else ""
        node = f"node store={int(self.has_store)}{files} {credit}{heartbeat}{turn}{differing}{groups}"
        head = f"{node} queues={','.join(self.queues)}"
        return "\n".join([head, *map(str, self.actions)])


def parse_plan(text: str) -> Plan:
    """The plan that this text describes, the inverse of `str`. Empty lines and comments after # are ignored.

    Raises ValueError, which names the line.
    """
    lines = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    if not lines or not lines[0].startswith("node"):
        raise ValueError("a plan begins with a line 'node store=... credit=... queues=...'")
    head = parse_values(lines[0].split()[1:], lines[0])
    actions = [parse_action(line) for line in lines[1:]]
    queues = tuple(str(head.get("queues", "orders")).split(","))
    for queue in queues:
        if queue not in NAMES:
            raise ValueError(f"there is no queue '{queue}': {lines[0]}; queues are {', '.join(NAMES)}")
    return Plan(
        bool(head.get("store", 0)),
        queues,
        credit_of(head, lines[0]),
        tuple(actions),
        head.get("files") == "small",
        number_of("heartbeat", head.get("heartbeat", 0), lines[0]),
        head.get("messages") == "differing",
        number_of("turn", head.get("turn", TURN_MESSAGES), lines[0]),
        bool(head.get("groups", 0)),
    )


def parse_action(line: str) -> Action:
    """The action that this line describes. Raises ValueError, which names the line."""
    who, *words = line.split()
    if not words:
        raise ValueError(f"this line does not say what {who} does: {line}")
    name, _, channel = who.partition("/")
    if channel and not channel.isdecimal():
        raise ValueError(f"'{channel}' is no number of a channel: {line}")
    values = parse_values(words[1:], line)
    then = number_of("then", values.pop("then", 0), line)
    return Action(name, int(channel or 0), words[0], values, then)


def parse_values(words: Sequence[str], line: str) -> dict[str, int | str]:
    """The values of words such as `key=value`. Raises ValueError, which names the line."""
    values: dict[str, int | str] = {}
    for word in words:
        key, mark, value = word.partition("=")
        if not mark:
            raise ValueError(f"'{word}' is not key=value: {line}")
        values[key] = int(value) if value.removeprefix("-").isdecimal() else value
    return values


def number_of(key: str, value: int | str, line: str) -> int:
    """The value of `key`, which is a number. Raises ValueError, which names the line."""
    if not isinstance(value, int):
        raise ValueError(f"'{key}={value}' is no number: {line}")
    return value


def credit_of(values: dict[str, int | str], line: str) -> tuple[int, int]:
    """The pair `credit`. Raises ValueError, which names the line."""
    initial, _, more = str(values.get("credit", "400,200")).partition(",")
    if not (initial.isdecimal() and more.isdecimal()):
        raise ValueError(f"credit is two numbers such as 400,200: {line}")
    return int(initial), int(more)


# -- drawing ---

#: Actions and how often each is drawn, relative to the others.
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
_CLIENT_CHOICES = [what for what, weight in _CLIENT_ACTIONS for _ in range(weight)]
_MACHINE_CHOICES = [what for what, weight in _MACHINE_ACTIONS for _ in range(weight)]
#: One in this many actions is the machine's.
MACHINE_ONE_IN = 8
#: One in this many plans has variants of queues, a policy that comes and goes, or consumers in groups.
VARIANTS_ONE_IN, POLICIES_ONE_IN, GROUPS_ONE_IN = 4, 6, 8
#: One in this many actions of a client is repeated at once by another.
REPEAT_ONE_IN = 10


def draw_plan(below: Below) -> Plan:
    """A plan of 4 to 34 random actions. Some plans also have actions that bind queues, make garbage or change a policy.

    If `below` always returns 0, it is the plainest plan.
    """
    has_store = below(4) != 3
    first = below(len(KINDS))
    names = with_dead_letter_queue([KINDS[(first + step) % len(KINDS)].name for step in range(1 + below(3))])
    credit = CREDITS[below(len(CREDITS))]
    has_small_files, heartbeat = has_store and below(2) == 1, int(below(3) == 2)
    actions: list[Action] = []
    for _ in range(4 + below(31)):
        if actions and below(REPEAT_ONE_IN) == REPEAT_ONE_IN - 1 and actions[-1].who != "machine":
            last = actions[-1]
            actions.append(
                Action(CLIENTS[below(len(CLIENTS))], last.channel, last.what, last.values, STEPS[below(len(STEPS))])
            )
        else:
            actions.append(draw_action(below, names, has_store))
    if has_small_files and below(2) == 1:
        at = below(len(actions) + 1)
        actions[at:at] = _draw_garbage(below, names)
    # Drawn last, so that the rest of a seed's plan does not depend on it.
    has_differing_messages = below(2) == 1
    if has_differing_messages:
        actions = _by_exchange(actions, names)
    turn = (TURN_MESSAGES, SHORT_TURN)[below(2)]
    if below(VARIANTS_ONE_IN) == VARIANTS_ONE_IN - 1:
        names, actions = _with_variants(names, actions)
    if below(POLICIES_ONE_IN) == POLICIES_ONE_IN - 1:
        for is_on in (1, 0, 1, 0):
            actions.insert(
                below(len(actions) + 1), Action("machine", 0, "policy", {"on": is_on}, STEPS[below(len(STEPS))])
            )
    # Tests find planted bugs with fixed seeds. The number is 3 because with it the plans of those seeds stay as they
    # were before groups existed.
    has_groups = below(GROUPS_ONE_IN) == 3
    return Plan(
        has_store,
        tuple(names),
        credit,
        tuple(actions),
        has_small_files,
        heartbeat,
        has_differing_messages,
        turn,
        has_groups,
    )


def _with_variants(names: Sequence[str], actions: Sequence[Action]) -> tuple[list[str], list[Action]]:
    """The queues and actions, with `VARIANTS` in the place of other queues."""
    renamed = {name: kind.name for name, kind in VARIANTS.items()}
    changed = [
        replace(action, values={**action.values, "queue": renamed[action.text("queue")]})
        if action.text("queue") in renamed
        else action
        for action in actions
    ]
    return with_dead_letter_queue(list(dict.fromkeys(renamed.get(name, name) for name in names))), changed


def _by_exchange(actions: Sequence[Action], queues: Sequence[str]) -> list[Action]:
    """The actions, with binds first and about half of the publishes to the exchange.

    An exclusive queue is not bound first: the bind declares it, which would make it one client's in every plan.
    """
    shared = [queue for queue in queues if not NAMES[queue].exclusive]
    changed = [Action(CLIENTS[0], PLAIN, "bind", {"queue": queue}, 60) for queue in shared]
    for at, action in enumerate(actions):
        if at % 2 and action.what == "publish" and not action.values.get("by"):
            action = replace(action, values={**action.values, "by": "exchange"})
        changed.append(action)
    return changed


def _draw_garbage(below: Below, queues: Sequence[str]) -> list[Action]:
    """Actions that leave files of the message store full of garbage, so that they are combined.

    Random actions alone hardly ever do that.
    """
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


def with_dead_letter_queue(names: Sequence[str]) -> list[str]:
    """The queues, and the queue for dead letters if one of them sends dead letters to it."""
    is_needed = any(NAMES[name].has_dead_letters for name in names) and DEAD_LETTER_QUEUE not in names
    return [*names, DEAD_LETTER_QUEUE] if is_needed else [*names]


def draw_action(below: Below, queues: Sequence[str], has_store: bool) -> Action:
    """One action."""
    then = STEPS[below(len(STEPS))]
    if below(MACHINE_ONE_IN) == MACHINE_ONE_IN - 1:
        return _draw_machine_action(below, has_store, then)
    who, channel = CLIENTS[below(len(CLIENTS))], 1 + below(3)
    what = _CLIENT_CHOICES[below(len(_CLIENT_CHOICES))]
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
    what = _MACHINE_CHOICES[below(len(_MACHINE_CHOICES))]
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
