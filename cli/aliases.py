"""Commands of the user's own: a file of aliases, in the form that rabbitmqctl has (CM-7).

    # comment
    qs = list_queues name messages consumers
    quiet-users = -q list_users

The file is named by --aliases-file, by $WARREN_CLI_ALIASES_FILE or by $RABBITMQ_CLI_ALIASES_FILE. It is read only if
the command line names no command of warren, so an alias cannot hide a command of warren. A file that cannot be read,
and a line that is no alias, cause a warning, because neither may keep a command from running.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

import click

#: The variables that name the file; the first one that is set counts.
VARIABLES = ("WARREN_CLI_ALIASES_FILE", "RABBITMQ_CLI_ALIASES_FILE")

#: The option that names the file. It may stand behind the alias, where no command has parsed it yet.
OPTION = "--aliases-file"

#: Characters of the file that are read.
FILE_MAX = 1 << 20


def aliases_file(given: str | None, args: Sequence[str]) -> str | None:
    """The file of aliases: the option's value before the command or among its arguments, else that of a variable."""
    for at, arg in enumerate(args):
        if arg == "--":
            break
        if arg == OPTION and at + 1 < len(args):
            return args[at + 1]
        if arg.startswith(OPTION + "="):
            return arg.partition("=")[2]
    return given or next((found for name in VARIABLES if (found := os.environ.get(name))), None)


def read_aliases(path: str) -> dict[str, list[str]]:
    """By name with underscores: the command that an alias stands for, with its arguments."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(FILE_MAX)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
        _warn(f"the file of aliases '{path}' cannot be read: {reason}")
        return {}
    aliases = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, _, content = line.partition("=")
        try:
            words = shlex.split(content)
        except ValueError as error:
            _warn(f"line {number} of '{path}' is no alias: {error}")
            continue
        if not name.strip() or not words:
            _warn(f"line {number} of '{path}' is no alias: it must be like 'qs = list_queues name messages'")
            continue
        aliases[name.strip().replace("-", "_")] = words
    return aliases


def _warn(text: str) -> None:
    click.secho(f"Warning: {text}", err=True, fg="yellow")
