"""Commands that ask a running node: their general options, their banner, their errors and their output.

    @node_command("Queues", "Purging queue '{queue}' in vhost '{vhost}' ...")
    @click.argument("queue")
    def purge_queue(call: Call, queue: str) -> None:
        '''Remove all ready messages from a queue.'''
        call.ask("purge_queue", vhost=call.vhost, name=queue)

Names, options, texts and exit codes are rabbitmqctl's. A general option may stand before or after the command's name.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import click

from ..actors.node.operations.registry import OperationError
from ..settings import Settings
from .failure import EX_DATAERR, EX_SOFTWARE, EX_USAGE, CommandFailure
from .formatters import LISTING_FORMATTERS, MACHINE, Row, cell, dumped, listing
from .node_client import NodeClient, Target, Unreachable, full_name

#: Seconds that a node may take to begin another run, and seconds between two attempts to connect to it.
NEXT_RUN_SECONDS, NEXT_RUN_CHECK = 300.0, 0.05

#: The options that every command of this kind has, and the root command as well.
GENERAL_OPTIONS: tuple[Callable[[], click.Option], ...] = (
    lambda: click.Option(["-n", "--node"], help="Name of the node that is asked.  [default: warren@localhost]"),
    lambda: click.Option(["-p", "--vhost"], help="Virtual host.  [default: /]"),
    lambda: click.Option(["-t", "--timeout"], type=click.INT, help="Seconds that the command may wait for the node."),
    lambda: click.Option(["-q", "--quiet"], is_flag=True, help="Print results and errors only."),
    lambda: click.Option(["-s", "--silent"], is_flag=True, help="As --quiet, without the names of columns."),
    lambda: click.Option(
        ["--formatter"], help=f"How results are written: {', '.join(LISTING_FORMATTERS)}.  [default: table]"
    ),
    lambda: click.Option(["--no-table-headers"], is_flag=True, help="Leave out the names of columns."),
    lambda: click.Option(["--data-dir"], metavar="DIR", help="The node is the one with this data directory."),
    lambda: click.Option(["--address"], metavar="HOST:PORT", help="The node listens for commands there."),
    lambda: click.Option(["--cookie-file"], metavar="FILE", help="The secret of the node at --address."),
    lambda: click.Option(["--aliases-file"], metavar="FILE", help="Commands of your own, a line each: NAME = COMMAND."),
    lambda: click.Option(["--print-stacktrace"], is_flag=True, help="Show where the command itself has failed."),
)
GENERAL_NAMES = tuple(str(make().name) for make in GENERAL_OPTIONS)


#: Parameters that are secret: an error of their commands does not repeat what was given.
SECRETS = frozenset({"password", "pre_hashed_password"})


class Call:
    """One run of a command: the node that it asks, and how its results are written."""

    def __init__(self, command: str, options: dict[str, Any], default_timeout: float | None) -> None:
        self.command = command
        self.vhost: str = options["vhost"] or "/"
        self.timeout = default_timeout if options["timeout"] is None else float(options["timeout"])
        self.formatter: str = options["formatter"] or "table"
        self.is_quiet = options["quiet"] or options["silent"]
        self.has_headers = not (options["silent"] or options["no_table_headers"])
        node = options["node"] or os.environ.get("WARREN_NODENAME") or Settings().node_name
        self.target = Target(
            full_name(node),
            options["address"],
            options["data_dir"] or os.environ.get("WARREN_DATA_DIR"),
            options["cookie_file"],
        )
        self._client: NodeClient | None = None
        #: Why no node could be reached.
        self._unreached: CommandFailure | None = None
        if self.formatter not in LISTING_FORMATTERS:
            raise CommandFailure(
                f"Unknown formatter '{self.formatter}'. Known: {', '.join(LISTING_FORMATTERS)}", EX_USAGE
            )

    @property
    def node(self) -> NodeClient:
        """The connection with the node, which the first use opens. Raises CommandFailure if that has failed."""
        if self._unreached is not None:
            raise self._unreached
        if self._client is None:
            try:
                self._client = NodeClient(self.target, self.timeout)
            except CommandFailure as failure:
                self._unreached = failure
                raise
        return self._client

    @property
    def node_name(self) -> str:
        """The name of the node that answers. It may differ from --node if --data-dir or --address is given.

        If no node can be reached, this is how it is looked for; the command fails later, when it sends its request.
        """
        with suppress(CommandFailure):
            return self.node.node_name
        return self.asked_name

    @property
    def asked_name(self) -> str:
        """The node's name if a connection is open already, else how the node is looked for. Opens no connection."""
        return self.target.phrase if self._client is None else self._client.node_name

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    @property
    def is_machine(self) -> bool:
        """Whether a program reads the output."""
        return self.formatter in MACHINE

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Have the node perform an operation."""
        return self.node.call(operation, **arguments)

    def connect_again(self) -> None:
        """Open a new connection, even if an earlier attempt failed. Raises Unreachable if no node answers."""
        self.close()
        self._unreached = None
        self._client = NodeClient(self.target, self.timeout)

    def await_next_run(self) -> None:
        """Return when this run of the node has ended, and the next one answers. Raises Unreachable if none comes."""
        self.node.await_end()
        self.node.close()
        ends = time.monotonic() + (self.timeout or NEXT_RUN_SECONDS)
        while True:
            try:
                self._client = NodeClient(self.target, self.timeout)
                return
            except Unreachable:
                if time.monotonic() > ends:
                    raise
                time.sleep(NEXT_RUN_CHECK)

    def banner(self, text: str) -> None:
        """Print a line about what the command is going to do (CM-16), unless --quiet or a formatter forbids it."""
        if not self.is_quiet and not self.is_machine:
            click.echo(text)

    def say(self, text: str) -> None:
        """Print a result that is one text."""
        click.echo(dumped(text) if self.formatter in ("json", "json_stream") else text)

    def checked(self, text: str, **facts: Any) -> None:
        """Print the result of a check: its text, or for JSON an object with `facts`."""
        if self.formatter in ("json", "json_stream"):
            click.echo(dumped({"result": "ok", "node": self.node_name, "message": text, **facts}))
        elif text:
            click.echo(text)

    def remark(self, text: str) -> None:
        """Print a line for a person about what was done. It is left out when the banner is."""
        self.banner(text)

    def change(self, operation: str, **arguments: Any) -> None:
        """Have the node make a change, and write its warning to standard error if it has one."""
        warning = self.ask(operation, **arguments)
        if warning:
            click.secho(f"Warning: {warning}", err=True, fg="yellow")

    def done(self, **facts: Any) -> None:
        """Report success, for a command without another result (CM-26). Only JSON shows it, and the `facts`."""
        if self.formatter in ("json", "json_stream"):
            click.echo(dumped({"node": self.node_name, "result": "ok", **facts}))

    def list(self, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Print rows."""
        lines: list[str] = []

        def show() -> None:
            if lines:
                click.echo("\n".join(lines))
                lines.clear()

        # Rows that have arrived together are printed together: ten thousand lines one by one take 0.2 s.
        if self._client is not None:
            self._client.before_wait = show
        # If the node refuses, its error comes instead of the first row, and nothing must be printed before it.
        for line in listing(self.formatter, columns, _begun(iter(rows)), self.has_headers, sys.stdout.isatty()):
            lines.append(line)
        show()

    def document(self, column: str, rows: Sequence[Row]) -> None:
        """Print a result that is one JSON text: this column of the first row."""
        click.echo(rows[0][column] if rows else "{}")

    def failure(self, error: CommandFailure) -> CommandFailure:
        """The error with which the command ends: as JSON if results are written so (CM-24)."""
        if self.formatter not in ("json", "json_stream"):
            return error
        return JsonFailure(self.target.place if self._client is None else self.asked_name, error)

    def facts(self, values: Row) -> None:
        """Print names and values, one a line for a person or as one JSON object."""
        if self.is_machine:
            click.echo(dumped(values))
        else:
            for name, value in values.items():
                click.echo(f"{name}: {cell(value)}")


