"""Every command and every option of `warren` has a help text and is described in the documents."""

from pathlib import Path

import click
import pytest

from warren.cli.main import root

ROOT = Path(__file__).resolve().parents[2]
TEXT = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def commands(group, prefix="warren"):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")


@pytest.mark.parametrize(("name", "command"), list(commands(root)))
def test_a_command_and_its_options_are_documented(name, command):
    assert name in TEXT
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert option in TEXT, f"{name} {option}"


@pytest.mark.parametrize(("name", "command"), list(commands(root)))
def test_a_command_has_help(name, command):
    """Every command's help has a sentence, its arguments and its options (CM-6)."""
    assert command.help, name
    for parameter in command.params:
        is_explained = (
            parameter.human_readable_name in command.help if isinstance(parameter, click.Argument) else parameter.help
        )
        assert is_explained, f"{name} {parameter.name}"
