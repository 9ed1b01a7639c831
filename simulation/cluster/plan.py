"""Plans of clusters: what clients do and what happens to machines and the network, as lines of text.

    cluster nodes=3 files=small credit=8,4 turn=2
    alice/1 publish queue=b.orders count=3 size=400 then=20
    b kill for=800 then=60
    net isolate node=a then=400

The first line describes the cluster. With `mirrored=1` all queues are mirrored to all nodes: by a policy, which has
`ha-min-in-sync` with `floor=2`, or, with `type=quorum` or `type=stream`, because of their type. With `replicas=2` the
policy mirrors them to that many nodes only. With `dead=1` all queues send their dead letters to the queue
`dead.letters`, whose home is the last node. Each other line is an **action**, with how many steps the world then takes.

Clients are `alice`, `bob` and `carol`. Each begins at the node of its place in the alphabet, and goes to the next one
when it is refused or loses its connection. Everything that is published is persistent. A client uses channel 1 to
publish, with confirms, 2 to consume, 3 to declare, 4 to read by number and 5 for transactions.

    publish               `queue`, `count`, `size`; by=fanout publishes to all queues
    consume               `queue`, `prefetch`; of a stream, from its first message on, which needs no settling
    get                   `queue`, with basic.get; only plans of `matrix` have it
    settle                `which` of the unacknowledged messages and, with multiple=1, all before it; how=requeue puts
                          them back, and how=reject makes dead letters of them
    read                  `queue` by number, from its first message to the one that is the last then; only some scripted
                          plans have it
    transact              take up to `takes` messages from `queue` with basic.get, and acknowledge them and publish
                          `count` others in one transaction; only some scripted plans have it
    declare               a queue with a new name, or with that of a queue that was deleted
    delete, look          the queue that the client has declared last; to look is to declare it passively
    close, reset, move    close the connection in order, reset it, or close it and go to another node

Machines are `a`, `b` and `c`; `all` stands for all of them. After `for` ms they are well again, if not before:

    kill, power-cut       the node is killed or loses its power, and is started again; with `after`, it loses its
                          power after that many operations of its disk
    stop                  the node is stopped in order and started again
    pause                 it does nothing
    disk                  the disk is full
    promote               an operator has the replica on this node lead `queue`; refused unless it is in sync
    slow-disk             each call that waits for its disk takes up to `delay` ms longer
    clock                 its wall clock is set `by` ms ahead, or back if that is negative; it stays so
    clock-rate            its clocks run at `percent` % of their right speed from now on
    wipe                  its disk is replaced by an empty one, with which it is started as a new member
    policy                an operator sets the policy of mirrored queues on this node: `replicas` as in the first line
    rebalance             an operator has masters spread over the nodes

A role may stand for a machine. The machine is the one that has the role of the first queue when the action is done:

    leader                of the cluster's consensus; `follower` is the first node that does not lead
    master, second, last  of the queue's ring; `learner` is the first node outside the ring

The network is `net`:

    isolate               nothing passes between `node` and all others
    cut, mute             nothing passes between `from` and `to`; only what `from` sends to `to` is lost
    slow                  what `from` sends to `to` takes up to `delay` ms
    heal                  everything is well
    wait                  `for` ms pass
    rest                  everything is well, and time passes until all nodes and all replicas of queues are, too

Any line may be left out, which is how a failing plan is shrunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...store.data_dir.file_limits import FileLimits
from ..disks import LARGE_FILES
from ..plan import (
    SHORT_TURN,
    SMALL_FILES,
    TURN_MESSAGES,
    Action,
    Below,
    credit_of,
    number_of,
    parse_action,
    parse_values,
)
from .nodes import LETTERS

CLIENTS = ("alice", "bob", "carol")
#: The numbers of the channels on which a client publishes, consumes, declares, reads by number, and has transactions.
PUBLISHING, CONSUMING, DECLARING, READING, TRANSACTING = 1, 2, 3, 4, 5
#: The queue that gets the dead letters of all others.
DEAD_LETTERS = "dead.letters"
#: The actors of actions that are not a client's: all machines together, and the network.
ALL, NET = "all", "net"
#: Bytes of a body.
SIZES = (20, 400, 4_200, 20, 700)
#: Steps after an action. Idle nodes take some 300 in a second.
STEPS = (8, 20, 0, 60, 150, 3, 400)
#: Milliseconds for which something lasts: less than any node notices, until a lease ends, and beyond.
TIMES = (300, 1_000, 20, 2_500, 1_700, 4_500)
CLASSIC, QUORUM, STREAM = QUEUE_TYPES = ("classic", "quorum", "stream")
CREDITS = ((400, 200), (8, 4), (2, 1))
#: Most milliseconds by which a slow link delays.
DELAYS = (20, 100, 400)

_CLIENT_ACTIONS = (
    ("publish", 30),
    ("settle", 16),
    ("consume", 12),
    ("declare", 8),
    ("delete", 5),
    ("look", 3),
    ("close", 1),
    ("reset", 2),
    ("move", 2),
)
_MACHINE_ACTIONS = (("kill", 5), ("pause", 4), ("power-cut", 4), ("stop", 2), ("disk", 2))
_NETWORK_ACTIONS = (("isolate", 5), ("cut", 4), ("mute", 3), ("slow", 2), ("heal", 3), ("wait", 6))
_CLIENT_CHOICES = [what for what, weight in _CLIENT_ACTIONS for _ in range(weight)]
_MACHINE_CHOICES = [what for what, weight in _MACHINE_ACTIONS for _ in range(weight)]
#: What operators do. Of these, random plans draw only `promote`; the others are in scripted plans.
_OPERATOR_CHOICES = ["promote", "policy", "rebalance"]
_SCRIPTED_CHOICES = ["slow-disk", "clock", "clock-rate", "wipe"]
ROLES = ("leader", "follower", "master", "second", "last", "learner")
_NETWORK_CHOICES = [what for what, weight in _NETWORK_ACTIONS for _ in range(weight)]
#: One in this many actions is a machine's or the network's.
FAULT_ONE_IN = 4
#: One in this many plans has a client that uses a node without a lease, or nodes that die during an election.
LONELY_ONE_IN, ELECTION_ONE_IN = 4, 8
#: Of this many plans with mirrored queues, one has quorum queues, one has streams, and one a floor of replicas in sync.
MIRRORED_KINDS = 8
#: In one of `PROMOTED_ONE_IN` plans with mirrored queues operators move masters, at most `PROMOTED_MOST` times.
PROMOTED_ONE_IN, PROMOTED_MOST = 2, 4
#: One in this many plans has no faults at all.
CALM_ONE_IN = 8

#: The plainest value of each parameter of an action, for shrinking.
_PLAIN_VALUES: dict[str, int | str] = {
    "count": 1,
    "size": SIZES[0],
    "multiple": 0,
    "how": "ack",
    "by": 0,
    "prefetch": 0,
    "after": 0,
    "takes": 0,
}


def queue_of(letter: str) -> str:
    """The name of the queue whose home is this node."""
    return f"{letter}.orders"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What a schedule does. `letters` are the names of the machines."""

    letters: str
    actions: tuple[Action, ...]
    has_small_files: bool = False
    credit: tuple[int, int] = CREDITS[0]
    turn_messages: int = TURN_MESSAGES
    is_mirrored: bool = False
    queue_type: str = CLASSIC
    #: `ha-min-in-sync` of mirrored classic queues.
    floor: int = 1
    #: How many replicas mirrored classic queues have; 0: one on each node.
    replicas: int = 0
    #: Whether all queues send their dead letters to the queue `DEAD_LETTERS`.
    has_dead_letters: bool = False

    @property
    def limits(self) -> FileLimits:
        return SMALL_FILES if self.has_small_files else LARGE_FILES

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that clients publish to, one on each node."""
        return tuple(map(queue_of, self.letters))

    def __str__(self) -> str:
        files = " files=small" if self.has_small_files else ""
        turn = f" turn={self.turn_messages}" if self.turn_messages != TURN_MESSAGES else ""
        mirrored = " mirrored=1" if self.is_mirrored else ""
        mirrored += f" type={self.queue_type}" if self.queue_type != CLASSIC else ""
        mirrored += f" floor={self.floor}" if self.floor != 1 else ""
        mirrored += f" replicas={self.replicas}" if self.replicas else ""
        mirrored += " dead=1" if self.has_dead_letters else ""
        head = f"cluster nodes={len(self.letters)}{files} credit={self.credit[0]},{self.credit[1]}{turn}{mirrored}"
        return "\n".join([head, *map(str, self.actions)])

    def with_actions(self, actions: Sequence[Action]) -> ClusterPlan:
        return replace(self, actions=tuple(actions))

    def plainer(self) -> Iterator[ClusterPlan]:
        """The plan with one property of the cluster made plainer."""
        plain = ClusterPlan(self.letters, self.actions)
        for key in (
            "has_small_files",
            "credit",
            "turn_messages",
            "is_mirrored",
            "queue_type",
            "floor",
            "replicas",
            "has_dead_letters",
        ):
            if getattr(self, key) != getattr(plain, key):
                yield replace(self, **{key: getattr(plain, key)})

    def plainer_action(self, action: Action) -> Iterator[Action]:
        """The action with one value made plainer."""
        for key, plain in _PLAIN_VALUES.items():
            if action.values.get(key, plain) != plain:
                yield replace(action, values={**action.values, key: plain})
        if action.who == ALL:
            yield replace(action, who=self.letters[0])
        for key in ("which", "count"):
            if action.number(key) > 1:
                yield replace(action, values={**action.values, key: action.number(key) // 2})
        if action.then > 1:
            yield replace(action, then=action.then // 2)


def parse_cluster_plan(text: str) -> ClusterPlan:
    """The plan that this text describes, the inverse of `str`. Empty lines and comments after # are ignored.

    Raises ValueError, which names the line.
    """
    lines = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    if not lines or not lines[0].startswith("cluster"):
        raise ValueError("the plan of a cluster begins with a line 'cluster nodes=... credit=...'")
    head = parse_values(lines[0].split()[1:], lines[0])
    nodes = number_of("nodes", head.get("nodes", 3), lines[0])
    if not 1 <= nodes <= len(LETTERS):
        raise ValueError(f"a cluster has 1 to {len(LETTERS)} nodes: {lines[0]}")
    plan = ClusterPlan(
        LETTERS[:nodes],
        tuple(parse_action(line) for line in lines[1:]),
        head.get("files") == "small",
        credit_of(head, lines[0]),
        number_of("turn", head.get("turn", TURN_MESSAGES), lines[0]),
        head.get("mirrored") == 1,
        str(head.get("type", CLASSIC)),
        number_of("floor", head.get("floor", 1), lines[0]),
        number_of("replicas", head.get("replicas", 0), lines[0]),
        head.get("dead") == 1,
    )
    if plan.queue_type not in QUEUE_TYPES or (plan.queue_type != CLASSIC and not plan.is_mirrored):
        raise ValueError(f"queues are classic ones, or with mirrored=1 quorum queues or streams: {lines[0]}")
    for action in plan.actions:
        _check(plan, action)
    return plan


def _check(plan: ClusterPlan, action: Action) -> None:
    """Raise ValueError if the plan lacks the client or machine that acts, or the node or queue that it acts on."""
    actions = {
        NET: [*_NETWORK_CHOICES, "rest"],
        ALL: _MACHINE_CHOICES,
        **dict.fromkeys((*plan.letters, *ROLES), [*_MACHINE_CHOICES, *_OPERATOR_CHOICES, *_SCRIPTED_CHOICES]),
        **dict.fromkeys(CLIENTS, [*_CLIENT_CHOICES, "get", "read", "transact"]),
    }
    if action.what not in actions.get(action.who, ()):
        raise ValueError(
            f"nobody can do this in a cluster of the machines {', '.join(plan.letters)}, which may also be named by "
            f"their roles, {', '.join(ROLES)}: {action}"
        )
    for key in ("node", "from", "to"):
        if key in action.values and action.text(key) not in (*plan.letters, *ROLES):
            raise ValueError(f"there is no machine '{action.text(key)}': {action}")
    if "queue" in action.values and action.text("queue") not in plan.queues:
        raise ValueError(f"there is no queue '{action.text('queue')}': {action}; queues are {', '.join(plan.queues)}")


# -- drawing ---


def draw_cluster_plan(below: Below, nodes: int = 3, is_mirrored: bool = False) -> ClusterPlan:
    """A plan of 6 to 24 actions. If `below` always returns 0, it is the plainest one."""
    letters = LETTERS[:nodes]
    has_small_files, credit = below(2) == 1, CREDITS[below(len(CREDITS))]
    turn = (TURN_MESSAGES, SHORT_TURN)[below(2)]
    has_faults = below(CALM_ONE_IN) != CALM_ONE_IN - 1
    actions = []
    for _ in range(6 + below(19)):
        is_fault = below(FAULT_ONE_IN) == FAULT_ONE_IN - 1 and has_faults
        actions.append((_draw_fault if is_fault else _draw_client_action)(below, letters))
    if has_faults and below(LONELY_ONE_IN) == LONELY_ONE_IN - 1:
        at = below(len(actions) + 1)
        actions[at:at] = _draw_lonely(below, letters)
    if has_faults and below(ELECTION_ONE_IN) == ELECTION_ONE_IN - 1:
        at = below(len(actions) + 1)
        actions[at:at] = _draw_election(below, letters)
    kind = below(MIRRORED_KINDS) if is_mirrored else 0
    queue_type = {MIRRORED_KINDS - 1: QUORUM, MIRRORED_KINDS - 2: STREAM}.get(kind, CLASSIC)
    floor = 2 if kind == MIRRORED_KINDS - 3 and nodes > 1 else 1
    if is_mirrored and below(PROMOTED_ONE_IN) == PROMOTED_ONE_IN - 1:
        for _ in range(1 + below(PROMOTED_MOST)):
            actions.insert(below(len(actions) + 1), _draw_promotion(below, letters))
    return ClusterPlan(letters, tuple(actions), has_small_files, credit, turn, is_mirrored, queue_type, floor)


def _draw_lonely(below: Below, letters: str) -> list[Action]:
    """Actions that cut a node off until it has no lease, while its client goes on. Random actions seldom do that."""
    lonely = below(len(letters))
    letter, client = letters[lonely], CLIENTS[lonely % len(CLIENTS)]
    publish: dict[str, int | str] = {"queue": queue_of(letter), "count": 2, "size": SIZES[0]}
    return [
        Action(client, PUBLISHING, "publish", publish, 60),
        Action(NET, 0, "isolate", {"node": letter}, STEPS[below(len(STEPS))]),
        Action(NET, 0, "wait", {"for": (1_700, 2_500)[below(2)]}),
        Action(client, PUBLISHING, "publish", publish, 20),
        Action(client, DECLARING, "declare", {}, STEPS[below(len(STEPS))]),
        Action(NET, 0, "wait", {"for": TIMES[below(len(TIMES))]}),
    ]


def _draw_election(below: Below, letters: str) -> list[Action]:
    """Actions by which the nodes die in the middle of electing a leader, and start again at once."""
    actions = [Action(ALL, 0, "kill", {"for": 0}, 0), Action(NET, 0, "wait", {"for": 1_000 + 100 * below(16)})]
    for _ in range(3):
        actions.append(Action(letters[below(len(letters))], 0, "kill", {"for": 0}, STEPS[below(len(STEPS))]))
    return actions


def _draw_client_action(below: Below, letters: str) -> Action:
    who, then = CLIENTS[below(len(CLIENTS))], STEPS[below(len(STEPS))]
    what = _CLIENT_CHOICES[below(len(_CLIENT_CHOICES))]
    queue = queue_of(letters[below(len(letters))])
    channel, values = 0, dict[str, int | str]()
    if what == "publish":
        channel = PUBLISHING
        values = {"queue": queue, "count": (1, 3, 2, 8)[below(4)], "size": SIZES[below(len(SIZES))]}
        if below(6) == 5:
            values["by"] = "fanout"
    elif what == "consume":
        channel, values = CONSUMING, {"queue": queue, "prefetch": (0, 2, 10)[below(3)]}
    elif what == "settle":
        channel = CONSUMING
        values = {"which": below(8), "multiple": below(2), "how": ("ack", "ack", "requeue")[below(3)]}
    elif what in ("declare", "delete", "look"):
        channel = DECLARING
    return Action(who, channel, what, values, then)


def _draw_promotion(below: Below, letters: str) -> Action:
    letter, queue = letters[below(len(letters))], queue_of(letters[below(len(letters))])
    return Action(letter, 0, "promote", {"queue": queue}, STEPS[below(len(STEPS))])


def _draw_fault(below: Below, letters: str) -> Action:
    then = STEPS[below(len(STEPS))]
    if below(2) == 1:
        what = _NETWORK_CHOICES[below(len(_NETWORK_CHOICES))]
        source = below(len(letters))
        target = (source + 1 + below(len(letters) - 1)) % len(letters) if len(letters) > 1 else source
        values: dict[str, int | str] = {}
        if what == "isolate":
            values = {"node": letters[source]}
        elif what in ("cut", "mute", "slow"):
            values = {"from": letters[source], "to": letters[target]}
            if what == "slow":
                values["delay"] = DELAYS[below(len(DELAYS))]
        elif what == "wait":
            values = {"for": TIMES[below(len(TIMES))]}
        return Action(NET, 0, what, values, then)
    what = _MACHINE_CHOICES[below(len(_MACHINE_CHOICES))]
    who = ALL if what in ("kill", "power-cut") and below(5) == 4 else letters[below(len(letters))]
    values = {"for": TIMES[below(len(TIMES))]}
    if what == "power-cut" and who != ALL:
        values["after"] = (0, below(12))[below(2)]
    return Action(who, 0, what, values, then)
