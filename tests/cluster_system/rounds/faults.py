"""What happens to the nodes of a round and to the network between them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..link_proxy import LinkProxies
from ..nodes import Waited, wait_for
from .rounds import Fault, Rounds

#: Seconds of silence after which the other nodes have declared a node down: they do so after about 2 s.
LONG = (3.0, 4.5)
#: Seconds of silence that are too short for a node to be declared down.
BRIEF = (0.1, 1.0)


def nothing(_rounds: Rounds) -> None:
    """The clients work undisturbed: nothing may be lost or doubled, and nothing that was acked may come again."""


# -- processes ---


def kill_one(rounds: Rounds) -> None:
    """One node is killed, and started again on the same directory."""
    name = rounds.another()
    rounds.disturb(f"kill {name}")
    rounds.nodes.kill(name)
    rounds.wait()


def kill_all(rounds: Rounds) -> None:
    """All nodes are killed at once, as in a power cut, except that the kernel keeps what was written."""
    rounds.disturb("kill all nodes")
    for name in rounds.nodes.names:
        rounds.nodes.kill(name)


def kill_two(rounds: Rounds) -> None:
    """Two of three nodes are killed at once, so the third has no majority."""
    names = rounds.chooser.sample(rounds.nodes.names, 2)
    rounds.disturb(f"kill {' and '.join(names)}")
    for name in names:
        rounds.nodes.kill(name)
    rounds.ledger.alone([name for name in rounds.nodes.names if name not in names])
    rounds.wait(rounds.chooser.uniform(*LONG))


def kill_and_start_at_once(rounds: Rounds) -> None:
    """A node is killed and runs again before the others have noticed that it was gone."""
    name = rounds.another()
    rounds.disturb(f"kill and start {name}")
    rounds.nodes.kill(name)
    rounds.nodes.start_node(name)


def wipe_one(rounds: Rounds) -> None:
    """The machine of a node is lost with its disk: the cluster forgets the node, and an empty one takes its place.

    What queues without mirrors had there is lost, so this is for brokers that mirror all queues.
    """
    name = rounds.another()
    rounds.disturb(f"wipe {name}")
    rounds.nodes.kill(name)
    rounds.nodes[name].wipe()
    operated = next(node for node in rounds.nodes if node.name != name)
    refusal = ""

    def is_forgotten() -> bool:
        nonlocal refusal
        done = operated.command("forget_cluster_node", name)
        refusal = done.stderr
        return done.returncode == 0

    try:
        wait_for(f"the cluster to forget {name}", is_forgotten)
    except Waited as waited:
        waited.add_note(refusal)
        raise
    rounds.wait()


def stop_one(rounds: Rounds) -> None:
    """A node is stopped by SIGTERM, and started again on the same directory."""
    name = rounds.another()
    rounds.disturb(f"stop {name}")
    rounds.nodes.stop_node(name)
    rounds.wait()


def pause_briefly(rounds: Rounds) -> None:
    """A node is paused for so short a time that no other node notices."""
    _pause(rounds, rounds.chooser.uniform(*BRIEF))


def pause_long(rounds: Rounds) -> None:
    """A node is paused for longer than the others wait for it, so that they declare it down."""
    _pause(rounds, rounds.chooser.uniform(*LONG))


def _pause(rounds: Rounds, seconds: float) -> None:
    name = rounds.another()
    rounds.disturb(f"pause {name} for {seconds:.1f} s")
    rounds.nodes[name].pause()
    time.sleep(seconds)
    rounds.nodes[name].resume()


# -- network ---


def isolate_one(rounds: Rounds) -> None:
    """A node is cut off from all others for so long that its lease ends and it is declared down."""
    name = rounds.another()
    rounds.disturb(f"isolate {name}")
    _proxies(rounds).isolate(name)
    rounds.ledger.alone([name])
    rounds.wait(rounds.chooser.uniform(*LONG))


def cut_briefly(rounds: Rounds) -> None:
    """The network between two nodes is cut for so short a time that neither counts the other as lost."""
    a, b = rounds.chooser.sample(rounds.nodes.names, 2)
    rounds.disturb(f"cut {a} from {b} briefly")
    _proxies(rounds).cut(a, b)
    time.sleep(rounds.chooser.uniform(*BRIEF))


def cut_two(rounds: Rounds) -> None:
    """The network between two nodes is cut, while both still reach the third one."""
    a, b = rounds.chooser.sample(rounds.nodes.names, 2)
    rounds.disturb(f"cut {a} from {b}")
    _proxies(rounds).cut(a, b)
    rounds.wait(rounds.chooser.uniform(*LONG))


def mute_one(rounds: Rounds) -> None:
    """What a node sends reaches no other node, while it receives what they send."""
    name = rounds.another()
    rounds.disturb(f"mute {name}")
    for other in rounds.nodes.names:
        if other != name:
            _proxies(rounds).mute(name, other)
    rounds.wait(rounds.chooser.uniform(*LONG))


def part_all(rounds: Rounds) -> None:
    """No node reaches another, so none has a majority."""
    rounds.disturb("part all nodes")
    for name in rounds.nodes.names:
        _proxies(rounds).isolate(name)
    rounds.ledger.alone(rounds.nodes.names)
    rounds.wait(rounds.chooser.uniform(*LONG))


def reset_connections(rounds: Rounds) -> None:
    """The connections between two nodes are reset a few times."""
    a, b = rounds.chooser.sample(rounds.nodes.names, 2)
    rounds.disturb(f"reset the connections between {a} and {b}")
    for _ in range(3):
        _proxies(rounds).break_connections(a, b)
        time.sleep(rounds.chooser.uniform(0.0, 0.3))


def slow_network(rounds: Rounds) -> None:
    """What one of two nodes sends the other takes 0.1 s to arrive, and what comes back 0.01 s."""
    a, b = rounds.chooser.sample(rounds.nodes.names, 2)
    rounds.disturb(f"slow {a} and {b}")
    _proxies(rounds).slow(a, b, delay=0.1)
    _proxies(rounds).slow(b, a, delay=0.01)
    rounds.wait()


def _proxies(rounds: Rounds) -> LinkProxies:
    assert rounds.nodes.proxies is not None, "nothing between these nodes can be cut"
    return rounds.nodes.proxies


PROCESSES: Sequence[Fault] = (nothing, pause_briefly, kill_one, stop_one, kill_and_start_at_once, pause_long, kill_all)
#: Faults that lose messages of queues without mirrors, so they are for clusters that mirror all queues.
REPLICAS: Sequence[Fault] = (kill_two, wipe_one)
NETWORK: Sequence[Fault] = (
    cut_briefly,
    isolate_one,
    reset_connections,
    cut_two,
    slow_network,
    mute_one,
    part_all,
)
