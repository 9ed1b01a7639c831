"""The root command: prints help, contains the other commands, and turns errors into exit codes.

The exit codes are those of sysexits.h that rabbitmqctl uses: 0 success, 64 wrong use, 65 the data directory is damaged,
66 it cannot be read, 70 the broker could not start, 75 the data directory is in use, 78 wrong settings, 130
interrupted.
"""

import difflib
import io
import sys
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..version import __version__
from .aliases import aliases_file, read_aliases
from .failure import EX_USAGE, CommandFailure
from .importing import without_collector
from .node_command import GENERAL_OPTIONS, NodeCommand
from .programs.start import start


class Root(click.Group):
    """The root command: finds a command by RabbitMQ's name or with hyphens, and lists them by section.

    `start` is there at once. All other commands are loaded when one of them, or a list of them, is asked for: they take
    7 MB, which a broker would keep as long as it runs.
    """

    is_complete = False

    def every_command(self) -> Mapping[str, click.Command]:
        """All commands by their names."""
        if not self.is_complete:
            self.is_complete = True
            with without_collector():
                from .commands import COMMANDS
            for command in COMMANDS:
                self.add_command(command)
        return self.commands

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        known = self.commands if name in self.commands else self.every_command()
        return known.get(name.replace("-", "_")) or known.get(name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.every_command())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names as every group does, and with hyphens if the user has typed one with hyphens."""
        found = super().shell_complete(ctx, incomplete)
        if found or "-" not in incomplete.lstrip("-"):
            return found
        as_underscores = super().shell_complete(ctx, incomplete.replace("-", "_"))
        return [CompletionItem(item.value.replace("_", "-"), help=item.help) for item in as_underscores]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            args = self._without_alias(ctx, args)
        return super().resolve_command(ctx, args)

    def _without_alias(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The same command line with the command that an alias stands for. Raises CommandFailure if there is none."""
        path = aliases_file(ctx.params.get("aliases_file"), args)
        aliases = {} if path is None else read_aliases(path)
        name, *rest = args
        words = aliases.get(name.replace("-", "_"))
        if words is None:
            raise self._not_found(name, aliases)
        # General options of the alias that stand before its command are moved behind it.
        line = [*words, *rest]
        _, after, _ = self.make_parser(ctx).parse_args(list(line))
        if not after or self.get_command(ctx, after[0]) is None:
            meant = f"'{after[0]}', which is no command" if after else "no command"
            raise CommandFailure(f"The alias '{name}' in '{path}' stands for {meant}.", EX_USAGE)
        return [after[0], *line[: len(line) - len(after)], *after[1:]]

    def _not_found(self, name: str, aliases: Collection[str]) -> CommandFailure:
        reason = NOT_OFFERED.get(name.replace("-", "_"))
        if reason is not None:
            return CommandFailure(f"warren has no command '{name}': {reason}", EX_USAGE)
        known = sorted({*self.every_command(), *aliases})
        near = difflib.get_close_matches(name.replace("-", "_"), known, n=1, cutoff=SIMILAR)
        names = textwrap.wrap(", ".join(known), WIDTH, break_on_hyphens=False)
        hint = f"Did you mean '{near[0]}'?" if near else "\n".join(["These are the commands:", *names])
        return CommandNotFound(f"Command '{name}' not found.\n{hint}", EX_USAGE)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in sorted(self.every_command().items()):
            section = command.section if isinstance(command, NodeCommand) else "Broker"
            sections.setdefault(section, []).append((name, command.get_short_help_str(100)))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)


class CommandNotFound(CommandFailure):
    """A command that does not exist."""

    def show(self, file: Any = None) -> None:
        click.echo(f"\n{self.message}", err=True)


