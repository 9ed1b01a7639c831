"""What a command imports before it does anything: not the broker, whose import takes longer than most commands run."""

import subprocess
import sys


def printed_by(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    return result.stdout.splitlines()


def loaded_by(code):
    return set(printed_by(f"{code}; import sys; print('\\n'.join(sys.modules))"))


def test_a_command_does_not_load_the_broker():
    loaded = loaded_by("import warren.cli.commands")
    assert "warren.cli.observing.message_commands" in loaded
    processes = {name for name in loaded if name.startswith("warren.actors.") and name.endswith(".process")}
    assert not processes and not loaded & {"asyncio", "lmdb", "thespian", "warren.amqp.methods", "warren.server"}


def test_the_garbage_collector_rests_while_a_command_is_loaded():
    """The garbage collector is off while a command is imported, because it would run dozens of times, and on
    afterwards.
    """
    count = "sum(each['collections'] for each in gc.get_stats())"
    code = f"import contextlib, gc; before = {count}; import warren.cli; print({count} - before, gc.isenabled())"
    (line,) = printed_by(code)
    collections, is_enabled = line.split()
    assert int(collections) < 10 and is_enabled == "True"


def test_a_broker_does_not_load_the_commands_that_ask_it():
    """A broker does not import the commands, which would take 7 MB of its memory."""
    invoke = "from click.testing import CliRunner; from warren.cli.main import root; CliRunner().invoke(root, ['-h'])"
    loaded = loaded_by(invoke.replace("['", "['start', '"))
    assert "warren.cli.programs.start" in loaded
    assert not {name for name in loaded if name.startswith("warren.cli.") and name.endswith("_commands")}
    assert "warren.cli.operating.status_commands" in loaded_by(invoke)
