"""The root command: prints help, contains the other commands, and turns errors into exit codes.

The exit codes are those of sysexits.h that rabbitmqctl uses: 0 success, 64 wrong use, 65 the data directory is damaged,
66 it cannot be read, 70 the broker could not start, 75 the data directory is in use, 78 wrong settings, 130
interrupted.
"""

import sys

import click

from ..version import __version__
from .failure import EX_USAGE, CommandFailure
from .simulate import simulate
from .start import start
from .store import store


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="warren", message="%(version)s")
def root() -> None:
    """warren: an AMQP 0-9-1 message broker. Every RabbitMQ client library works with it unchanged.

    \b
    First steps:
      warren start                              runs a broker on 127.0.0.1:5672 until Ctrl-C
      amqp-declare-queue -q hello               (Debian package amqp-tools; any other client works too)
      amqp-publish -r hello -b 'first message'
      amqp-get -q hello

    Log in from this machine as user guest with password guest. The broker keeps durable queues and their persistent
    messages in ~/.local/share/warren; `warren start --in-memory` keeps nothing.

    A Python program needs no command: after `from warren import Broker`, `with Broker() as broker:` runs a broker
    at `broker.url`.
    """


root.add_command(simulate)
root.add_command(start)
root.add_command(store)


def main() -> None:
    """The console script."""
    try:
        sys.exit(root.main(prog_name="warren", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        # A person at a terminal gets help; a script without a command gets an error.
        is_person = sys.stdout.isatty()
        click.echo(no_arguments.ctx.get_help() if no_arguments.ctx else str(no_arguments), err=not is_person)
        sys.exit(0 if is_person else EX_USAGE)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.UsageError as error:
        error.show()
        sys.exit(EX_USAGE)
    except CommandFailure as error:
        error.show()
        sys.exit(error.code)
