"""What a command loads before it does anything: not the broker, which takes longer to load than most commands run."""

import subprocess
import sys


def printed_by(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    return result.stdout.splitlines()


def loaded_by(code):
    return set(printed_by(f"{code}; import sys; print('\\n'.join(sys.modules))"))


def test_a_command_does_not_load_the_broker():
    loaded = loaded_by("import warren.cli.main")
    assert "warren.cli.observing.message_commands" in loaded
    processes = {name for name in loaded if name.startswith("warren.actors.") and name.endswith(".process")}
    assert not processes and not loaded & {"asyncio", "lmdb", "thespian", "warren.amqp.methods", "warren.server"}


def test_the_garbage_collector_rests_while_a_command_is_loaded():
    """It runs dozens of times otherwise, and runs again afterwards."""
    count = "sum(each['collections'] for each in gc.get_stats())"
    code = f"import contextlib, gc; before = {count}; import warren.cli; print({count} - before, gc.isenabled())"
    (line,) = printed_by(code)
    collections, is_enabled = line.split()
    assert int(collections) < 10 and is_enabled == "True"
