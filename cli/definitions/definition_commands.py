"""The commands that export and import definitions (CM-215 to CM-218)."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import Any

import click

from ..failure import EX_DATAERR, CommandFailure
from ..node_command import Call, node_command

SECTION = "Definitions"

#: The formats that the option --format takes; RabbitMQ also has Erlang's.
FORMATS = click.Choice(["json"])


@node_command(SECTION)
@click.argument("path")
@click.option("--format", type=FORMATS, default="json", help="The format of the file.  [default: json]")
def export_definitions(call: Call, path: str, format: str) -> None:
    """Write everything that the node has, except messages, to the file PATH as JSON; `-` is standard output."""
    if path != "-":
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise _not_written(path, os.strerror(errno.ENOENT))
        call.banner(f'Exporting definitions in JSON to a file at "{path}" ...')
    document: dict[str, Any] = {}
    for row in call.node.rows("export_definitions"):
        if isinstance(row["item"], dict):
            document.setdefault(row["section"], []).append(row["item"])
        else:
            document[row["section"]] = row["item"]
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    if path == "-":
        click.echo(text)
        return
    try:
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text + "\n")
    except OSError as error:
        raise _not_written(path, error.strerror) from None


def _not_written(path: str, reason: str | None) -> CommandFailure:
    return CommandFailure(f"the definitions cannot be written to '{path}': {reason}", EX_DATAERR)


@node_command(SECTION)
@click.argument("path", required=False)
@click.option("--format", type=FORMATS, default="json", help="The format of the file.  [default: json]")
@click.option("--dry-run", is_flag=True, help="Only check the definitions.")
def import_definitions(call: Call, path: str | None, format: str, dry_run: bool) -> None:
    """Create everything in the JSON file PATH, which export_definitions or RabbitMQ wrote. Without PATH, read
    standard input.

    The whole file is checked first. If there are errors, all of them are listed and nothing is changed. A binding
    whose exchange or queue exists neither in the file nor in the node is left out, with a warning: RabbitMQ exports the
    bindings of exclusive queues and internal exchanges without these. So is a queue to which a broker gave its name.
    What the node has with other properties stays as it is, with a warning as well.
    """
    document = _read(path)
    if path not in (None, "-"):
        call.banner(f'Importing definitions in JSON from a file at "{path}" ...')
    counts = call.ask("import_definitions", document=document, only_check=dry_run)
    left_out = counts.pop("left_out")
    for line in left_out:
        click.echo(f"Warning: left out is {line}", err=True)
    if call.is_machine:
        call.done(**counts, **({"left_out": len(left_out)} if left_out else {}))
        return
    found = ", ".join(f"{count} {section.replace('_', ' ')}" for section, count in counts.items() if count)
    call.remark(f"{'Checked' if dry_run else 'Imported'}: {found or 'nothing'}.")


def _read(path: str | None) -> dict[str, Any]:
    name = "standard input" if path in (None, "-") else f"'{path}'"
    try:
        if path is None or path == "-":
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8-sig") as file:
                text = file.read()
    except OSError as error:
        raise CommandFailure(f"the definitions in {name} cannot be read: {error.strerror}", EX_DATAERR) from None
    except UnicodeDecodeError as error:
        raise CommandFailure(f"the definitions in {name} are not text in UTF-8: {error}", EX_DATAERR) from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandFailure(f"the definitions in {name} are not JSON: {error}", EX_DATAERR) from None
    if not isinstance(document, dict):
        raise CommandFailure(f"the definitions in {name} are not a JSON object", EX_DATAERR)
    return document


COMMANDS = (export_definitions, import_definitions)