@click.group(
    cls=Root,
    params=[make() for make in GENERAL_OPTIONS],
    context_settings={"help_option_names": ["-h", "-?", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="warren", message="%(version)s")
def root(**general: object) -> None:
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


def _completed_command(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return root.shell_complete(ctx.parent or ctx, incomplete)


@root.command("help")
@click.argument("command", required=False, shell_complete=_completed_command)
@click.option("-l", "--list-commands", is_flag=True, help="Only the names of all commands, one on each line.")
@click.pass_context
def help_command(ctx: click.Context, command: str | None, list_commands: bool) -> None:
    """Explain COMMAND, or list all commands."""
    parent = ctx.parent
    assert parent is not None
    if list_commands:
        for name in sorted(root.every_command()):
            click.echo(name)
    elif command is None:
        click.echo(parent.get_help())
    else:
        _, found, _ = root.resolve_command(parent, [command])
        assert found is not None
        click.echo(found.get_help(click.Context(found, parent, found.name)))


@root.command()
def version() -> None:
    """Show the version of this command, as --version does; server_version asks a node."""
    click.echo(__version__)


root.add_command(start)


_NO_CODE = (
    "a broker runs no code for whoever reaches it. 'warren status', 'warren report', the list commands and "
    "'warren diagnose' show what a node does; 'from warren import Broker' embeds one in a program."
)
_NO_SECRETS = (
    "its settings have no encrypted values. Put secrets into files that only the node's user may read "
    "(default_pass_file, control_cookie_file, cluster_cookie_file)."
)
_NO_TLS = (
    "'warren listeners' and 'warren environment' show the listener for TLS and its settings, and "
    "'warren check_certificate_expiration' reads its certificates."
)
_NO_COOKIE = (
    "'warren links' shows which nodes reach each other. A node whose secret differs is named in the log of the others."
)
_NO_MEMBERS = (
    "the replicas of a quorum queue follow its argument x-quorum-initial-group-size and the nodes of the cluster. "
    "'warren rings' lists them, and 'warren forget_cluster_node' takes those of a lost node away."
)
#: Commands of RabbitMQ that warren does not offer, and what to use instead (CM-150, CM-172, CM-173, CM-187, CM-189,
#: CM-202, CM-205).
NOT_OFFERED = {
    **dict.fromkeys(("eval", "eval_file", "exec"), _NO_CODE),
    **dict.fromkeys(("grow", "shrink", "add_member", "delete_member"), _NO_MEMBERS),
    "quorum_status": "'warren show_ring QUEUE' shows the members of a queue with replicas, and how far each one is.",
    "transfer_master": "'warren promote QUEUE NODE' makes the replica on another node the master.",
    **dict.fromkeys(("certificates", "cipher_suites", "tls_versions"), _NO_TLS),
    "erlang_version": "'warren status' shows the versions of warren and of Python.",
    **dict.fromkeys(("erlang_cookie_hash", "cookie_hash"), _NO_COOKIE),
    **dict.fromkeys(
        ("resolve_hostname", "resolver_info", "list_network_interfaces"),
        "ask the system, with 'getent hosts NAME' and 'ip address'; 'warren links' shows how nodes reach each other.",
    ),
    "discover_peers": "'warren cluster_status' shows the members; the settings cluster_formation name them.",
    **dict.fromkeys(
        (
            "reset_node_auth_attempt_metrics",
            "enable_auth_attempt_source_tracking",
            "disable_auth_attempt_source_tracking",
        ),
        "'warren list_node_auth_attempt_stats --by-source' always counts by source, since the start of the node.",
    ),
    "maybe_stuck": "'warren observer' shows the mailboxes of processes, and 'warren status' the longest turns.",
    "hipe_compile": "there is nothing to compile.",
    **dict.fromkeys(("encode", "decode", "list_ciphers", "list_hashes"), _NO_SECRETS),
    "autocomplete": 'the shell asks warren itself: eval "$(_WARREN_COMPLETE=bash_source warren)" in ~/.bashrc.',
}

#: Characters in a line of the list of all commands.
WIDTH = 100

#: How similar a command must be to one that does not exist to be proposed instead.
SIMILAR = 0.6


def main() -> None:
    """Run the command line: the entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding cannot show is escaped.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
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
