"""Writes the generated tables into the documents: `make docs`. Tests compare the documents with the code.

A generated table is the first table below a heading. `TABLES` lists page, heading and the function that returns its
lines.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path

import click

from warren import Settings
from warren.actors import contracts as contracts_of_actors
from warren.actors.context import starting
from warren.cli.main import root
from warren.cli.node_command import GENERAL_NAMES, GENERAL_OPTIONS, NodeCommand, arguments
from warren.runtime.contract import Contract
from warren.spark.options import (
    AnyOptions,
    BatchOptions,
    ConnectionOptions,
    DirectoryOptions,
    SinkOptions,
    StreamOptions,
)

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent


def settings() -> list[str]:
    """One row for each setting: name, default, meaning."""
    defaults = Settings()
    rows = [
        f"| `{item.name}` | `{getattr(defaults, item.name)!r}` | {item.metadata['doc']} |"
        for item in dataclasses.fields(Settings)
    ]
    return ["| setting | default | meaning |", "|---|---|---|", *rows]


def contracts() -> dict[str, type[Contract]]:
    """The contracts of all processes, by the name of the instance that makes their messages (`to_queue`)."""
    names = [found.name for found in pkgutil.iter_modules(contracts_of_actors.__path__)]
    modules = [importlib.import_module(f"{contracts_of_actors.__name__}.{name}") for name in names]
    return {
        name: type(value)
        for module in (*modules, starting)
        for name, value in sorted(vars(module).items())
        if isinstance(value, Contract) and type(value).__module__ == module.__name__
    }


def own_messages(contract: type[Contract]) -> dict[str, Callable[..., object]]:
    """The messages that `contract` lists itself, without those of the contract that it derives from."""
    return {
        name: declared
        for name, declared in contract.messages.items()
        if declared.__qualname__ == f"{contract.__name__}.{name}"
    }


def senders() -> dict[tuple[type[Contract], str], set[str]]:
    """Who sends each message: folders of `actors`, other folders and files whose source has `to_queue.publish(`."""
    instances = contracts()
    makes = re.compile(rf"\b({'|'.join(instances)})\.(\w+)\(")
    found: dict[tuple[type[Contract], str], set[str]] = {}
    for pattern in ("*.py", "actors/**/*.py", "cluster/**/*.py", "mirror/**/*.py", "simulation/**/*.py"):
        for path in sorted(ROOT.glob(pattern)):
            place = path.relative_to(ROOT).parts
            sender = place[1] if place[0] == "actors" else place[0]
            for instance, message in makes.findall(path.read_text("utf-8")):
                # The contract that lists the message, which may be one that the receiver's derives from.
                for contract in instances[instance].__mro__:
                    if issubclass(contract, Contract) and message in own_messages(contract):
                        found.setdefault((contract, message), set()).add(sender)
    return found


def messages() -> list[str]:
    """One row for each message of a process: folders that send it, contract of the receiver, shape and meaning."""
    rows = []
    sent_by = senders()
    for contract in contracts().values():
        for name, declared in own_messages(contract).items():
            signature = inspect.signature(declared)
            shape = f"{name}({', '.join(list(signature.parameters)[1:])})"
            if signature.return_annotation != "None":
                shape += f" -> {signature.return_annotation}"
            meaning = " ".join((inspect.getdoc(declared) or "").split("\n\n")[0].split())
            cells = ", ".join(sorted(sent_by.get((contract, name), ()))), contract.__name__, f"`{shape}`", meaning
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return ["| from | to | message | meaning |", "|---|---|---|---|", *rows]


def _spelt(option: click.Option) -> str:
    """An option as its user writes it: `--unit [bytes|mb|gb]`."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.make_metavar(click.Context(root))}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def general_options() -> list[str]:
    """One row for each option that all commands have which ask a node."""
    options = [make() for make in GENERAL_OPTIONS]
    rows = [_row(f"`{_spelt(option)}`", option.help or "") for option in options]
    return ["| option | meaning |", "|---|---|", *rows]


def commands() -> list[str]:
    """One row for each command that asks a node, with its arguments and its own options."""
    rows = []
    for name, command in sorted(root.every_command().items()):
        if isinstance(command, NodeCommand):
            options = [one for one in command.params if isinstance(one, click.Option)]
            own = [f"[{_spelt(one)}]" for one in options if one.name not in GENERAL_NAMES]
            meaning = " ".join((command.help or "").split())
            rows.append(_row(f"`{' '.join([f'warren {name}', *arguments(command), *own])}`", meaning))
    return ["| command | meaning |", "|---|---|", *rows]


def spark_options(kind: type[AnyOptions], without: type[AnyOptions] | None = None) -> list[str]:
    """One row for each option of the format `warren` that `kind` has, and `without` lacks or has otherwise."""
    left = {} if without is None else {name: field.metadata for name, field in without.names().items()}
    rows = []
    for name, field in kind.names().items():
        if left.get(name) != field.metadata:
            default = field.metadata["default"]
            rows.append(_row(f"`{name}`", "" if default in (None, "") else f"`{default}`", field.metadata["text"]))
    return ["| option | default | meaning |", "|---|---|---|", *rows]


def spark_columns() -> list[str]:
    """One row for each column of the format `warren`, whose table stands in the module that makes the columns."""
    # Read from the source, because the module imports Arrow, which is not installed everywhere.
    text = (ROOT / "spark" / "rows" / "columns.py").read_text("utf-8")
    found = re.findall(
        r'^    "(\w+)": RowColumn\((f?)"([^"]+)"(, True)?\),$', text.partition("ON_DEMAND")[0], re.MULTILINE
    )
    death = re.findall(r'^DEATH = "(.*)"$', text, re.MULTILINE)[0]
    rows = [
        _row(f"`{name}`", f"`{type.replace('{DEATH}', death)}`", "yes" if core else "") for name, _, type, core in found
    ]
    return ["| column | type | core |", "|---|---|---|", *rows]


TABLES: list[tuple[str, str, Callable[[], list[str]]]] = [
    ("cli.md", "## General options", general_options),
    ("cli.md", "## Commands", commands),
    ("embedding.md", "## Settings", settings),
    ("internals/architecture.md", "### Messages", messages),
    ("spark.md", "## Columns", spark_columns),
    ("spark.md", "## Options for reading a queue", functools.partial(spark_options, BatchOptions)),
    ("spark.md", "## More options for streams", functools.partial(spark_options, StreamOptions, BatchOptions)),
    ("spark.md", "## Options for data directories", functools.partial(spark_options, DirectoryOptions)),
    ("spark.md", "## Options for publishing", functools.partial(spark_options, SinkOptions, ConnectionOptions)),
]


def with_table(text: str, heading: str, lines: list[str]) -> str:
    """`text` with the first table below `heading` replaced."""
    before, found, after = text.partition(f"\n{heading}\n")
    if not found:
        raise ValueError(f"there is no heading '{heading}'")
    table = "".join(f"{line}\n" for line in lines)
    return before + found + re.sub(r"(?:^\|.*\n)+", lambda _: table, after, count=1, flags=re.MULTILINE)


def main() -> None:
    for name, heading, lines in TABLES:
        page = DOCS / name
        page.write_text(with_table(page.read_text(), heading, lines()))


if __name__ == "__main__":
    main()