def _begun(rows: Iterator[Row]) -> Iterator[Row]:
    """The same rows. Awaits the first one, so that an error of the node is raised here."""
    first = list(itertools.islice(rows, 1))
    return itertools.chain(first, rows)


class NodeCommand(click.Command):
    """A command that asks a node."""

    def __init__(self, *arguments: Any, section: str, banner: str, timeout: float | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.section = section
        self.banner = banner
        self.timeout = timeout
        self.params += [make() for make in GENERAL_OPTIONS]

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(info_name, list(args), *rest, **extra)
        except click.NoSuchOption as error:
            raise InvalidOptions(self, error.option_name, _unknown(error)) from None
        except click.BadParameter as error:
            if isinstance(error, click.MissingParameter):
                raise self._bad("not enough arguments.") from None
            name = max(error.param.opts, key=len) if error.param is not None else ""
            raise InvalidOptions(self, name, error.message) from None
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                raise self._bad("too many arguments.") from None
            raise

    def _bad(self, text: str, details: Sequence[str] = ()) -> BadArguments:
        found = BadArguments(text, details)
        found.command = self
        return found

    def invoke(self, ctx: click.Context) -> Any:
        root = ctx.find_root().params
        given = {name: ctx.params.pop(name) for name in GENERAL_NAMES}
        general = {name: value or root.get(name) for name, value in given.items()}
        call = Call(str(ctx.info_name), general, self.timeout)
        assert self.callback is not None
        try:
            if self.banner:
                values = {"node": call.node_name} if "{node}" in self.banner else {}
                call.banner(self.banner.format(vhost=call.vhost, **values, **ctx.params))
            return ctx.invoke(self.callback, call, **ctx.params)
        except OperationError as error:
            raise self._bad(error.text, error.details) from None
        except CommandFailure as error:
            if isinstance(error, BadArguments):
                error.command = self
            raise call.failure(error) from None
        except BrokenPipeError:
            close_output_quietly()
            return None
        except (click.ClickException, click.exceptions.Exit, click.Abort, EOFError):
            raise
        except Exception as error:
            if general["print_stacktrace"]:
                traceback.print_exc()
            raise call.failure(CommandFault(str(ctx.info_name), error)) from None
        finally:
            call.close()


class CommandFault(CommandFailure):
    """An exception of the command itself, which is a fault of warren (CM-19)."""

    def __init__(self, command: str, error: Exception) -> None:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        super().__init__(
            f"the command {command} has failed, which is a fault of warren: {text}. --print-stacktrace shows where.",
            EX_SOFTWARE,
        )


class JsonFailure(CommandFailure):
    """An error as one JSON object, with the exit code that the text would have (CM-24)."""

    def __init__(self, node: str, error: CommandFailure) -> None:
        super().__init__(dumped({"result": "error", "node": node, "message": error.message, **error.facts}), error.code)

    def show(self, file: Any = None) -> None:
        click.echo(self.message, err=True)


class BadArguments(CommandFailure):
    """Wrong arguments, reported as rabbitmqctl does (CM-20). The exit code is 65 if one is malformed, otherwise 64."""

    def __init__(self, text: str, details: Sequence[str] = (), is_data: bool = False):
        super().__init__(text, EX_DATAERR if is_data else EX_USAGE)
        self.details = details
        #: The command with these arguments, for its usage line. `NodeCommand` sets it.
        self.command: click.Command | None = None

    def show(self, file: Any = None) -> None:
        given = " ".join(sys.argv[1:])
        if self.command is not None and SECRETS.intersection(one.name for one in self.command.params):
            given = f"{self.command.name} ***"
        lines = [f"Error (argument validation): {self.message}", *self.details, "Arguments given:", f"\t{given}"]
        if self.command is not None:
            lines += ["", click.style("Usage", bold=True), "", usage(self.command)]
        click.echo("\n".join(lines), err=True)


class InvalidOptions(BadArguments):
    """A switch that the command does not have, or one with a value of the wrong type (CM-10)."""

    def __init__(self, command: click.Command, name: str, reason: str) -> None:
        super().__init__(f"Invalid options for this command:\n{name} : {reason}")
        self.command = command


def one_of(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """For `shell_complete`: the parameter takes one of these words."""
    return lambda ctx, parameter, incomplete: [word for word in words if word.startswith(incomplete)]


def _unknown(error: click.NoSuchOption) -> str:
    near = f". Did you mean '{error.possibilities[0]}'?" if error.possibilities else ""
    return f"unknown option{near}"


def arguments(command: click.Command) -> list[str]:
    """The arguments of a command, as its usage line has them."""
    return [
        f"[<{one.name}> ...]" if one.nargs == -1 else f"<{one.name}>" if one.required else f"[<{one.name}>]"
        for one in command.params
        if isinstance(one, click.Argument)
    ]


def usage(command: click.Command) -> str:
    """The usage line of a command."""
    return " ".join(["warren [general options]", str(command.name), *arguments(command), "[options]"])


def node_command(
    section: str, banner: str = "", timeout: float | None = None
) -> Callable[[Callable[..., Any]], NodeCommand]:
    """Make a command of a function; its docstring is the help.

    `banner` may contain `{vhost}`, `{node}` and the names of the command's parameters. `timeout` is used without
    --timeout.
    """

    def make(function: Callable[..., Any]) -> NodeCommand:
        made = click.command(function.__name__, cls=NodeCommand, section=section, banner=banner, timeout=timeout)(
            function
        )
        assert isinstance(made, NodeCommand)
        return made

    return make


def close_output_quietly() -> None:
    """Keep Python from reporting at its end that the reader of the output is gone."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
