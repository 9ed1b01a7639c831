"""`warren simulate`: whole brokers on virtual time, by the thousand, in search of an order of things that breaks a promise."""

import secrets
import sys
from collections.abc import Iterator
from typing import TextIO

import click

from .failure import EX_USAGE, CommandFailure

SEEDS = 1 << 32


@click.command()
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Of the first schedule; the others have the numbers after it. Without it, one nobody has thought of.",
)
@click.option("--schedules", type=click.IntRange(min=1), default=1000, show_default=True, help="How many.")
@click.option("--plan", type=click.File(), help="Run the plan in this file instead of random ones, in as many orders.")
@click.option(
    "--shrink/--no-shrink",
    default=True,
    show_default=True,
    help="Look for a short story of a failure; takes some seconds.",
)
@click.option("--story", is_flag=True, help="Tell the story of the last schedule also if nothing is broken.")
def simulate(seed: int | None, schedules: int, plan: TextIO | None, shrink: bool, story: bool) -> None:
    """Run simulated brokers with simulated clients, and look whether they keep what they promise.

    Each schedule is a node on a simulated machine, with clients that publish, consume, settle and vanish at random, while queues
    crash, disks fill and the machine loses power. A seed decides all of it, so the same seed is the same schedule.

    Stops at the first failure, tells its story, and says how to see it again.

    Exit codes: 0 when every schedule kept its promises, 1 when one did not.
    """
    # Here, not above: help texts need no broker loaded.
    import logging

    from ..simulation import schedule
    from ..simulation.plan import parse_plan
    from ..simulation.shrinking import shrink as shrunk

    logging.getLogger("warren").setLevel(logging.CRITICAL)  # crashes are what it is about
    try:
        chosen = None if plan is None else parse_plan(plan.read())
    except ValueError as error:
        raise CommandFailure(str(error), EX_USAGE) from error
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
        f"\nThe plan of this story{'' if short.seed is None else f', in the order of seed {short.seed}'}:\n\n{short.plan}"
    )
    click.echo(f"\nThe same again: warren simulate --seed {outcome.seed} --schedules 1")
    sys.exit(1)


def _progress(seeds: range) -> Iterator[int]:
    """The seeds, with a bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield from seeds
        return
    with click.progressbar(seeds, label="simulating", file=sys.stderr, show_pos=True) as bar:
        yield from bar
