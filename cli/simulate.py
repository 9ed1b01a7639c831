"""`warren simulate`: runs thousands of simulated brokers to find an order of events that breaks a guarantee."""

import secrets
import sys
from collections.abc import Iterator
from typing import TextIO

import click

from .failure import EX_USAGE, CommandFailure

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
@click.option("--plan", type=click.File(), help="Run the plan in this file in each schedule, instead of random plans.")
@click.option(
    "--conversation",
    type=click.File(),
    help="Play the conversation in this file, once for each schedule in another order, and print what followed. The "
    "first order is the plainest.",
)
@click.option(
    "--shrink/--no-shrink",
    default=True,
    show_default=True,
    help="After a failure, look for a shorter schedule that fails too. Takes some seconds.",
)
@click.option("--story", is_flag=True, help="Print the story of the last schedule even if nothing is broken.")
def simulate(
    seed: int | None, schedules: int, plan: TextIO | None, conversation: TextIO | None, shrink: bool, story: bool
) -> None:
    """Run simulated brokers with simulated clients, and check that the brokers keep their guarantees.

    Each schedule runs a node on a simulated machine. Clients publish, consume, acknowledge and disconnect at random,
    while queues crash, disks fill up and the machine loses power. The seed decides everything, so a seed always gives
    the same schedule.

    The command stops at the first failure and prints its story and how to repeat it.

    Exit codes: 0 if no schedule failed, 1 if one did.
    """
    # These imports are here because `--help` does not need them.
    import logging

    from ..simulation import schedule
    from ..simulation.plan import parse_plan
    from ..simulation.shrinking import shrink as shrunk

    logging.getLogger("warren").setLevel(logging.CRITICAL)  # schedules crash processes on purpose
    if conversation is not None:
        _play(conversation, schedules)
        return
    try:
        chosen = None if plan is None else parse_plan(plan.read())
    except ValueError as error:
        raise CommandFailure(f"--plan: {error}", EX_USAGE) from error
    first = secrets.randbelow(SEEDS) if seed is None else seed
    outcome = None
    steps = 0
    for number in _progress(range(first, first + schedules)):
        outcome = schedule.run(number, chosen)
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
    short = shrunk(outcome) if shrink else outcome
    click.echo(short.story)
    click.echo(
        f"\nThe plan of this story{'' if short.seed is None else f', to run with seed {short.seed}'}:\n\n{short.plan}"
    )
    click.echo(f"\nTo repeat the failure: warren simulate --seed {outcome.seed} --schedules 1")
    sys.exit(1)


def _play(file: TextIO, orders: int) -> None:
    """Play the conversation in the file in that many orders, and print it with what followed."""
    from ..simulation.conversation import ConversationError, parse_conversation
    from ..simulation.playing import ConversationBroken, Player

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
