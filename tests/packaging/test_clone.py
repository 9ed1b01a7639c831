"""Working inside a clone: the clone's folder `amqp` must not be imported silently instead of the client library of that
name.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMPORT_KOMBU = "import kombu.transport.pyamqp as transport; print(transport.amqp.__file__)"


def run(*arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | variables
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_an_import_of_the_wrong_amqp_names_the_reason_and_the_way_out():
    result = run("-c", IMPORT_KOMBU)
    assert result.returncode == 1
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"ImportError: this is warren's folder {ROOT / 'amqp'}, not the client library 'amqp'")
    assert "Start it from another folder, or set PYTHONSAFEPATH=1" in error


@pytest.mark.parametrize(
    ("arguments", "variables"), [(["-P", "-c"], {}), (["-c"], {"PYTHONSAFEPATH": "1"})], ids=["-P", "PYTHONSAFEPATH"]
)
def test_the_way_out_works(arguments, variables):
    result = run(*arguments, IMPORT_KOMBU, **variables)
    assert result.returncode == 0, result.stderr
    assert not Path(result.stdout.strip()).is_relative_to(ROOT / "amqp")


def test_python_m_pytest_inside_the_clone_finds_the_client_library():
    """`python -m pytest` inside the clone finds the client library, because tests/conftest.py takes the clone off the
    path.
    """
    command = ["-m", "pytest", "-c", "tests/pytest.ini", "-q", "-p", "no:cacheprovider"]
    result = run(*command, "tests/clients/test_kombu.py", "--collect-only")
    assert result.returncode == 0, result.stdout
