"""`warren simulate`: runs thousands of simulated brokers to find an order of events that breaks a guarantee."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from ..failure import EX_USAGE, CommandFailure

if TYPE_CHECKING:
    from ...runtime.sim.choosing import Chooser
    from ...simulation.outcome import ScheduleOutcome, Shrinkable

P = TypeVar("P", bound="Shrinkable")

#: Random seeds are below this number.
SEEDS = 1 << 32


@click.command()
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of the first schedule; the others have the seeds after it.  [default: a random seed]",
)
@click.option(
    "--schedules", type=click.IntRange(min=1), default=1000, show_default=True, help="How many schedules to run."
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 5),
    default=1,
    show_default=True,
    help="Nodes of each simulated cluster. 1 is a single broker without a cluster.",
)
@click.option("--mirrored", is_flag=True, help="Mirror the queues of clusters to all nodes.")
@click.option("--plan", type=click.File(), help="Run the plan in this file in each schedule, instead of random plans.")
@click.option(
    "--conversation",
    type=click.File(),
    help="Play the conversation in this file once for each schedule, and print the answers. The first time, all steps "
    "come in the simplest order, then in a random one.",
)
@click.option(
    "--shrink/--no-shrink",
    default=True,
    show_default=True,
    help="After a failure, search for a shorter schedule that fails too. Takes some seconds.",
)
@click.option("--story", is_flag=True, help="Print the story of the last schedule even if nothing is broken.")
def simulate(
    seed: int | None,
    schedules: int,
    nodes: int,
    mirrored: bool,
    plan: TextIO | None,
    conversation: TextIO | None,
    shrink: bool,
    story: bool,
) -> None:
    """Run simulated brokers with simulated clients, and check that the brokers keep their guarantees.

    Each schedule runs a node on a simulated machine. Clients publish, consume, acknowledge and disconnect at random,
    while queues crash, disks fill up and the machine loses power. The seed decides everything, so a seed always gives
    the same schedule. With --nodes 3 each schedule runs three nodes that found a cluster, whose machines and network
    fail. With --mirrored they mirror their queues, so that another node goes on with a queue whose node fails.

    The command stops at the first failure and prints its story and how to repeat it.

    Exit codes: 0 if no schedule failed, 1 if one did.
    """
    # These imports are here, and below, because `--help` does not need them.
    import logging

    logging.getLogger("warren").setLevel(logging.CRITICAL)  # schedules crash processes on purpose
    if conversation is not None:
        _play(conversation, schedules)
        return
    text = "" if plan is None else plan.read()
    first = secrets.randbelow(SEEDS) if seed is None else seed
    try:
        search = _cluster_search(text, nodes, mirrored) if nodes > 1 or text.startswith("cluster") else _search(text)
    except ValueError as error:
        raise CommandFailure(f"--plan: {error}", EX_USAGE) from error
    options = f" --nodes {nodes}{' --mirrored' if mirrored else ''}" if nodes > 1 else ""
    if plan is not None:
        options += f" --plan {shlex.quote(plan.name)}"
    search(first, schedules, shrink, story, options)


#: Runs schedules: the first seed, how many, whether to shrink a failure, whether to print the last story, and the
#: options that `warren simulate` needs to run them again.
Search = Callable[[int, int, bool, bool, str], None]


def _search(text: str) -> Search:
    """The search for a schedule of a single broker that fails, with the plan in `text` if there is one."""
    from ...simulation.plan import parse_plan
    from ...simulation.schedule import run

    plan = parse_plan(text) if text else None
    return lambda *options: _run(run, plan, *options)


def _cluster_search(text: str, nodes: int, is_mirrored: bool) -> Search:
    """The search for a schedule of a cluster that fails, with the plan in `text` if there is one."""
    from ...runtime.sim.choosing import SeedChooser
    from ...simulation.cluster.plan import ClusterPlan, draw_cluster_plan, parse_cluster_plan
    from ...simulation.cluster.schedule import run

    def run_drawn(seed: int, plan: ClusterPlan | None, chooser: Chooser | None = None) -> ScheduleOutcome[ClusterPlan]:
        return run(seed, plan or draw_cluster_plan(SeedChooser(seed).below, nodes, is_mirrored=is_mirrored), chooser)

    plan = parse_cluster_plan(text) if text else None
    return lambda *options: _run(run_drawn, plan, *options)


def _run(
    run: Callable[[int, P | None, Chooser | None], ScheduleOutcome[P]],
    plan: P | None,
    first: int,
    schedules: int,
    shrinks: bool,
    story: bool,
    options: str,
) -> None:
    """Run `schedules` of them from the seed `first` on. The first one that fails is printed and ends the command."""
    from ...simulation.shrinking import shrink

    outcome = None
    steps = 0
    for number in _progress(range(first, first + schedules)):
        outcome = run(number, plan, None)
        steps += outcome.steps
        if outcome.failure is not None:
            break
    assert outcome is not None
    if outcome.failure is None:
        if story:
            click.echo(outcome.story)
        click.echo(f"{schedules} schedules from seed {first}, {steps} steps: nothing is broken")
        return
    click.echo(f"seed {outcome.seed}: {outcome.failure}\n")
    short = shrink(outcome, run) if shrinks else outcome
    click.echo(short.story)
    click.echo(
        f"\nThe plan of this story{'' if short.seed is None else f', to run with seed {short.seed}'}:\n\n{short.plan}"
    )
    click.echo(f"\nTo repeat the failure: warren simulate{options} --seed {outcome.seed} --schedules 1")
    sys.exit(1)


def _play(file: TextIO, orders: int) -> None:
    """Play the conversation in the file in `orders` orders, and print it with the answers of the first one.

    An order in which other answers follow is printed too, and ends the command.
    """
    from ...simulation.conversations.conversation import ConversationError, parse_conversation
    from ...simulation.conversations.playing import ConversationBroken, Player

    try:
        conversation = parse_conversation(file.read(), file.name)
    except ConversationError as error:
        raise CommandFailure(f"--conversation: {error}", EX_USAGE) from error
    first = None
    for seed in (None, *_progress(range(orders - 1))):
        try:
            played = conversation.with_reports(Player(conversation, seed).play())
        except ConversationBroken as error:
            click.echo(str(error))
            sys.exit(1)
        if first is None:
            first = played
            click.echo(first, nl=False)
        elif played != first:
            click.echo(f"\nIn the order of seed {seed} something else followed:\n\n{played}", nl=False)
            sys.exit(1)


def _progress(seeds: range) -> Iterator[int]:
    """The seeds, with a progress bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield from seeds
        return
    with click.progressbar(seeds, label="simulating", file=sys.stderr, show_pos=True) as bar:
        yield from bar
