"""What a command loads before it does anything: not the broker, which takes longer to load than most commands run."""

import subprocess
import sys


def loaded_by(code):
    code = f"{code}; import sys; print('\\n'.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    return set(result.stdout.splitlines())


def test_a_command_does_not_load_the_broker():
    loaded = loaded_by("import warren.cli.main")
    assert "warren.cli.observing.message_commands" in loaded
    processes = {name for name in loaded if name.startswith("warren.actors.") and name.endswith(".process")}
    assert not processes and not loaded & {"asyncio", "lmdb", "thespian", "warren.amqp.methods", "warren.server"}
